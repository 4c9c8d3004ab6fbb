//! Negative controls of what the supervisor does: it is told something else on its way, or says
//! something else, and the doctor names the rows that this belongs to.

use std::time::Duration;

use fumehood_protocol::message::{Entry, SkipReason};
use fumehood_protocol::{FromSupervisor, ToSupervisor};
use futures_util::{StreamExt as _, stream};
use serde_json::Value;

use super::attempted;
use super::negative::{AT_ONCE, mistake, ulimit};
use crate::command_line::Bench;
use crate::support::proxy::{Fault, Proxy, Retelling};

pub(super) struct Case {
    name: &'static str,
    /// The rows that have to fail.
    pub(super) breaks: &'static [&'static str],
    retelling: fn() -> Retelling,
    /// What has to be taken away at the engine, too.
    change: fn(&mut Value),
}

fn nothing(_: &mut Value) {}

/// The most that comes out of a sandbox, without a bound.
const UNBOUNDED: u64 = 64 << 20;

fn start(change: fn(&mut fumehood_protocol::message::Start)) -> Retelling {
    Retelling::to(move |message| {
        if let ToSupervisor::Start(start) = message {
            change(start);
        }
    })
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "the deadline",
        breaks: &["42"],
        retelling: || {
            let later = Duration::from_secs(3).as_millis();
            let later = u64::try_from(later).unwrap();
            Retelling::to(move |message| {
                if let ToSupervisor::Start(start) = message {
                    start.limits.wall_milliseconds += later;
                }
            })
        },
        change: nothing,
    },
    Case {
        // Three walls: the engine sets these, the supervisor sets them again.
        name: "limits on files",
        breaks: &["40"],
        retelling: || {
            start(|start| {
                start.limits.open_files = 8192;
                start.limits.file_size_bytes = 2 << 40;
            })
        },
        change: |body| {
            ulimit(body, "nofile", 8192);
            ulimit(body, "fsize", 2 << 40);
        },
    },
    Case {
        name: "the cap on output",
        breaks: &["44"],
        retelling: || start(|start| start.output.stdout_head_bytes = UNBOUNDED),
        change: nothing,
    },
    Case {
        name: "the list of variables",
        breaks: &["53"],
        retelling: || {
            start(|start| {
                let secret = ("SECRET".to_owned(), "1".to_owned());
                start.environment.push(secret);
            })
        },
        change: nothing,
    },
    Case {
        // A descriptor is left open; in the program's place, since no engine does it (any more).
        name: "nothing inherited",
        breaks: &["55"],
        retelling: || {
            start(|start| {
                let leak = "import os\nos.dup2(os.open('/etc/passwd', os.O_RDONLY), 7)\n\
                    os.execvp('python3', ['python3', 'script.py'])";
                start.arguments = ["python3", "-c", leak].map(str::to_owned).into();
            })
        },
        change: nothing,
    },
    Case {
        name: "the cap on results",
        breaks: &["58"],
        retelling: || {
            Retelling::to(|message| {
                if let ToSupervisor::Collect(limits) = message {
                    limits.total_bytes = UNBOUNDED;
                }
            })
        },
        change: nothing,
    },
    Case {
        name: "ending everybody",
        breaks: &["42", "56"],
        retelling: || {
            Retelling::from(|message| {
                if let FromSupervisor::Exited(exited) = message {
                    exited.survivors = 1;
                }
            })
        },
        change: nothing,
    },
    Case {
        name: "leaving out links",
        breaks: &["57"],
        retelling: || {
            Retelling::from(|message| {
                if let FromSupervisor::Skipped(skipped) = message
                    && skipped.reason == SkipReason::SymbolicLink
                {
                    *message = FromSupervisor::Entry(Entry {
                        path: skipped.path.clone(),
                        is_directory: false,
                        size: 0,
                        executable: false,
                        modified_seconds: 0,
                        modified_nanoseconds: 0,
                    });
                }
            })
        },
        change: nothing,
    },
    Case {
        name: "its own look",
        breaks: &["look"],
        retelling: || {
            Retelling::from(|message| {
                if let FromSupervisor::Ready(ready) = message {
                    ready.seccomp = Some(0);
                }
            })
        },
        change: nothing,
    },
];

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_that_does_its_work_badly_is_noticed() {
    let bench = Bench::new();
    let wrong = stream::iter(CASES).map(async |case| {
        let proxy = Proxy::start();
        proxy.weaken(case.change);
        proxy.fault("POST", "/attach", Fault::Retell((case.retelling)()));
        let seen = attempted(&bench, "runc", Some(&proxy.socket())).await;
        mistake(seen, case.name, case.breaks, &[])
    });
    let wrong: Vec<Option<String>> = wrong.buffer_unordered(AT_ONCE).collect().await;
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
