//! A sandbox around the binary and the daemon's side of the conversation.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use fumehood_protocol::message::*;
use fumehood_protocol::{Decoder, FromSupervisor, ResumeToken, ToSupervisor, encode};

pub(crate) const TOKEN: ResumeToken = ResumeToken(*b"\xc4\x10\xfeo0123456789ab");

/// The exit code of one in which nothing of a program has run.
pub(crate) const NEVER_STARTED: i32 = fumehood_protocol::NEVER_STARTED as i32;

/// How long anything may take before a test is lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// What makes an interpreter wait.
const PRELOAD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../images/preload");

/// The mounts, then the switch to the user that production has.
const PRELUDE: &str = r#"
set -e
mount -t tmpfs -o mode=0755 place /mnt
cp "$1" /mnt/supervisor
cp -r "$2" /mnt/preload
mkdir /mnt/work /mnt/data
echo rows > /mnt/data/table.csv
mount -t tmpfs -o size=64m,mode=0700,uid=50000,gid=50000,noexec,nosuid,nodev work /mnt/work
mount -t tmpfs -o size=16m,mode=1777 temporary /tmp
data=/mnt/data
mount --bind /mnt/data /mnt/data
mount -o remount,bind,ro /mnt/data
# Unlike the images', the host's interpreter may have a sitecustomize of its own in there.
for place in /etc/python3*; do mount -t tmpfs none "$place"; done
eval "$3"
shift 3
exec setpriv --reuid=50000 --regid=50000 --clear-groups --no-new-privs \
    --bounding-set=-all --inh-caps=-all -- \
    /mnt/supervisor --workspace /mnt/work --dataset "$data" --preload /mnt/preload "$@"
"#;

/// A running supervisor. Dropping it kills the whole sandbox.
pub(crate) struct Sandbox {
    child: Child,
    input: Option<ChildStdin>,
    chunks: Receiver<Vec<u8>>,
    /// Bytes read and not decoded, for tests that look at the stream itself.
    decoder: Decoder,
    pub(crate) last_sequence: u64,
    pub(crate) auto_ack: bool,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self::customized("", &[])
    }

    /// A sandbox for which this shell script is run before the supervisor gets these arguments:
    /// `/mnt` is there with all its places, `$data` is the data set's.
    pub(crate) fn customized(script: &str, arguments: &[&str]) -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        assert!(
            status.contains("\nUid:\t0\t0\t"),
            "these tests make namespaces: run them as root"
        );
        let mut child = Command::new("unshare")
            .args([
                "--mount",
                "--pid",
                "--fork",
                "--mount-proc",
                "--kill-child",
                "sh",
                "-c",
            ])
            .args([
                PRELUDE,
                "sandbox",
                env!("CARGO_BIN_EXE_fumehood-supervisor"),
                PRELOAD,
                script,
            ])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, chunks) = channel();
        let mut output = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 65536];
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        let input = child.stdin.take();
        Self {
            child,
            input,
            chunks,
            decoder: Decoder::default(),
            last_sequence: 0,
            auto_ack: true,
        }
    }

    /// A sandbox in which this shell script runs.
    pub(crate) fn running(script: &str) -> Self {
        Self::started(start(script))
    }

    pub(crate) fn started(start: Start) -> Self {
        let mut sandbox = Self::new();
        sandbox.ready();
        sandbox.send(&ToSupervisor::Start(start));
        assert!(matches!(sandbox.next(), FromSupervisor::Started(_)));
        sandbox
    }

    pub(crate) fn ready(&mut self) -> Ready {
        match self.next() {
            FromSupervisor::Ready(ready) => ready,
            other => panic!("expected Ready, got {other:?}"),
        }
    }

    pub(crate) fn send(&mut self, message: &ToSupervisor) {
        self.send_raw(&encode(0, message).unwrap());
    }

    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        // The supervisor may have left meanwhile; what it said before tells more than this error.
        let _ = self.input.as_mut().unwrap().write_all(bytes);
    }

    pub(crate) fn detach_input(&mut self) {
        self.input = None;
    }

    /// The next message; checks its number and acknowledges it.
    pub(crate) fn next(&mut self) -> FromSupervisor {
        self.next_within(PATIENCE)
            .expect("the supervisor said nothing in time")
    }

    pub(crate) fn next_within(&mut self, patience: Duration) -> Option<FromSupervisor> {
        let until = Instant::now() + patience;
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                assert_eq!(
                    frame.sequence,
                    self.last_sequence + 1,
                    "frames are numbered in order"
                );
                self.last_sequence = frame.sequence;
                if self.auto_ack {
                    self.send(&ToSupervisor::Ack(frame.sequence));
                }
                return Some(frame.message().unwrap());
            }
            match self.raw_within(until.saturating_duration_since(Instant::now())) {
                Some(bytes) => self.decoder.push(&bytes),
                None => return None,
            }
        }
    }

    /// The next bytes of the stream, whatever they are.
    pub(crate) fn raw_within(&mut self, patience: Duration) -> Option<Vec<u8>> {
        self.chunks.recv_timeout(patience).ok()
    }

    /// Starts decoding at these bytes.
    pub(crate) fn decode_from(&mut self, bytes: &[u8], last_sequence: u64) {
        self.decoder.reset();
        self.decoder.push(bytes);
        self.last_sequence = last_sequence;
    }

    /// Everything up to the end of the run.
    pub(crate) fn finish(&mut self) -> Finished {
        let mut finished = Finished {
            stdout: Vec::new(),
            stderr: Vec::new(),
            killed: false,
            exited: None,
        };
        loop {
            match self.next() {
                FromSupervisor::Output(output) => finished.take(output),
                FromSupervisor::Killed => {
                    assert!(!finished.killed, "said twice");
                    finished.killed = true;
                }
                FromSupervisor::Exited(exited) => {
                    assert!(finished.killed, "said before the end, whatever ended it");
                    finished.exited = Some(*exited);
                    return finished;
                }
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    pub(crate) fn collect(&mut self, limits: CollectLimits) -> Collected {
        self.send(&ToSupervisor::Collect(limits));
        self.collected()
    }

    pub(crate) fn collected(&mut self) -> Collected {
        let mut collected = Collected::default();
        let mut open: Option<(Entry, Vec<u8>)> = None;
        loop {
            match self.next() {
                FromSupervisor::Entry(entry) => {
                    assert!(
                        open.replace((entry, Vec::new())).is_none(),
                        "an entry within another"
                    );
                }
                FromSupervisor::Chunk(chunk) => {
                    assert!(chunk.bytes.len() <= fumehood_protocol::MAX_PAYLOAD_BYTES);
                    open.as_mut().unwrap().1.extend(chunk.bytes);
                }
                FromSupervisor::EntryEnd => {
                    let (entry, bytes) = open.take().unwrap();
                    assert_eq!(entry.size, bytes.len() as u64);
                    collected.entries.push((entry, bytes));
                }
                FromSupervisor::Skipped(skipped) => collected.skipped.push(skipped),
                FromSupervisor::Done(done) => {
                    collected.done = Some(done);
                    return collected;
                }
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    /// Waits for the end of the supervisor and gives its exit code.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            self.chunks.recv_timeout(Duration::from_millis(5)).ok();
        }
        panic!("the supervisor did not end");
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// What the supervisor has said to nobody in particular; call when it has ended.
    pub(crate) fn last_words(&mut self) -> String {
        let mut words = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_string(&mut words).unwrap();
        words
    }

    /// Process id of the supervisor, seen from outside.
    pub(crate) fn supervisor(&self) -> u32 {
        *children(self.child.id()).first().unwrap()
    }

    /// Process ids of the supervisor's children, seen from outside, without those that the kernel
    /// is taking apart: they run nothing any more.
    pub(crate) fn programs(&self) -> Vec<u32> {
        let mut children = children(self.supervisor());
        children.retain(|&pid| !is_exiting(pid));
        children
    }

    /// Peak resident memory of the supervisor, seen from outside.
    pub(crate) fn peak_resident_bytes(&self) -> u64 {
        let status = format!("/proc/{}/status", self.supervisor());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

/// Whether the flags in proc(5) have `PF_EXITING`.
fn is_exiting(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| {
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let flags: u64 = fields.split_whitespace().nth(6).unwrap().parse().unwrap();
        flags & 0x4 != 0
    })
}

fn children(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let children = std::fs::read_to_string(path).unwrap();
    let children = children.split_whitespace();
    children.map(|pid| pid.parse().unwrap()).collect()
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // The kernel ends the sandbox with its PID 1, which ends with its parent.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a run said.
pub(crate) struct Finished {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    /// Whether the supervisor said that it killed everything.
    killed: bool,
    exited: Option<Exited>,
}

impl Finished {
    fn take(&mut self, output: Output) {
        match output.stream {
            Stream::Stdout => self.stdout.extend(output.bytes),
            Stream::Stderr => self.stderr.extend(output.bytes),
        }
    }

    pub(crate) fn exited(&self) -> &Exited {
        self.exited.as_ref().unwrap()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }
}

/// What a walk said.
#[derive(Default)]
pub(crate) struct Collected {
    pub(crate) entries: Vec<(Entry, Vec<u8>)>,
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) done: Option<Done>,
}

impl Collected {
    pub(crate) fn paths(&self) -> Vec<&str> {
        self.entries
            .iter()
            .map(|(entry, _)| std::str::from_utf8(&entry.path).unwrap())
            .collect()
    }

    pub(crate) fn content(&self, path: &str) -> &[u8] {
        let found = self
            .entries
            .iter()
            .find(|(entry, _)| entry.path == path.as_bytes());
        &found
            .unwrap_or_else(|| panic!("{path} was not collected"))
            .1
    }

    pub(crate) fn reason(&self, path: &str) -> Option<SkipReason> {
        self.skipped
            .iter()
            .find(|skipped| skipped.path == path.as_bytes())
            .map(|s| s.reason)
    }
}

/// A generous request to run a shell script.
pub(crate) fn start(script: &str) -> Start {
    Start {
        arguments: ["sh", "-c", script].map(String::from).to_vec(),
        environment: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        limits: ProgramLimits {
            wall_milliseconds: 15_000,
            cpu_seconds: None,
            file_size_bytes: 1 << 40,
            open_files: 256,
        },
        output: OutputLimits {
            stdout_head_bytes: 100_000,
            stderr_head_bytes: 100_000,
            tail_bytes: 8192,
        },
        resume_token: TOKEN,
        hold_milliseconds: 15_000,
    }
}

pub(crate) fn limits() -> CollectLimits {
    CollectLimits {
        total_bytes: 1 << 30,
        files: 1000,
        entries: 10_000,
        depth: 32,
        path_bytes: 4096,
        ignore: Vec::new(),
    }
}
