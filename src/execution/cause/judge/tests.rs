//! The judgement on every kind of end.

use fumehood_protocol::message::{Filesystem, StreamTotals, Usage};

use super::*;
use crate::execution::spec::Limits;

fn limits() -> Limits {
    Limits {
        timeout_seconds: 5.0,
        memory_mb: 256,
        cpus: 1.0,
        max_processes: 64,
        workspace_mb: 32,
        shm_mb: 16,
        max_stdout_size_bytes: 100,
        max_stderr_size_bytes: 100,
        max_artifact_mb: 1,
        max_artifact_files: 10,
    }
}

fn totals() -> StreamTotals {
    StreamTotals {
        bytes: 0,
        forwarded_bytes: 0,
        tail: Vec::new(),
    }
}

fn exited(ending: Ending, usage: Usage) -> Exited {
    Exited {
        ending,
        ended_by: EndedBy::Program,
        wall_microseconds: 1_500_000,
        stdout: totals(),
        stderr: totals(),
        usage,
        survivors: 0,
    }
}

fn verdict(exited: &Exited, oom: Option<bool>, stderr: &str, missing: &[String]) -> Verdict {
    judge(&Facts {
        limits: &limits(),
        end: End::Reported(exited),
        engine_saw_memory_kill: oom,
        missing_expected_files: missing,
        stderr,
    })
}

fn fs(free_bytes: u64, free_inodes: u64) -> Option<Filesystem> {
    Some(Filesystem {
        total_bytes: 32 << 20,
        free_bytes,
        total_inodes: 1000,
        free_inodes,
    })
}

#[test]
fn exit_zero_is_success_unless_expected_files_are_missing() {
    let end = exited(Ending::Code(0), Usage::default());
    assert_eq!(verdict(&end, None, "", &[]).status, Status::Success);
    let missing = ["a.csv".to_owned(), "b.csv".to_owned()];
    let verdict = verdict(&end, None, "", &missing);
    assert_eq!(verdict.status, Status::InvalidOutput);
    assert_eq!(verdict.return_code, Some(0));
    let text = "Missing expected output files: a.csv, b.csv";
    assert_eq!(verdict.error_info.as_deref(), Some(text));
}

#[test]
fn a_plain_failure_names_no_limit_and_leaves_the_words_to_stderr() {
    let verdict = verdict(
        &exited(Ending::Code(3), Usage::default()),
        None,
        "Traceback",
        &[],
    );
    assert_eq!(
        (verdict.status, verdict.return_code),
        (Status::Failure, Some(3))
    );
    assert_eq!(
        (verdict.cause.kind, verdict.cause.limit),
        (CauseKind::Exited, None)
    );
    assert_eq!(verdict.error_info, None);
}

#[test]
fn a_signal_gives_its_negative_number() {
    let verdict = verdict(&exited(Ending::Signal(11), Usage::default()), None, "", &[]);
    assert_eq!(verdict.return_code, Some(-11));
    assert_eq!(verdict.cause.kind, CauseKind::Signal);
}

#[test]
fn a_sigkill_that_no_limit_explains_is_a_signal_and_not_a_memory_limit() {
    let usage = Usage {
        memory_kills: Some(0),
        ..Usage::default()
    };
    let verdict = verdict(&exited(Ending::Signal(9), usage), None, "", &[]);
    assert_eq!(verdict.cause.kind, CauseKind::Signal);
}

#[test]
fn each_counter_names_its_limit() {
    let table = [
        (
            Usage {
                memory_kills: Some(1),
                ..Usage::default()
            },
            Ending::Signal(9),
            Limit::Memory,
        ),
        (
            Usage {
                memory_kills: Some(1),
                ..Usage::default()
            },
            Ending::Code(1),
            Limit::Memory,
        ),
        (
            Usage {
                process_refusals: Some(2),
                ..Usage::default()
            },
            Ending::Code(1),
            Limit::Processes,
        ),
        (
            Usage {
                workspace_fullest: fs(0, 5),
                ..Usage::default()
            },
            Ending::Code(1),
            Limit::Disk,
        ),
        (
            Usage {
                workspace_fullest: fs(9 << 20, 0),
                ..Usage::default()
            },
            Ending::Code(1),
            Limit::Disk,
        ),
        (
            Usage {
                shared_memory_fullest: fs(0, 5),
                ..Usage::default()
            },
            Ending::Signal(7),
            Limit::Memory,
        ),
        (Usage::default(), Ending::Signal(25), Limit::FileSize),
        (Usage::default(), Ending::Signal(24), Limit::Cpu),
    ];
    for (usage, ending, limit) in table {
        let verdict = verdict(&exited(ending, usage), None, "", &[]);
        assert_eq!(verdict.cause.limit, Some(limit), "{usage:?} {ending:?}");
        assert_eq!(verdict.cause.kind, CauseKind::Limit);
        assert_eq!(verdict.status, Status::Failure);
        assert!(verdict.error_info.is_some());
    }
}

#[test]
fn the_programs_words_count_only_where_nothing_else_can_tell() {
    let said = "OSError: [Errno 27] File too large";
    let end = exited(Ending::Code(1), Usage::default());
    assert_eq!(
        verdict(&end, None, said, &[]).cause.limit,
        Some(Limit::FileSize)
    );
    let said = "OSError: [Errno 28] No space left on device";
    assert_eq!(verdict(&end, None, said, &[]).cause.limit, None);
    let usage = Usage {
        workspace_fullest: fs(1 << 20, 500),
        ..Usage::default()
    };
    let end = exited(Ending::Code(1), usage);
    assert_eq!(
        verdict(&end, None, said, &[]).cause.limit,
        Some(Limit::Disk)
    );
    assert_eq!(verdict(&end, None, "", &[]).cause.limit, None);
    let said = "ValueError: File too large";
    assert_eq!(verdict(&end, None, said, &[]).cause.limit, None);
}

#[test]
fn a_file_system_that_counts_no_inodes_lacks_none() {
    let uncounted = fs(9 << 20, 0).map(|sizes| Filesystem {
        total_inodes: 0,
        ..sizes
    });
    let usage = Usage {
        workspace_fullest: uncounted,
        ..Usage::default()
    };
    let end = exited(Ending::Code(0), usage);
    assert_eq!(verdict(&end, None, "", &[]).warnings, Vec::<String>::new());
}

#[test]
fn a_full_file_system_is_named_with_its_own_size_and_option() {
    let table = [
        (
            Usage {
                temporary_fullest: fs(0, 5),
                ..Usage::default()
            },
            (32 << 20, "/tmp"),
            "memory_mb",
        ),
        (
            Usage {
                shared_memory_fullest: fs(0, 5),
                ..Usage::default()
            },
            (32 << 20, "/dev/shm"),
            "shm_mb",
        ),
        (
            Usage {
                workspace_fullest: fs(9 << 20, 0),
                ..Usage::default()
            },
            (1000, "the workspace, which has room for 1000 files"),
            "workspace_mb",
        ),
    ];
    for (usage, (configured, place), option) in table {
        let cause = verdict(&exited(Ending::Code(1), usage), None, "", &[]).cause;
        assert_eq!(cause.limit, Some(Limit::Disk));
        assert_eq!(cause.configured, Some(Number::from(configured)));
        assert_eq!(cause.observed, cause.configured);
        assert!(cause.message.contains(place) && cause.message.contains(option));
    }
}

#[test]
fn a_killed_child_of_a_successful_program_is_a_warning() {
    let usage = Usage {
        memory_kills: Some(1),
        ..Usage::default()
    };
    let verdict = verdict(&exited(Ending::Code(0), usage), Some(true), "", &[]);
    assert_eq!(
        (verdict.status, verdict.cause.limit),
        (Status::Success, None)
    );
    assert!(verdict.warnings[0].contains("memory limit of 256 MiB"));
}

#[test]
fn the_deadline_wins_over_the_signal_that_enforced_it() {
    let mut end = exited(Ending::Signal(9), Usage::default());
    end.ended_by = EndedBy::Deadline;
    let verdict = verdict(&end, None, "", &[]);
    assert_eq!(
        (verdict.status, verdict.return_code),
        (Status::Timeout, None)
    );
    let text = "Execution timed out after 5 seconds.";
    assert_eq!(verdict.error_info.as_deref(), Some(text));
}

#[test]
fn a_program_that_waits_for_a_killed_worker_is_late_and_says_why() {
    for ended_by in [EndedBy::Deadline, EndedBy::Cancel] {
        let usage = Usage {
            memory_kills: Some(1),
            ..Usage::default()
        };
        let mut end = exited(Ending::Signal(9), usage);
        end.ended_by = ended_by;
        let verdict = verdict(&end, None, "", &[]);
        assert_ne!(verdict.cause.limit, Some(Limit::Memory));
        assert!(verdict.warnings[0].contains("memory limit of 256 MiB"));
    }
}

#[test]
fn a_lost_sandbox_is_ours_unless_the_engine_saw_a_memory_kill() {
    let lost = |oom| {
        judge(&Facts {
            limits: &limits(),
            end: End::Lost("the stream ended".to_owned()),
            engine_saw_memory_kill: oom,
            missing_expected_files: &[],
            stderr: "",
        })
    };
    for oom in [None, Some(false)] {
        let verdict = lost(oom);
        assert_eq!((verdict.status, verdict.return_code), (Status::Error, None));
        assert_eq!(verdict.cause.kind, CauseKind::Infrastructure);
    }
    assert_eq!(lost(Some(true)).cause.limit, Some(Limit::Memory));
}

#[test]
fn seconds_are_written_as_the_interface_does() {
    assert_eq!(format_seconds(120.0), "120");
    assert_eq!(format_seconds(2.5), "2.5");
}

#[test]
fn a_limit_that_was_survived_before_an_unrelated_failure_is_a_warning() {
    let traceback = "Traceback (most recent call last):\nKeyError: 'target'";
    for usage in [
        Usage {
            process_refusals: Some(2),
            ..Usage::default()
        },
        Usage {
            workspace_fullest: fs(0, 5),
            ..Usage::default()
        },
    ] {
        let verdict = verdict(&exited(Ending::Code(1), usage), None, traceback, &[]);
        assert_eq!(verdict.cause.kind, CauseKind::Exited, "{usage:?}");
        assert_eq!(verdict.warnings.len(), 1);
    }
}

#[test]
fn a_time_limit_is_only_claimed_where_it_is_known_or_likely_that_nothing_runs_any_more() {
    let judged = |end| {
        judge(&Facts {
            limits: &limits(),
            end,
            engine_saw_memory_kill: None,
            missing_expected_files: &[],
            stderr: "",
        })
    };
    for stop in [Stop::Confirmed, Stop::Unanswered] {
        let verdict = judged(End::KilledAtDeadline(5.8, stop));
        assert_eq!(verdict.status, Status::Timeout);
        assert_eq!(verdict.cause.evidence, [stop.words()]);
    }
    let verdict = judged(End::KilledAtDeadline(5.8, Stop::Failed));
    assert_eq!(verdict.status, Status::Error);
    assert_eq!(verdict.cause.kind, CauseKind::Infrastructure);
    assert_eq!((verdict.cause.limit, verdict.return_code), (None, None));
    assert!(
        verdict
            .cause
            .message
            .contains("its time limit of 5 s was over")
    );
    for stop in [Stop::Confirmed, Stop::Unanswered, Stop::Failed] {
        let verdict = judged(End::KilledOnCancel(stop));
        assert_eq!(verdict.status, Status::Cancelled);
        assert_eq!(verdict.cause.evidence, [stop.words()]);
    }
}

#[test]
fn a_kill_for_memory_that_was_survived_before_an_unrelated_failure_is_a_warning() {
    let failed = |ending, after, stderr: &str| {
        let usage = Usage {
            memory_kills: Some(1),
            since_memory_kill_milliseconds: after,
            ..Usage::default()
        };
        verdict(&exited(ending, usage), None, stderr, &[])
    };
    let unrelated = "Traceback (most recent call last):\nValueError: no such column";
    for (ending, stderr) in [
        (Ending::Code(1), unrelated),
        (Ending::Signal(11), unrelated),
        (Ending::Signal(11), ""),
    ] {
        let verdict = failed(ending, Some(4_000), stderr);
        assert_eq!(verdict.cause.limit, None, "{ending:?} {stderr}");
        assert_eq!(verdict.warnings.len(), 1);
        // At once, or nobody knows when: that was it.
        for after in [Some(30), None] {
            let verdict = failed(ending, after, stderr);
            assert_eq!(verdict.cause.limit, Some(Limit::Memory));
        }
    }
    // Late, and it says so, or nothing.
    let pool = "concurrent.futures.process.BrokenProcessPool: A process in the pool was terminated abruptly";
    for stderr in [pool, ""] {
        let verdict = failed(Ending::Code(1), Some(60_000), stderr);
        assert_eq!(verdict.cause.limit, Some(Limit::Memory), "{stderr}");
    }
}

#[test]
fn a_stream_of_noise_is_nobodys_excuse() {
    let judged = |end| {
        judge(&Facts {
            limits: &limits(),
            end,
            engine_saw_memory_kill: None,
            missing_expected_files: &[],
            stderr: "",
        })
    };
    let how = "the sandbox sent something that is no message".to_owned();
    let noise = judged(End::Senseless(how.clone()));
    assert_eq!(noise.cause.kind, CauseKind::Infrastructure);
    assert!(noise.cause.may_be_the_programs && !noise.cause.message.contains("not at fault"));
    assert!(!judged(End::Lost(how)).cause.may_be_the_programs);
}
