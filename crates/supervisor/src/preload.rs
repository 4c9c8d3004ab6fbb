//! Owns the interpreter that waits for its program: it is started as the program would be, with
//! our `sitecustomize.py` in front of its library, imports modules, and goes on when it is told
//! to. What the two say to each other is written down in that file.

use std::ffi::{CStr, CString};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use fumehood_protocol::message::{Failed, Preload, Start};
use fumehood_protocol::preload::{MAX_MODULES, MAX_NAME_BYTES};

use crate::error::Fatal;
use crate::program::{self, Command, Program, failed};
use crate::reap::Children;
use crate::settings::Settings;
use crate::sys::process::{self, ResourceLimit, WaitStatus};
use crate::sys::{self, files};
use crate::workspace::Workspace;

/// The variable that leads the interpreter to our file.
const VARIABLE: &str = "PYTHONPATH";

/// The file that makes an interpreter wait.
const FILE: &str = "sitecustomize.py";

/// More than an interpreter has to say about [`MAX_MODULES`].
const MAX_SAID_BYTES: usize = 256 << 10;

/// How long an interpreter may live on that has closed its link.
const END_BOUND: Duration = Duration::from_secs(1);

/// From the word to go to the answer.
const GO_BOUND: Duration = Duration::from_secs(10);

/// An interpreter on its way to its program.
#[derive(Debug)]
pub(crate) struct Interpreter {
    program: Program,
    link: UnixStream,
    request: Preload,
    /// When it must be ready; `None` once it is.
    until: Option<Instant>,
    /// When it must have ended; set when its end of the link is closed.
    must_end: Option<Instant>,
    /// The beginning of a line.
    heard: Vec<u8>,
    heard_bytes: usize,
    is_ours: bool,
    /// Modules that could not be imported.
    missing: usize,
    problems: Vec<String>,
}

/// Where an interpreter is.
#[derive(Debug)]
pub(crate) enum Progress {
    /// Where it was.
    Same,
    /// It waits, from now on.
    Ready,
    /// It cannot be used: it has ended, or has to be.
    Lost(String),
}

impl Interpreter {
    /// Starts an interpreter; says in words why there is none, and then nothing has run.
    pub(crate) fn start(
        request: Preload,
        settings: &Settings,
        workspace: &Workspace,
        now: Instant,
    ) -> Result<Self, String> {
        check(&request)?;
        let place = place(&settings.preload)?;
        let step = |name: &'static str| move |error: io::Error| format!("{name}: {error}");
        workspace.prepare().map_err(step("prepare the workspace"))?;
        let (link, theirs) = UnixStream::pair().map_err(step("socketpair"))?;
        link.set_nonblocking(true).map_err(step("fcntl"))?;
        // All of it fits into the socket, whoever reads it when.
        let names: String = request
            .modules
            .iter()
            .flat_map(|name| [name, "\n"])
            .collect();
        (&link)
            .write_all(format!("{names}\n").as_bytes())
            .map_err(step("telling the modules"))?;
        // Last, because only there can it be wiped out of the process's memory.
        let mut environment = request.environment.clone();
        environment.push((VARIABLE.to_owned(), place));
        let command = Command {
            arguments: &request.arguments,
            environment: &environment,
            limits: program::file_limits(request.limits),
            link: Some(OwnedFd::from(theirs)),
        };
        let program = program::start(&command, workspace.as_fd())
            .map_err(|failure| format!("{}: {}", failure.step, failure.message))?;
        Ok(Self {
            program,
            link,
            request,
            until: now.checked_add(settings.importing),
            must_end: None,
            heard: Vec::new(),
            heard_bytes: 0,
            is_ours: false,
            missing: 0,
            problems: Vec::new(),
        })
    }

    /// Readable when it has said something, or has ended.
    pub(crate) fn link(&self) -> Option<BorrowedFd<'_>> {
        self.must_end.is_none().then_some(self.link.as_fd())
    }

    /// When to take a turn although nothing has happened.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        [self.until, self.must_end].into_iter().flatten().min()
    }

    /// Whether our file was reached: it runs no program before it is told to.
    pub(crate) fn is_ours(&self) -> bool {
        self.is_ours
    }

    /// How many modules it has imported.
    pub(crate) fn imported(&self) -> usize {
        self.request.modules.len().saturating_sub(self.missing)
    }

    /// What could not be imported or used, and why.
    pub(crate) fn take_problems(&mut self) -> Vec<String> {
        std::mem::take(&mut self.problems)
    }

    /// Hears what it has said, and looks whether it lives and is in time.
    pub(crate) fn turn(
        &mut self,
        children: &mut Children,
        now: Instant,
    ) -> Result<Progress, Fatal> {
        // In this order: everything that it said before its end can then be heard.
        let ended = children
            .reap(self.program.pid)
            .map_err(Fatal::io("waitpid"))?;
        let was_ready = self.until.is_none();
        let sense = self.listen(now);
        let over = |until: Option<Instant>| until.is_some_and(|until| now >= until);
        let lost = |reason: &str| Ok(Progress::Lost(reason.to_owned()));
        if let Some(status) = ended {
            return Ok(Progress::Lost(self.last_words(status)));
        }
        match sense {
            Err(reason) => Ok(Progress::Lost(reason)),
            Ok(()) if over(self.must_end) => lost("the interpreter has closed its link"),
            Ok(()) if over(self.until) => lost("the interpreter was not ready in time"),
            // How it ended tells more.
            Ok(()) if self.must_end.is_some() => Ok(Progress::Same),
            Ok(()) if !was_ready && self.until.is_none() => Ok(Progress::Ready),
            Ok(()) => Ok(Progress::Same),
        }
    }

    /// Ends it and everything that it has started.
    pub(crate) fn end(self, children: &mut Children) -> Result<(), Fatal> {
        let (_, survivors) = children
            .end_all(self.program.pid)
            .map_err(Fatal::io("waitpid"))?;
        if survivors > 0 {
            return Err(Fatal::Interpreter("it cannot be ended".to_owned()));
        }
        Ok(())
    }

    /// CPU time that it has used so far.
    pub(crate) fn cpu_time(&self) -> Result<Duration, Failed> {
        process::cpu_time(self.program.pid).map_err(failed("clock_gettime"))
    }

    /// Lets it run the program, which it was started for; `used` is its CPU time so far.
    pub(crate) fn go(
        self,
        start: &Start,
        used: Duration,
        children: &mut Children,
    ) -> Result<Program, Failed> {
        self.check(start).map_err(|message| Failed {
            step: "start".to_owned(),
            errno: libc::EINVAL,
            message: message.to_owned(),
        })?;
        let pid = self.program.pid;
        if let Some(status) = children.reap(pid).map_err(failed("waitpid"))? {
            return Err(Failed {
                step: "start".to_owned(),
                errno: libc::ESRCH,
                message: self.last_words(status),
            });
        }
        let mut limits = Vec::new();
        if start.limits.files() != self.request.limits {
            limits = program::file_limits(start.limits.files());
        }
        // The kernel counts from the start of the process. A part of a second goes to the program.
        let spent = used.as_secs() + u64::from(used.subsec_nanos() > 0);
        let seconds = start.limits.cpu_seconds;
        let seconds = seconds.map(|seconds| seconds.saturating_add(spent));
        limits.extend(seconds.map(program::cpu_limit));
        let started = Instant::now();
        if let Err(error) = self.send_off(&limits) {
            process::kill_child(pid);
            return Err(failed("start")(error));
        }
        Ok(Program {
            started,
            ..self.program
        })
    }

    /// Says the word, and waits within a bound of its own until the limits are in force: the
    /// interpreter sets them itself, since no process of the sandbox may set those of another.
    fn send_off(&self, limits: &[ResourceLimit]) -> io::Result<()> {
        let mut word = "go".to_owned();
        for limit in limits {
            // What Python takes for a limit ends here.
            let [soft, hard] = [limit.soft, limit.hard].map(|value| value.min(i64::MAX as u64));
            word.push_str(&format!(" {} {soft} {hard}", limit.resource));
        }
        word.push('\n');
        (&self.link).write_all(word.as_bytes())?;
        let mut set = [sys::interest(Some(self.link.as_fd()), libc::POLLIN)];
        sys::poll(&mut set, Some(GO_BOUND))?;
        let mut answer = [0; 16];
        match (&self.link).read(&mut answer)? {
            count if &answer[..count] == b"gone\n" => Ok(()),
            _ => Err(io::Error::other("the interpreter does not go")),
        }
    }

    /// Whether it is what a plain start of this would have become.
    fn check(&self, start: &Start) -> Result<(), &'static str> {
        let (wanted, given) = (start.limits.files(), self.request.limits);
        if start.arguments != self.request.arguments {
            Err("the waiting interpreter has other arguments")
        } else if start.environment != self.request.environment {
            Err("the waiting interpreter has another environment")
        } else if wanted.file_size_bytes > given.file_size_bytes
            || wanted.open_files > given.open_files
        {
            Err("the waiting interpreter has lower limits")
        } else {
            Ok(())
        }
    }

    /// Reads what there is; in words why it is no use to go on.
    fn listen(&mut self, now: Instant) -> Result<(), String> {
        let mut buffer = [0; 4096];
        while self.must_end.is_none() {
            match self.link.read(&mut buffer) {
                Ok(0) => self.must_end = now.checked_add(END_BOUND),
                Ok(count) => {
                    self.heard.extend_from_slice(&buffer[..count]);
                    self.heard_bytes += count;
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => continue,
                    io::ErrorKind::WouldBlock => return Ok(()),
                    // It has left something unread.
                    io::ErrorKind::ConnectionReset => self.must_end = now.checked_add(END_BOUND),
                    _ => return Err(format!("the interpreter's link: {error}")),
                },
            }
            while let Some(end) = self.heard.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=end).collect();
                self.understand(String::from_utf8_lossy(&line).trim_end())?;
            }
            if self.heard_bytes > MAX_SAID_BYTES {
                return Err("the interpreter says too much".to_owned());
            }
        }
        Ok(())
    }

    fn understand(&mut self, line: &str) -> Result<(), String> {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("here", "") => self.is_ours = true,
            ("ready", "") => self.until = None,
            ("problem", problem) if self.missing < MAX_MODULES => {
                self.missing += 1;
                self.problems.push(shortened(problem));
            }
            // Once, after the imports.
            ("warm-up:", _) if self.problems.len() == self.missing => {
                self.problems.push(shortened(line));
            }
            _ => return Err(format!("the interpreter said {:?}", shortened(line))),
        }
        Ok(())
    }

    /// How it ended, and what it told of that where nobody else will read it.
    fn last_words(&self, status: WaitStatus) -> String {
        let how = match status {
            WaitStatus::Code(code) => format!("the interpreter ended with code {code}"),
            WaitStatus::Signal(signal) => format!("the interpreter ended by signal {signal}"),
        };
        let mut words = [0; 4096];
        let count = (&self.program.stderr).read(&mut words).unwrap_or(0);
        let words = String::from_utf8_lossy(&words[..count]);
        match words.lines().rfind(|line| !line.trim().is_empty()) {
            Some(line) => format!("{how}: {}", shortened(line)),
            None => how,
        }
    }
}

/// Whether this can become an interpreter that waits.
fn check(request: &Preload) -> Result<(), String> {
    // An option such as `-S` or `-I` would keep it from our file, and let it run the script.
    let script = request.arguments.get(1);
    if script.is_none_or(|script| script.is_empty() || script.starts_with('-')) {
        return Err("only an interpreter with a script and without options can wait".to_owned());
    }
    if request.environment.iter().any(|(name, _)| name == VARIABLE) {
        return Err(format!("{VARIABLE} is set, which leads to the modules"));
    }
    if request.modules.len() > MAX_MODULES {
        return Err(format!("more than {MAX_MODULES} modules"));
    }
    match request.modules.iter().find(|name| !is_dotted_name(name)) {
        Some(name) => Err(format!("no name of a module: {:?}", shortened(name))),
        None => Ok(()),
    }
}

fn is_dotted_name(name: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    name.len() <= MAX_NAME_BYTES && name.split('.').all(is_part)
}

/// The directory of our file, if the file is there.
fn place(directory: &CStr) -> Result<String, String> {
    let text = directory
        .to_str()
        .map_err(|_| "the place of the preload directory is no text".to_owned())?;
    let path = format!("{text}/{FILE}");
    let missing = |error: io::Error| format!("{path}: {error}");
    let file = CString::new(path.as_str()).map_err(|error| missing(error.into()))?;
    files::status_at(files::working_directory(), &file).map_err(missing)?;
    Ok(text.to_owned())
}

/// The beginning of a text that is told on.
fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_NAME_BYTES)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fumehood_protocol::message::FileLimits;

    fn request(arguments: &[&str], modules: &[&str]) -> Preload {
        let owned = |strings: &[&str]| strings.iter().map(ToString::to_string).collect();
        Preload {
            arguments: owned(arguments),
            environment: Vec::new(),
            limits: FileLimits {
                file_size_bytes: 1,
                open_files: 1,
            },
            modules: owned(modules),
        }
    }

    #[test]
    fn only_a_script_without_options_of_the_interpreter_can_be_waited_for() {
        assert_eq!(
            check(&request(&["python3", "script.py", "-S"], &[])),
            Ok(())
        );
        for arguments in [
            &["python3", "-S", "script.py"][..],
            &["python3"],
            &[],
            &["python3", ""],
        ] {
            assert!(check(&request(arguments, &[])).is_err(), "{arguments:?}");
        }
        let mut taken = request(&["python3", "script.py"], &[]);
        taken.environment = vec![("PYTHONPATH".to_owned(), "/x".to_owned())];
        assert!(check(&taken).is_err());
    }

    #[test]
    fn modules_are_dotted_names_and_not_too_many() {
        let check = |modules: &[&str]| check(&request(&["python3", "script.py"], modules));
        assert_eq!(check(&["json", "os.path", "_a1.b2"]), Ok(()));
        for name in ["", ".", "a.", "a b", "a\nb", "é", &"x".repeat(201)] {
            assert!(check(&[name]).is_err(), "{name:?}");
        }
        assert!(check(&["a"; MAX_MODULES]).is_ok());
        assert!(check(&["a"; MAX_MODULES + 1]).is_err());
    }

    #[test]
    fn the_longest_list_of_modules_fits_into_the_link() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let names = vec![b'x'; MAX_MODULES * (MAX_NAME_BYTES + 1) + 1];
        (&ours).write_all(&names).unwrap();
    }
}
