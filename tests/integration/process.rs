//! What others on the host get at of the daemon's own process: neither its memory nor its
//! environment, in which keys may be.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use rustix::process::geteuid;

/// An ordinary user, where the tests' own is not one.
const SOMEBODY: u32 = 65_000;

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
}
