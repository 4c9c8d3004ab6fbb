//! Requests for Python programs, plain and by an interpreter that waits.

use fumehood_protocol::message::*;
use fumehood_protocol::{FromSupervisor, ToSupervisor};

use crate::harness::{Sandbox, start};

/// Modules of the standard library that load many others.
pub(crate) const MODULES: [&str; 25] = [
    "json",
    "ctypes",
    "decimal",
    "sqlite3",
    "multiprocessing",
    "multiprocessing.pool",
    "multiprocessing.forkserver",
    "concurrent.futures.process",
    "asyncio",
    "logging.config",
    "unittest.mock",
    "doctest",
    "inspect",
    "pickle",
    "random",
    "statistics",
    "csv",
    "http.client",
    "email.mime.text",
    "xml.etree.ElementTree",
    "runpy",
    "resource",
    "signal",
    "warnings",
    "no_such_module",
];

/// The environment of a program in production, as far as it matters here.
pub(crate) fn environment() -> Vec<(String, String)> {
    let variables = [
        ("HOME", "/mnt/work/.home"),
        ("LANG", "C.UTF-8"),
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("PYTHONUNBUFFERED", "1"),
        ("XDG_CACHE_HOME", "/mnt/work/.cache"),
    ];
    variables
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

/// A generous request to run `script.py`.
pub(crate) fn start_script() -> Start {
    Start {
        arguments: ["python3", "script.py"].map(String::from).into(),
        environment: environment(),
        ..start("")
    }
}

/// What has to come before `start` for an interpreter to wait for it.
pub(crate) fn preload(start: &Start, modules: &[&str]) -> Preload {
    Preload {
        arguments: start.arguments.clone(),
        environment: start.environment.clone(),
        limits: start.limits.files(),
        modules: modules.iter().map(ToString::to_string).collect(),
    }
}

/// Puts these modules where the host's interpreter finds libraries.
pub(crate) fn with_modules(modules: &[(&str, &str)], arguments: &[&str]) -> Sandbox {
    // The host's control group counts the other tests, too.
    let mut script = "mount -t tmpfs none /sys/fs/cgroup\n\
        mount -t tmpfs none /usr/lib/python3/dist-packages; cd /usr/lib/python3/dist-packages\n"
        .to_owned();
    for (name, text) in modules {
        script.push_str(&format!("cat > {name}.py <<'END'\n{text}\nEND\n"));
    }
    let mut sandbox = Sandbox::customized(&script, arguments);
    sandbox.ready();
    sandbox
}

/// Whether an interpreter waits with everything loaded.
pub(crate) fn is_waiting(preloaded: &Preloaded) -> bool {
    preloaded.waiting && preloaded.problems.is_empty()
}

impl Sandbox {
    /// Asks for an interpreter and gives the answer.
    pub(crate) fn preload(&mut self, request: Preload) -> Preloaded {
        self.send(&ToSupervisor::Preload(request));
        match self.next() {
            FromSupervisor::Preloaded(preloaded) => preloaded,
            other => panic!("expected Preloaded, got {other:?}"),
        }
    }

    /// A sandbox in which an interpreter waits for `start`.
    pub(crate) fn waiting(start: &Start, modules: &[&str]) -> Self {
        let mut sandbox = Self::new();
        sandbox.ready();
        let preloaded = sandbox.preload(preload(start, modules));
        assert!(preloaded.waiting, "{preloaded:?}");
        sandbox
    }

    pub(crate) fn write(&mut self, path: &str, bytes: &[u8]) {
        self.send(&ToSupervisor::Write(WriteFile {
            path: path.to_owned(),
            bytes: bytes.to_vec(),
        }));
    }

    /// Writes the script and starts it.
    pub(crate) fn run(&mut self, start: Start, script: &str) {
        self.write("script.py", script.as_bytes());
        self.send(&ToSupervisor::Start(start));
        match self.next() {
            FromSupervisor::Started(_) => {}
            other => panic!("expected Started, got {other:?}"),
        }
    }

    /// The reason why nothing was started.
    pub(crate) fn failure(&mut self) -> Failed {
        match self.next() {
            FromSupervisor::Failed(failed) => failed,
            other => panic!("expected Failed, got {other:?}"),
        }
    }
}
