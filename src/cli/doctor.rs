//! `fumehood doctor`

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::calls::Calls;
use super::{exit, report};
use crate::app::{Workshop, sweep};
use crate::config::{Config, refuses_colour};
use crate::doctor::report::text::{Colour, Look, text};
use crate::doctor::{Card, Depth, DoctorError, Examiner, controls};

/// How long removing the last sandboxes may take.
const REAP_BOUND: Duration = Duration::from_secs(20);

/// The exit code if a mandatory control is missing.
const EXIT_MISSING: u8 = 1;

/// The exit code if a signal ended the examination, as shells have it.
const EXIT_STOPPED: u8 = 130;

/// How wide the card is where nobody tells: in a file or a pipe.
const UNKNOWN_COLUMNS: usize = 100;

/// Examine this host's own sandboxes and print a score card
#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: 0 if every mandatory control holds; 1 if one is missing; 69 if \
    the sandboxes could not be examined; 74 if the card could not be written; 130 if it was stopped by a signal; 78 if the configuration cannot be used."
)]
pub(super) struct Doctor {
    /// Print the card as JSON
    #[arg(long)]
    json: bool,
    /// Examine this runtime only [default: runc, and runsc where the engine has it]
    #[arg(long, value_name = "NAME")]
    runtime: Option<String>,
}

impl Doctor {
    pub(super) async fn execute(self, config: Config) -> ExitCode {
        let workshop = match Workshop::open(&config, "cli-instance").await {
            Ok(workshop) => workshop,
            Err(error) => {
                report::error(&error);
                return ExitCode::from(exit::UNAVAILABLE);
            }
        };
        let calls = Calls::join(&config.app.state_dir).await;
        let examiner = workshop.examiner(&config);
        let examined = tokio::select! {
            examined = self.examine(&examiner, &config) => Some(examined),
            () = asked_to_stop() => None,
        };
        // What a killed call left, or this one was about to make, unless it can be the sandbox of
        // one that is at work.
        let alone = calls.and_then(Calls::alone);
        if alone.is_some() && !matches!(examined, Some(Err(_))) {
            sweep(&workshop.engine, &[]).await;
        }
        workshop.engine.finish(REAP_BOUND).await;
        match examined {
            Some(Ok(card)) => self.show(&card),
            Some(Err(DoctorError::Engine(error))) => {
                report::engine_error(&error, &config.engine.host);
                ExitCode::from(exit::UNAVAILABLE)
            }
            Some(Err(error)) => {
                report::error(&error);
                ExitCode::from(exit::UNAVAILABLE)
            }
            None => ExitCode::from(EXIT_STOPPED),
        }
    }

    async fn examine(&self, examiner: &Examiner, config: &Config) -> Result<Card, DoctorError> {
        let machine = examiner.machine().await?;
        let configured = config.execution.runtime.as_deref();
        let names = match &self.runtime {
            Some(name) if machine.engine.runtimes.contains(name) => vec![name.clone()],
            Some(name) => {
                return Err(DoctorError::NoSuchRuntime {
                    name: name.clone(),
                    known: controls::harmless(&machine.engine.runtimes.join(", ")),
                });
            }
            None => Examiner::runtimes(&machine.engine, configured),
        };
        if names.is_empty() {
            return Err(DoctorError::NoRuntime);
        }
        let mut runtimes = Vec::new();
        for name in names {
            if io::stderr().is_terminal() {
                report::note(&format!("Examining sandboxes of {name}: about ten seconds"));
            }
            let scores = examiner.runtime(&name, Depth::Thorough, &machine).await?;
            runtimes.push((name, scores));
        }
        let scores = controls::judge_machine(&machine);
        Ok(Card::new(&machine, scores, runtimes))
    }

    fn show(&self, card: &Card) -> ExitCode {
        let printed = if self.json {
            format!("{:#}\n", card.json())
        } else {
            let colour = if io::stdout().is_terminal() && !refuses_colour() {
                Colour::On
            } else {
                Colour::Off
            };
            let columns = report::columns().unwrap_or(UNKNOWN_COLUMNS);
            text(card, Look { colour, columns })
        };
        let code = if card.passed {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(EXIT_MISSING)
        };
        report::product(&printed, code)
    }
}

/// Waits for the first request to stop. Where signals cannot be handled, the kernel's way of ending
/// this process stays.
async fn asked_to_stop() {
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
