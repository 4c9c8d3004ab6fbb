//! The rows, in the order of security.md.

use super::Row;

const ANY_POINT: &str = "killed_at_any_point_after_its_start_a_run_ends_once_and_leaves_nothing";

pub(super) const ROWS: [Row; 33] = [
    row(
        "R0",
        "killed: body read, not committed",
        "no run; the same key makes exactly one",
        &["r0_killed_before_the_commit_a_run_was_never_there_and_the_same_key_makes_one"],
    ),
    row(
        "R1",
        "killed: committed, answer not sent",
        "runs once; the same key gives the same id",
        &["r1_killed_after_the_commit_a_run_is_carried_out_once_and_the_same_key_finds_it"],
    ),
    row(
        "Q",
        "killed: queued",
        "starts in order; queue time is not charged",
        &["q_killed_with_fifty_waiting_they_start_in_order_and_waiting_is_not_charged"],
    ),
    row(
        "P",
        "killed: preparing",
        "prepared afresh, no visible trace",
        &[
            "p_killed_while_it_prepares_a_run_is_prepared_afresh",
            ANY_POINT,
        ],
    ),
    row(
        "C",
        "killed: create sent, answer unseen",
        "found by name, removed and made again",
        &[
            "c_killed_between_the_request_for_a_container_and_its_answer_there_is_one_in_the_end",
            ANY_POINT,
        ],
    ),
    row(
        "S",
        "killed: running",
        "adopted, or ended at its deadline",
        &[
            "s_killed_while_a_program_runs_it_is_attached_to_again_and_keeps_its_deadline",
            "s_killed_in_the_moment_of_the_start_a_run_is_started_once",
            ANY_POINT,
        ],
    ),
    row(
        "S'",
        "the program ended while the daemon was down",
        "its end is read, its artifacts collected",
        &[
            "s2_a_program_that_ends_while_the_daemon_is_down_keeps_its_result_and_its_files",
            ANY_POINT,
        ],
    ),
    row(
        "X",
        "killed: exited, not collected",
        "collection resumes",
        &[
            "x_killed_after_the_exit_the_artifacts_are_collected_by_the_next_daemon",
            ANY_POINT,
        ],
    ),
    row(
        "A",
        "killed: in the middle of collecting",
        "collected from scratch, never half a file",
        &[
            "a_killed_while_artifacts_arrive_they_are_collected_from_scratch",
            ANY_POINT,
        ],
    ),
    row(
        "T",
        "killed: artifacts renamed, no terminal row",
        "hashes recomputed, the row written",
        &[
            "t_killed_after_the_rename_the_end_is_recorded_with_the_same_files",
            ANY_POINT,
        ],
    ),
    row(
        "D",
        "killed: terminal row written, clean-up outstanding",
        "cleaned up, the result untouched",
        &["d_killed_after_the_end_was_recorded_only_the_clean_up_is_left_to_do"],
    ),
    row(
        "N",
        "killed: everything over",
        "nothing changes",
        &["n_killed_after_everything_is_over_nothing_changes"],
    ),
    row(
        "*",
        "killed at random instants",
        "none lost, none twice, none left, ends unchanged",
        &[
            "killed_at_random_instants_under_load_it_keeps_every_promise",
            ANY_POINT,
        ],
    ),
    row(
        "F1",
        "engine killed",
        "infrastructure; the watchdog ends the program",
        &[
            "f1_a_killed_engine_ends_a_run_as_infrastructure_and_the_program_at_its_deadline",
            "f1_an_engine_that_is_back_has_taken_the_program_along_which_is_not_blamed",
        ],
    ),
    row(
        "F2",
        "engine killed, live-restore",
        "the run completes with all its output",
        &["f2_with_live_restore_a_run_outlives_its_engine_and_keeps_all_its_output"],
    ),
    row(
        "F3",
        "the program ends while the engine is down",
        "its exit code, and output_incomplete unless whole",
        &["f3_a_program_that_ends_while_the_engine_is_down_keeps_its_end"],
    ),
    row(
        "F4",
        "engine stopped",
        "as F1",
        &["f4_an_engine_that_is_stopped_ends_a_run_as_infrastructure"],
    ),
    row(
        "F5",
        "shim killed",
        "infrastructure",
        &["f5_a_killed_shim_ends_a_run_as_infrastructure"],
    ),
    row(
        "F6",
        "socket missing",
        "the queue holds, /ready says so, heals",
        &[
            "f6_while_the_engine_is_away_the_queue_holds_and_ready_says_so",
            "f6_while_the_engine_is_away_runs_are_told_so_and_its_return_needs_no_restart",
        ],
    ),
    row(
        "F7",
        "engine frozen",
        "calls time out, the watchdog works, reconciled",
        &["f7_a_frozen_engine_delays_no_deadline_and_is_used_again_when_it_thaws"],
    ),
    row(
        "F8",
        "engine slow, garbled, 500",
        "bounded retries, no double start",
        &[
            "f8_one_bad_answer_to_any_call_costs_no_run",
            "f8_whatever_the_engine_answers_a_run_is_never_started_twice_and_never_blamed",
        ],
    ),
    row(
        "F9",
        "kill not effective",
        "the end could not be confirmed; slot quarantined",
        &[
            "f9_a_kill_that_is_not_confirmed_quarantines_its_slot_and_blocks_nobody",
            "f9_a_kill_whose_answer_is_lost_is_a_time_limit_like_any_other",
            "f9_a_cancelled_run_whose_end_is_not_confirmed_stays_cancelled_and_says_so",
        ],
    ),
    row(
        "F10",
        "container removed by somebody",
        "infrastructure",
        &["f10_a_container_that_somebody_removes_ends_its_run_as_infrastructure"],
    ),
    row(
        "F11",
        "image removed",
        "named, heals",
        &["f11_an_image_that_is_gone_is_named_and_is_used_again_when_it_is_back"],
    ),
    row(
        "F12",
        "engine disk full",
        "not charged to the run; heals",
        &["f12_a_full_disk_of_the_engine_is_not_charged_to_a_run_and_needs_no_restart"],
    ),
    row(
        "F13",
        "store full",
        "refused before zero; accepted ones finish",
        &[
            "f13_a_store_without_a_byte_left_keeps_what_was_acknowledged",
            "f13_a_nearly_full_store_refuses_new_runs_and_finishes_those_it_accepted",
        ],
    ),
    row(
        "F14",
        "artifact store full",
        "temp deleted, the result row written",
        &["f14_a_full_artifact_disk_leaves_nothing_half_done_and_the_result_is_recorded"],
    ),
    row(
        "F15",
        "store damaged, of another version, taken",
        "refused at the start, nothing touched",
        &[
            "f15_damage_in_the_middle_ends_with_a_code_of_its_own",
            "f15_damage_in_the_middle_is_told_as_such_with_the_remedy",
            "f15_a_damaged_store_is_noticed_at_the_start_and_left_as_it_is",
            "f15_a_torn_end_of_the_log_costs_what_was_not_acknowledged_and_nothing_else",
            "f15_a_store_of_a_newer_version_is_refused_and_left_as_it_is",
            "f15_a_second_daemon_on_the_same_directory_is_refused_and_the_first_notices_nothing",
        ],
    ),
    row(
        "F16",
        "wall clock jumps",
        "no deadline, no order, no retention is wrong",
        &[
            "f16_retention_never_deletes_a_fresh_run_when_the_clock_jumps",
            "f16_a_clock_that_jumps_changes_no_deadline_and_no_order",
            "f16_a_clock_that_jumps_between_two_daemons_leaves_a_program_its_time",
        ],
    ),
    row(
        "F17",
        "SIGTERM",
        "drained, then left to the next start",
        &["f17_a_daemon_that_is_asked_to_stop_leaves_what_runs_to_the_next_one"],
    ),
    row(
        "F18",
        "clients go away, or do not read",
        "runs unaffected, memory flat",
        &["f18_a_client_that_goes_away_loses_nothing_and_holds_nothing"],
    ),
    row(
        "F19",
        "the model's endpoint misbehaves",
        "bounded retries, llm_error, no key in a text",
        &[
            "f19_whatever_the_models_endpoint_answers_a_run_ends_with_a_reason_and_the_next_one_works",
            "f19_an_endpoint_that_hangs_takes_no_more_time_than_its_run_has",
            "f19_an_endpoint_that_is_not_there_or_not_who_it_should_be_is_told_nothing",
        ],
    ),
    row(
        "F21",
        "the daemon is out of descriptors",
        "bounded per connection; heals",
        &["f21_a_crowd_of_idle_connections_and_few_descriptors_cost_no_run"],
    ),
];

const fn row(
    id: &'static str,
    fault: &'static str,
    promise: &'static str,
    tests: &'static [&'static str],
) -> Row {
    Row {
        id,
        fault,
        promise,
        tests,
    }
}
