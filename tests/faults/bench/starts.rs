//! How often each program was started, told on the wire between the daemon and the supervisors, which
//! no state of the daemon's can hide.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use fumehood_protocol::ToSupervisor;

use crate::support::proxy::{Fault, Listener, Proxy};

/// What a program is known by: it stands in its text.
const MARK: &str = "nonce-";

/// Starts, by the nonce of the program.
#[derive(Clone)]
pub(crate) struct Starts {
    seen: Arc<Mutex<Seen>>,
    listener: Arc<Listener>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Whose program was written into a container.
    written: HashMap<String, String>,
    started: HashMap<String, usize>,
}

impl Starts {
    /// Counts from now on what goes through the proxy.
    pub(crate) fn count(proxy: &Proxy) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let hearing = Arc::clone(&seen);
        let listener = Listener::new(move |head, message| {
            hearing.lock().unwrap().hear(container_in(head), message);
        });
        let starts = Self {
            seen,
            listener: Arc::new(listener),
        };
        starts.go_on(proxy);
        starts
    }

    /// Goes on counting after the proxy was told to forget everything.
    pub(super) fn go_on(&self, proxy: &Proxy) {
        let listen = Fault::Listen(Arc::clone(&self.listener));
        proxy.fault("POST", "/attach", listen);
    }

    /// How often the program with this nonce was started.
    pub(crate) fn of(&self, nonce: &str) -> usize {
        let seen = self.seen.lock().unwrap();
        seen.started.get(nonce).copied().unwrap_or_default()
    }
}

impl Seen {
    fn hear(&mut self, container: String, message: &ToSupervisor) {
        match message {
            ToSupervisor::Write(file) => {
                if let Some(nonce) = nonce_in(&file.bytes) {
                    self.written.insert(container, nonce);
                }
            }
            ToSupervisor::Start(_) => {
                if let Some(nonce) = self.written.get(&container).cloned() {
                    *self.started.entry(nonce).or_default() += 1;
                }
            }
            ToSupervisor::Preload(_)
            | ToSupervisor::Look
            | ToSupervisor::Ack(_)
            | ToSupervisor::Cancel
            | ToSupervisor::Collect(_)
            | ToSupervisor::CollectAnew(_)
            | ToSupervisor::Resume(_) => {}
        }
    }
}

/// A nonce that is in no other program.
pub(crate) fn nonce() -> String {
    format!("{MARK}{}", uuid::Uuid::new_v4().simple())
}

fn nonce_in(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let begin = text.find(MARK)?;
    text.get(begin..begin + MARK.len() + 32).map(str::to_owned)
}

/// `POST /v1.41/containers/<name>/attach?…`
fn container_in(head: &str) -> String {
    let (_, rest) = head.split_once("/containers/").unwrap();
    rest.split('/').next().unwrap().to_owned()
}

#[test]
fn a_nonce_is_found_in_a_program_and_a_container_in_a_call() {
    let nonce = nonce();
    let program = format!("print('{nonce}')");
    assert_eq!(nonce_in(program.as_bytes()), Some(nonce));
    assert_eq!(nonce_in(b"print('nonce-1')"), None);
    let head = "POST /v1.41/containers/fumehood-a-exec_b/attach?stream=1 HTTP/1.1\r\n";
    assert_eq!(container_in(head), "fumehood-a-exec_b");
}

/// What the soak's "0 started twice" stands on.
#[test]
fn a_program_that_is_started_twice_is_counted_twice_in_whichever_container() {
    use fumehood_protocol::ResumeToken;
    use fumehood_protocol::message::{OutputLimits, ProgramLimits, Start, WriteFile};

    let nonce = nonce();
    let write = ToSupervisor::Write(WriteFile {
        path: "script.py".to_owned(),
        bytes: format!("print('{nonce}')").into_bytes(),
    });
    let start = ToSupervisor::Start(Start {
        arguments: Vec::new(),
        environment: Vec::new(),
        limits: ProgramLimits {
            wall_milliseconds: 1,
            cpu_seconds: None,
            file_size_bytes: 1,
            open_files: 1,
        },
        output: OutputLimits {
            stdout_head_bytes: 1,
            stderr_head_bytes: 1,
            tail_bytes: 1,
        },
        resume_token: ResumeToken([1; ResumeToken::BYTES]),
        hold_milliseconds: 1,
    });
    let mut seen = Seen::default();
    for container in ["one", "another"] {
        seen.hear(container.to_owned(), &write);
        seen.hear(container.to_owned(), &start);
    }
    assert_eq!(seen.started.get(&nonce), Some(&2));
    // Written again and not started, as after a kill in between: that is no start.
    seen.hear("third".to_owned(), &write);
    assert_eq!(seen.started.get(&nonce), Some(&2));
}
