//! The command line: arguments, and which command they mean. The only part that prints.

mod serve;

mod key;

mod run;

mod calls;

mod doctor;

mod image;

mod token;

mod receipt;

mod gc;

mod verify;

mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::config::{Config, ConfigError, Overrides, Sources, load};
use crate::telemetry::{self, LogFormat};

/// Exit codes besides a program's own, after `sysexits.h`.
pub(crate) mod exit {
    use crate::app::AppError;
    use crate::orchestrator::llm::SettingsError;
    use crate::runs::store::StoreError;

    /// The configuration, the arguments or the store cannot be used, now or in a moment.
    pub(crate) const CONFIG: u8 = 78;
    /// The engine, the image or another thing that is needed is not there.
    pub(crate) const UNAVAILABLE: u8 = 69;
    /// What was asked for could not be written to standard output.
    pub(crate) const OUTPUT: u8 = 74;

    /// For what could not be set up.
    pub(crate) fn of(error: &AppError) -> u8 {
        match error {
            AppError::Store(error) => of_store(error),
            AppError::Identity { .. }
            | AppError::Model(
                SettingsError::Address | SettingsError::Key | SettingsError::Certificates(_),
            ) => CONFIG,
            AppError::Model(SettingsError::Client(_)) | AppError::Certificates { .. } => {
                UNAVAILABLE
            }
            AppError::State { .. }
            | AppError::StateInUse { .. }
            | AppError::IdentityInUse { .. }
            | AppError::Output(_)
            | AppError::Handoff(_)
            | AppError::Key(_)
            | AppError::Listen { .. }
            | AppError::Tokens(_)
            | AppError::Tls(_)
            | AppError::Task(_) => UNAVAILABLE,
        }
    }

    /// For a store that cannot be used. What another attempt would not put right has the code after
    /// which `deploy/fumehood.service` makes none.
    pub(crate) fn of_store(error: &StoreError) -> u8 {
        let is_lasting = matches!(
            error,
            StoreError::Corrupt(_)
                | StoreError::OtherInstance { .. }
                | StoreError::TooNew { .. }
                | StoreError::Unreadable(_)
        );
        if is_lasting { CONFIG } else { UNAVAILABLE }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn what_no_other_start_puts_right_has_the_code_after_which_none_is_made() {
            let store = |error| of(&AppError::Store(error));
            assert_eq!(store(StoreError::Corrupt(String::new())), CONFIG);
            assert_eq!(store(StoreError::TooNew { found: 9, known: 8 }), CONFIG);
            let [owner, own] = ["a", "b"].map(str::to_owned);
            assert_eq!(store(StoreError::OtherInstance { owner, own }), CONFIG);
            let path = String::new();
            assert_eq!(store(StoreError::InUse { path }), UNAVAILABLE);
            assert_eq!(store(StoreError::Unflushed), UNAVAILABLE);
        }

        /// The unit makes no other start after that code, and after no other one.
        #[test]
        fn the_unit_knows_the_code() {
            let unit = include_str!("../deploy/fumehood.service");
            let known = format!("\nRestartPreventExitStatus={CONFIG}\n");
            assert!(unit.contains(&known));
        }
    }
}

/// Runs model-written code in single-use, hardened containers.
#[derive(Debug, Parser)]
#[command(name = "fumehood", version)]
struct Arguments {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
struct Global {
    /// Configuration file [default: fumehood.toml if it exists]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What is logged to standard error, such as `debug` or `fumehood=debug,warn`
    #[arg(long, global = true, value_name = "FILTER")]
    log: Option<String>,
    /// How log lines look
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "text",
        value_name = "FORMAT"
    )]
    log_format: LogFormat,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon
    Serve(serve::Serve),
    /// Run one program in a sandbox, without a daemon
    Run(run::Run),
    /// Examine this host's own sandboxes and print a score card
    Doctor(doctor::Doctor),
    /// Make or list sandbox images
    #[command(subcommand)]
    Image(image::Image),
    /// Make, list or revoke the tokens of clients
    #[command(subcommand)]
    Token(token::Token),
    /// Check a receipt, its chain and the files that belong to it, offline
    Verify(verify::Verify),
    /// What belongs to the receipts of this state directory
    #[command(subcommand)]
    Receipt(receipt::Receipt),
    /// Remove what is kept no longer: runs, artifacts, and what other versions left on the engine
    Gc(gc::Gc),
    /// Print the effective configuration
    Config,
}

impl Command {
    fn overrides(&self) -> Overrides {
        match self {
            Self::Serve(serve) => serve.overrides(),
            Self::Run(run) => run.overrides(),
            Self::Doctor(_)
            | Self::Image(_)
            | Self::Token(_)
            | Self::Verify(_)
            | Self::Receipt(_)
            | Self::Gc(_)
            | Self::Config => Overrides::default(),
        }
    }

    /// The daemon tells what it does; the other commands only what an operator has to act on.
    fn default_log(&self) -> &'static str {
        match self {
            Self::Serve(_) => "info",
            Self::Run(_)
            | Self::Doctor(_)
            | Self::Image(_)
            | Self::Token(_)
            | Self::Verify(_)
            | Self::Receipt(_)
            | Self::Gc(_)
            | Self::Config => "error",
        }
    }
}

/// Does what the arguments of this process ask for.
#[must_use]
pub fn main() -> ExitCode {
    let Arguments { global, command } = Arguments::parse();
    // Before any key is read: no core file, no debugger and no other process of this user gets at
    // this one's memory and environment (row 77).
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        report::error(&error);
        return ExitCode::from(exit::UNAVAILABLE);
    }
    let filter = global.log.as_deref();
    telemetry::start(filter.unwrap_or(command.default_log()), global.log_format);
    let overrides = command.overrides();
    #[cfg(debug_assertions)]
    if let Some(directory) = crate::config::fault_bench() {
        crate::fault_point::bench::arm(directory);
    }
    let sources = Sources::of_process(global.config);
    let config = || load(&sources, &overrides).map_err(|error| bad_config(&error));
    let executed = match command {
        // Needs no configuration, and is called where there may be none that can be used.
        Command::Verify(verify) => Ok(verify.execute()),
        Command::Serve(serve) => config().and_then(|config| {
            let config = serve.with_key(config)?;
            Ok(block_on(serve.execute(config)))
        }),
        Command::Run(run) => config().map(|config| block_on(run.execute(config))),
        Command::Doctor(doctor) => config().map(|config| block_on(doctor.execute(config))),
        Command::Image(image) => config().map(|config| block_on(image.execute(config))),
        Command::Token(token) => config().map(|config| block_on(token.execute(config))),
        Command::Receipt(receipt) => config().map(|config| receipt.execute(&config)),
        Command::Gc(gc) => config().map(|config| block_on(gc.execute(config))),
        Command::Config => config().map(|config| print_config(&config)),
    };
    executed.unwrap_or_else(|refused| refused)
}

fn bad_config(error: &ConfigError) -> ExitCode {
    report::error(error);
    ExitCode::from(exit::CONFIG)
}

/// How long threads that wait for a disk may hold up the end.
const THREADS_BOUND: Duration = Duration::from_secs(5);

fn block_on(command: impl Future<Output = ExitCode>) -> ExitCode {
    match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => {
            let code = runtime.block_on(command);
            // A thread may hang in a file system that is gone: it is left behind.
            runtime.shutdown_timeout(THREADS_BOUND);
            code
        }
        Err(error) => {
            report::error(&error);
            ExitCode::from(exit::UNAVAILABLE)
        }
    }
}

fn print_config(config: &Config) -> ExitCode {
    match toml::to_string(config) {
        Ok(text) => report::product(&text, ExitCode::SUCCESS),
        Err(error) => {
            report::error(&error);
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_of_the_arguments_is_sound() {
        Arguments::command().debug_assert();
    }
}
