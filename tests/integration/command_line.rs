//! The program as people call it: `fumehood run`, `config`, `image list`, `serve`.

mod configuration;

mod running;

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::support::engine::{block_on, containers_of};

/// A directory to call the program in. Dropping it checks that no call left anything.
#[derive(Debug)]
pub(crate) struct Bench {
    directory: TempDir,
}

/// What a call came to.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Called {
    fn from(output: Output) -> Self {
        assert_eq!(output.status.signal(), None, "{output:?}");
        Self {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Bench {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { directory }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A call with these arguments, with nothing of the tests' environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        command_in(self.path(), arguments)
    }

    pub(crate) fn call(&self, arguments: &[&str]) -> Called {
        self.command(arguments).output().unwrap().into()
    }

    /// Names in the directory of artifacts.
    pub(crate) fn artifacts(&self) -> Vec<String> {
        let models = self.path().join("outputs/models");
        let entries = std::fs::read_dir(models).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for name in self.artifacts() {
            assert!(name.starts_with("exec_"), "{name} is half-done");
        }
        let identity = self.path().join(".fumehood/cli-instance");
        if let Ok(instance) = std::fs::read_to_string(identity) {
            let left = block_on(async move { containers_of(&instance).await });
            assert_eq!(left, Vec::<String>::new(), "containers are left");
        }
    }
}

pub(crate) fn command_in(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fumehood"));
    command
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}
