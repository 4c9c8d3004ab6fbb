//! `fumehood serve`

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

use super::{exit, key, report};
use crate::app::{self, Stop};
use crate::config::{Config, Overrides};

/// Run the daemon
#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: 0 after a request to stop; 1 after a second one; 69 if something that is needed \
    is not there, so that another start may help; 78 if the configuration or the store cannot be used, so that none will."
)]
pub(super) struct Serve {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// How long running programs may go on after a request to stop, in seconds
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    drain_seconds: u64,
    /// Read the model's key from standard input, whatever is in the variable that llm.api_key_env names
    #[arg(long = key::FLAG)]
    llm_key_stdin: bool,
}

impl Serve {
    pub(super) fn overrides(&self) -> Overrides {
        let listen = self
            .listen
            .iter()
            .map(|address| ("api", "listen", address.to_string().into()));
        Overrides(listen.collect())
    }

    /// The configuration with the model's key. To be called before there are threads.
    pub(super) fn with_key(&self, mut config: Config) -> Result<Config, ExitCode> {
        let key = key::take(&config.llm.api_key_env, self.llm_key_stdin);
        config.llm.key = key.map_err(|error| {
            report::error(&error);
            ExitCode::from(exit::CONFIG)
        })?;
        Ok(config)
    }

    pub(super) async fn execute(self, config: Config) -> ExitCode {
        let stop = Stop::default();
        let (Ok(mut terminate), Ok(mut interrupt)) = (
            signal(SignalKind::terminate()),
            signal(SignalKind::interrupt()),
        ) else {
            report::note("error: signals cannot be handled");
            return ExitCode::from(exit::UNAVAILABLE);
        };
        let drain = Duration::from_secs(self.drain_seconds);
        let scheme = if config.api.tls_cert.is_some() {
            "https"
        } else {
            "http"
        };
        let daemon = app::serve(config, stop.clone(), drain, |address| {
            report::note(&format!("fumehood listens on {scheme}://{address}"));
        });
        tokio::pin!(daemon);
        loop {
            tokio::select! {
                ended = &mut daemon => {
                    let is_cut_short = stop.now.is_cancelled() && ended.is_ok();
                    return if is_cut_short { ExitCode::FAILURE } else { finish(ended) };
                }
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if stop.gently.is_cancelled() {
                info!("asked twice to stop: leaving now; the next start goes on with what runs");
                stop.now.cancel();
            }
            stop.gently.cancel();
        }
    }
}

fn finish(ended: Result<(), app::AppError>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::error(&error);
            ExitCode::from(exit::of(&error))
        }
    }
}
