//! `fumehood receipt`: what belongs to the receipts of a state directory.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Subcommand;

use super::{exit, report};
use crate::app::store_path;
use crate::config::Config;
use crate::receipt::key::ReceiptKey;
use crate::runs::store::sqlite::export;

/// What belongs to the receipts of this state directory
#[derive(Debug, Subcommand)]
pub(super) enum Receipt {
    /// Print the public key that receipts of this state directory are signed with
    Key,
    /// Print every receipt, one a line in order of their numbers, while the daemon runs or not
    Export {
        /// Number of the first one
        #[arg(long, value_name = "NUMBER", default_value_t = 1)]
        from: i64,
    },
}

impl Receipt {
    pub(super) fn execute(self, config: &Config) -> ExitCode {
        match self {
            Self::Key => key(config),
            Self::Export { from } => export(config, from),
        }
    }
}

/// Makes no key: that is for the daemon, at its first start.
fn key(config: &Config) -> ExitCode {
    match ReceiptKey::load(&config.app.state_dir) {
        Ok(Some(key)) => report::product(&format!("{}\n", key.public()), ExitCode::SUCCESS),
        Ok(None) => unavailable(&format!(
            "there is no receipt key in {} yet: start the daemon once with `fumehood serve`, or name \
             its directory with app.state_dir",
            config.app.state_dir.display()
        )),
        Err(error) => {
            report::error(&error);
            ExitCode::from(exit::UNAVAILABLE)
        }
    }
}

fn export(config: &Config, from: i64) -> ExitCode {
    let path = store_path(config);
    if !path.exists() {
        return unavailable(&format!(
            "there is no store at {} yet: start the daemon once with `fumehood serve`, or name it with \
             app.state_dir or store.path",
            path.display()
        ));
    }
    let mut out = io::stdout().lock();
    let mut written = Ok(());
    let read = export::receipts(&path, from, |receipt| {
        written = writeln!(out, "{receipt}");
        written.is_ok()
    });
    if let Err(error) = read {
        report::error(&error);
        return ExitCode::from(exit::of_store(&error));
    }
    match written.and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        // Who went away has read enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            // A chain that ends here would look like a whole one.
            report::failure(&format!("the receipts could not be written whole: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn unavailable(text: &str) -> ExitCode {
    report::failure(text);
    ExitCode::from(exit::UNAVAILABLE)
}
