//! PID 1 of a sandbox: runs one hostile program, tells the daemon about it, and ends.
//!
//! This file is the order of things; each step has a module of its own. One thread, no async
//! runtime, no unbounded buffer. All `unsafe` is in [`sys`].

mod error;
mod settings;
mod ready;
mod inbox;
mod outbox;
mod workspace;
mod guard;
mod program;
mod preload;
mod preparing;
mod reap;
mod output;
mod watch;
mod walk;
mod run;
mod leave;
mod state;
mod supervisor;
mod sys;

use std::io::Write as _;
use std::process::ExitCode;

use error::Fatal;
use sys::process;

fn main() -> ExitCode {
    match supervise() {
        Ok(leave) => ExitCode::from(leave.exit_code()),
        Err(fatal) => {
            // The last line anybody hears; there is nobody to tell if it cannot be written.
            let _ = writeln!(std::io::stderr(), "fumehood-supervisor: {fatal}");
            ExitCode::from(fatal.exit_code())
        }
    }
}

fn supervise() -> Result<leave::Leave, Fatal> {
    // 1. Refuse every place but a sandbox: later on everything in sight is killed.
    if std::process::id() != 1 {
        return Err(Fatal::NotInit);
    }
    let settings = settings::Settings::from_arguments(std::env::args_os().skip(1))?;

    // 2. Close the doors before anything foreign runs. Not dumpable: the program has our uid and
    //    could else open our descriptors through /proc and speak in our name.
    sys::close_inherited();
    process::set_dumpable(false).map_err(Fatal::io("prctl(PR_SET_DUMPABLE)"))?;
    process::set_umask(0o022);
    process::ignore_signal(libc::SIGPIPE);
    let signals = process::child_signals().map_err(Fatal::io("signalfd"))?;

    // 3. Look at what the engine has really made of the sandbox, and say it.
    let workspace = workspace::Workspace::open(&settings.workspace)?;
    let facts = ready::facts(&settings, &workspace)?;

    // 4. Everything else is one loop around poll, until the result has been taken. When this
    //    function returns, the kernel ends whatever is left in the sandbox.
    supervisor::Supervisor::new(settings, workspace, signals, facts)?.run()
}
