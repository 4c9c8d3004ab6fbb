//! What others on the host get at of the daemon's own process: neither its memory nor its
//! environment, in which keys may be.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use rustix::process::geteuid;

/// An ordinary user, where the tests' own is not one.
const SOMEBODY: u32 = 65_000;

/// Given to every process in a variable.
const MODEL_KEY: &str = "CANARY_llm_key_0f1e2d3c4b5a69788796a5b4c3d2e1f0";

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// To whom the kernel gives the files about a process that hold its memory and environment: root, if
/// the process is not dumpable, and else whoever it runs as.
fn owner(process: &Process) -> u32 {
    let path = format!("/proc/{}/environ", process.0.id());
    std::fs::metadata(path).unwrap().uid()
}

#[test]
fn no_other_process_of_the_same_user_gets_at_the_daemons_memory_and_environment() {
    let user = match geteuid().as_raw() {
        0 => SOMEBODY,
        own => own,
    };
    let directory = tempfile::tempdir().unwrap();
    chown(directory.path(), Some(user), None).unwrap();
    let start = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(directory.path());
        command.env_clear().env("PATH", "/usr/bin:/bin").uid(user);
        command.env("OPENAI_API_KEY", MODEL_KEY);
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        command.spawn().map(Process)
    };
    let ordinary = start("sleep", &["60"]).unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    let Ok(mut daemon) = start(env!("CARGO_BIN_EXE_fumehood"), &serve) else {
        eprintln!("SKIPPED: other users cannot run what is built here");
        return;
    };
    let mut log = BufReader::new(daemon.0.stderr.take().unwrap()).lines();
    let listens = |line: std::io::Result<String>| line.unwrap().contains("listens on");
    assert!(log.any(listens), "it does not start");
    assert_eq!(
        owner(&ordinary),
        user,
        "files about other processes are its user's"
    );
    assert_eq!(owner(&daemon), 0);
    if geteuid().is_root() {
        let key = std::fs::read_to_string(directory.path().join(".fumehood/receipt-key")).unwrap();
        let digits = key.trim_end().rsplit(' ').next().unwrap();
        // Nor has root anything of the model's key to see there, which others are started with, too.
        let environment = |process: &Process| {
            let path = format!("/proc/{}/environ", process.0.id());
            String::from_utf8(std::fs::read(path).unwrap()).unwrap()
        };
        assert!(environment(&ordinary).contains(MODEL_KEY));
        assert!(!environment(&daemon).contains("OPENAI"));
        // It signs with the key, and has wiped the text that it read it from.
        assert!(remembers(&daemon, &hex::decode(digits).unwrap()));
        assert!(!remembers(&daemon, digits.as_bytes()));
    } else {
        eprintln!("SKIPPED: looking into its memory needs root");
    }
}

/// Whether these bytes are in the memory that a process has written to.
fn remembers(process: &Process, what: &[u8]) -> bool {
    let about = |name: &str| format!("/proc/{}/{name}", process.0.id());
    let maps = std::fs::read_to_string(about("maps")).unwrap();
    let memory = File::open(about("mem")).unwrap();
    let written = maps.lines().filter(|line| line.contains(" rw"));
    let holds = |line: &str| -> Option<bool> {
        let (begin, end) = line.split(' ').next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (begin, end) = (number(begin)?, number(end)?);
        // Piece by piece: what was only reserved reads as zeros.
        let overlap = what.len() as u64 - 1;
        let mut piece = vec![0; (1 << 20) + what.len() - 1];
        let mut at = begin;
        while at < end {
            let length = piece.len().min(usize::try_from(end - at).ok()?);
            let read = memory.read_at(&mut piece[..length], at).ok()?;
            if piece[..read].windows(what.len()).any(|part| part == what) {
                return Some(true);
            }
            at += (read as u64)
                .checked_sub(overlap)
                .filter(|step| *step > 0)?;
        }
        Some(false)
    };
    written.into_iter().any(|line| holds(line) == Some(true))
}
