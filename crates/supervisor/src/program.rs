//! Owns the start of the program: everything between fork and exec, and how an error in there
//! gets out. Afterwards the program is only a process id and two pipes.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use fumehood_protocol::message::{Failed, FileLimits};

use crate::guard::Guard;
use crate::sys::{self, files, process};
use sys::process::{Fork, ResourceLimit, StringArray};

/// Size asked for of each output pipe: fewer switches between the program and us.
const PIPE_BYTES: libc::c_int = 1 << 20;

/// The number under which a program finds its end of a [`Command::link`].
const LINK: libc::c_int = 3;

/// What to start.
#[derive(Debug)]
pub(crate) struct Command<'a> {
    pub(crate) arguments: &'a [String],
    pub(crate) environment: &'a [(String, String)],
    pub(crate) limits: Vec<ResourceLimit>,
    /// Inherited as [`LINK`]; without one the program has its three streams only.
    pub(crate) link: Option<OwnedFd>,
}

/// A started program.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) pid: libc::pid_t,
    pub(crate) stdout: File,
    pub(crate) stderr: File,
    pub(crate) started: Instant,
}

/// The steps in the child, in their order.
#[derive(Debug, Clone, Copy)]
enum Step {
    Session,
    Streams,
    Directory,
    Link,
    Signals,
    Limits,
    Guard,
    Execute,
}

/// From fork to exec, which needs no more than the program's file in memory.
const EXECUTE_BOUND: Duration = Duration::from_secs(10);

/// How much the program yields to its supervisor.
const PROGRAM_NICE: libc::c_int = 19;

impl Step {
    const ALL: [Self; 8] = [
        Self::Session,
        Self::Streams,
        Self::Directory,
        Self::Link,
        Self::Signals,
        Self::Limits,
        Self::Guard,
        Self::Execute,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Session => "setsid",
            Self::Streams => "dup2",
            Self::Directory => "chdir",
            Self::Link => "dup2 of the link",
            Self::Signals => "sigprocmask",
            Self::Limits => "setrlimit",
            Self::Guard => "seccomp",
            Self::Execute => "execve",
        }
    }
}

/// Starts the program in `directory`.
pub(crate) fn start(command: &Command<'_>, directory: BorrowedFd<'_>) -> Result<Program, Failed> {
    let image = Image::new(command)?;
    let guard = Guard::if_needed().map_err(failed(Step::Guard.name()))?;
    let here = files::working_directory();
    let null =
        files::open_at(here, c"/dev/null", libc::O_RDONLY, 0).map_err(failed("/dev/null"))?;
    let (stdout, child_stdout) = output_pipe().map_err(failed("pipe"))?;
    let (stderr, child_stderr) = output_pipe().map_err(failed("pipe"))?;
    let (report, child_report) = report_pipe().map_err(failed("pipe"))?;
    let link = command.link.as_ref();
    let link = link.map(|link| sys::duplicate_from(link.as_fd(), LINK + 1));
    let link = link.transpose().map_err(failed("fcntl"))?;

    let started = Instant::now();
    let child = Child {
        null,
        stdout: child_stdout,
        stderr: child_stderr,
        directory,
        link,
        limits: &command.limits,
        guard: guard.as_ref(),
        image: &image,
    };
    let pid = match process::fork().map_err(failed("fork"))? {
        Fork::Child => child.become_program(child_report),
        Fork::Parent(pid) => pid,
    };
    // Our copies of the child's ends, or the pipes would never end.
    drop((child, child_report));
    match read_report(report) {
        Ok(()) => Ok(Program {
            pid,
            stdout,
            stderr,
            started,
        }),
        Err(failure) => {
            process::kill_child(pid);
            Err(failure)
        }
    }
}

/// What `execve` needs, prepared before the fork.
struct Image {
    /// Paths to try, in this order.
    candidates: Vec<CString>,
    arguments: StringArray,
    environment: StringArray,
}

impl Image {
    fn new(command: &Command<'_>) -> Result<Self, Failed> {
        let invalid = |what: &str| Failed {
            step: "start".to_owned(),
            errno: libc::EINVAL,
            message: what.to_owned(),
        };
        let program = command
            .arguments
            .first()
            .filter(|program| !program.is_empty())
            .ok_or_else(|| invalid("no program is named"))?;
        let paths = command.environment.iter().find(|(name, _)| name == "PATH");
        let candidates = candidates(program, paths.map_or("", |(_, value)| value));
        let environment = command.environment.iter().map(|(name, value)| {
            if name.is_empty() || name.contains('=') {
                None
            } else {
                Some(format!("{name}={value}"))
            }
        });
        let environment: Option<Vec<_>> = environment.collect();
        let environment =
            environment.ok_or_else(|| invalid("a variable's name is empty or has an ="))?;
        let strings = |strings: Vec<String>| {
            let strings: Result<Vec<_>, _> = strings.into_iter().map(CString::new).collect();
            strings.map_err(|_| invalid("an argument or variable has a NUL"))
        };
        Ok(Self {
            candidates: strings(candidates)?,
            arguments: StringArray::new(strings(command.arguments.to_vec())?),
            environment: StringArray::new(strings(environment)?),
        })
    }

    /// Tries every candidate; a program that is there but cannot be run is the better reason.
    fn execute(&self) -> io::Error {
        let mut reason = io::Error::from_raw_os_error(libc::ENOENT);
        for candidate in &self.candidates {
            let error = process::execute(candidate, &self.arguments, &self.environment);
            match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => {}
                Some(libc::EACCES) => reason = error,
                _ => return error,
            }
        }
        reason
    }
}

/// The paths at which a program may be found. An empty part of `PATH` is not the working
/// directory: nothing is ever run from there by accident.
fn candidates(program: &str, paths: &str) -> Vec<String> {
    if program.contains('/') {
        return vec![program.to_owned()];
    }
    paths
        .split(':')
        .filter(|path| !path.is_empty())
        .map(|path| format!("{path}/{program}"))
        .collect()
}

/// The limits that every process of the program has, except that of CPU time.
pub(crate) fn file_limits(limits: FileLimits) -> Vec<ResourceLimit> {
    let fixed = |resource, value| ResourceLimit {
        resource,
        soft: value,
        hard: value,
    };
    vec![
        fixed(libc::RLIMIT_CORE, 0),
        fixed(libc::RLIMIT_FSIZE, limits.file_size_bytes),
        fixed(libc::RLIMIT_NOFILE, limits.open_files),
    ]
}

/// The limit of CPU time. The hard one, which kills, is a second above the soft one, which the
/// program can see coming.
pub(crate) fn cpu_limit(seconds: u64) -> ResourceLimit {
    ResourceLimit {
        resource: libc::RLIMIT_CPU,
        soft: seconds,
        hard: seconds.saturating_add(1),
    }
}

/// Everything the child uses; it allocates only for its best-effort step.
struct Child<'a> {
    null: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    directory: BorrowedFd<'a>,
    link: Option<OwnedFd>,
    limits: &'a [ResourceLimit],
    guard: Option<&'a Guard>,
    image: &'a Image,
}

impl Child<'_> {
    fn become_program(&self, report: OwnedFd) -> ! {
        let (step, error) = self.steps();
        let [a, b, c, d] = error.raw_os_error().unwrap_or(0).to_le_bytes();
        // The parent takes a report that cannot be written for the end of the program, which then
        // shows the exit code below.
        let _ = File::from(report).write_all(&[step as u8, a, b, c, d]);
        process::exit_now(127)
    }

    fn steps(&self) -> (Step, io::Error) {
        if let Err(error) = process::new_session() {
            return (Step::Session, error);
        }
        for (fd, number) in [(&self.null, 0), (&self.stdout, 1), (&self.stderr, 2)] {
            if let Err(error) = process::duplicate_onto(fd.as_fd(), number) {
                return (Step::Streams, error);
            }
        }
        if let Err(error) = process::change_directory(self.directory) {
            return (Step::Directory, error);
        }
        if let Some(link) = &self.link
            && let Err(error) = process::duplicate_onto(link.as_fd(), LINK)
        {
            return (Step::Link, error);
        }
        if let Err(error) = process::reset_signals() {
            return (Step::Signals, error);
        }
        // If memory runs out the kernel shall take the program, not its supervisor. Best effort:
        // a sandbox without a writable /proc has a limit that ends both together.
        let _ = process::set_dumpable(true);
        let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
        // A crowd of busy processes shall not keep the supervisor from the clock. The weight counts
        // inside this sandbox's control group only. Best effort: the deadline is enforced outside, too.
        let _ = process::lower_priority(PROGRAM_NICE);
        process::set_umask(0o022);
        for limit in self.limits {
            if let Err(error) = limit.apply() {
                return (Step::Limits, error);
            }
        }
        // Last: what comes before is not for the program to do.
        if let Some(guard) = self.guard
            && let Err(error) = guard.apply()
        {
            return (Step::Guard, error);
        }
        (Step::Execute, self.image.execute())
    }
}

/// A pipe for output: our end, which never waits, and the program's.
fn output_pipe() -> io::Result<(File, OwnedFd)> {
    let (ours, theirs) = sys::pipe()?;
    // Best effort: a user may have used up what the kernel allows for large pipes.
    let _ = sys::set_pipe_size(ours.as_fd(), PIPE_BYTES);
    sys::set_nonblocking(ours.as_fd())?;
    Ok((File::from(ours), theirs))
}

/// A pipe for [`read_report`]: our end, and the child's. It puts its link under a number that
/// nothing it still needs may have.
fn report_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = sys::pipe()?;
    Ok((ours, sys::duplicate_from(theirs.as_fd(), LINK + 1)?))
}

/// Waits until exec has closed the report pipe, or an error has come through it. Has a bound of its
/// own: a program whose time is up before exec is done has been started, and ends at its deadline.
fn read_report(report: OwnedFd) -> Result<(), Failed> {
    let mut set = [sys::interest(Some(report.as_fd()), libc::POLLIN)];
    sys::poll(&mut set, Some(EXECUTE_BOUND)).map_err(failed("poll"))?;
    if set[0].revents == 0 {
        let late = io::Error::from_raw_os_error(libc::ETIMEDOUT);
        return Err(failed(Step::Execute.name())(late));
    }
    let mut bytes = [0; 5];
    match File::from(report)
        .read(&mut bytes)
        .map_err(failed("read"))?
    {
        0 => Ok(()),
        _ => {
            let [step, errno @ ..] = bytes;
            let step = Step::ALL
                .get(usize::from(step))
                .map_or("unknown", |step| step.name());
            Err(failed(step)(io::Error::from_raw_os_error(
                i32::from_le_bytes(errno),
            )))
        }
    }
}

/// For `map_err`: the message that tells of a failed step.
pub(crate) fn failed(step: &'static str) -> impl Fn(io::Error) -> Failed {
    move |error| Failed {
        step: step.to_owned(),
        errno: error.raw_os_error().unwrap_or(0),
        message: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_slash_is_looked_up_in_path() {
        assert_eq!(
            candidates("sh", "/bin::/usr/bin"),
            ["/bin/sh", "/usr/bin/sh"]
        );
        assert_eq!(candidates("./sh", "/bin"), ["./sh"]);
        assert!(candidates("sh", "").is_empty());
    }

    #[test]
    fn every_step_reports_under_its_own_number() {
        for (number, step) in Step::ALL.into_iter().enumerate() {
            assert_eq!(step as usize, number);
        }
    }
}
