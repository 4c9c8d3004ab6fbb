//! `fumehood run`: one program on the same engine, in this process, without a daemon.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use fumehood_protocol::message::Stream;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use toml::Value;

use super::calls::Calls;
use super::{exit, report};
use crate::api;
use crate::app::{Workshop, sweep};
use crate::config::{Config, Overrides};
use crate::execution::cause::CauseKind;
use crate::execution::paths::input_file_path;
use crate::execution::{ExecutionResult, ExecutionSpec, Status};
use crate::ids::ExecutionId;
use crate::runs::dataset_path;
use crate::runs::events::RunEvent;
use crate::runs::service::Observer;
use crate::sandbox::Engine as _;

/// A program and its input files are not larger than this, each.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The code of `timeout(1)`.
const EXIT_TIMEOUT: u8 = 124;
/// The code of a shell for an interrupted command.
const EXIT_CANCELLED: u8 = 130;
/// `EX_DATAERR`: the program ended well but left files out.
const EXIT_INVALID_OUTPUT: u8 = 65;

/// Run one program in a sandbox, without a daemon
#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: the program's own; 128 + n after signal n; 124 at the time limit; \
    65 if expected files are missing; 74 if the result could not be written; 130 if interrupted; 69 if it could not be run; \
    78 if the arguments or the configuration cannot be used."
)]
pub(super) struct Run {
    /// The Python program
    script: PathBuf,
    /// Directory with the data set, found read-only at /data
    #[arg(long, value_name = "DIR")]
    dataset: Option<PathBuf>,
    /// Print the result as JSON instead of the program's output
    #[arg(long)]
    json: bool,
    /// Further file for the workspace, under its own name; can be repeated
    #[arg(long, value_name = "FILE")]
    input: Vec<PathBuf>,
    /// File that the program has to leave; can be repeated
    #[arg(long, value_name = "NAME")]
    expect: Vec<String>,
    /// Time limit in seconds
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
    /// Memory in MiB
    #[arg(long, value_name = "MIB")]
    memory: Option<u32>,
    /// CPUs
    #[arg(long, value_name = "N")]
    cpus: Option<f64>,
    /// Image to run in
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Directory for the artifacts, in models/exec_…
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

impl Run {
    pub(super) fn overrides(&self) -> Overrides {
        let text = |path: &PathBuf| Value::String(path.to_string_lossy().into_owned());
        let settings = [
            (
                "execution",
                "timeout_seconds",
                self.timeout.map(Value::Float),
            ),
            (
                "execution",
                "memory_mb",
                self.memory.map(|mb| Value::Integer(mb.into())),
            ),
            ("execution", "cpus", self.cpus.map(Value::Float)),
            ("execution", "image", self.image.clone().map(Value::String)),
            ("app", "output_root", self.output.as_ref().map(text)),
        ];
        let given = settings
            .into_iter()
            .filter_map(|(s, k, value)| Some((s, k, value?)));
        Overrides(given.collect())
    }

    pub(super) async fn execute(self, config: Config) -> ExitCode {
        let spec = match self.specification(&config) {
            Ok(spec) => spec,
            Err(text) => {
                report::note(&format!("{} {text}", report::paint("error:", "1;31")));
                return ExitCode::from(exit::CONFIG);
            }
        };
        let workshop = match Workshop::open(&config, "cli-instance").await {
            Ok(workshop) => workshop,
            Err(error) => {
                report::error(&error);
                return ExitCode::from(exit::UNAVAILABLE);
            }
        };
        if let Err(error) = workshop.engine.image(&spec.image).await {
            report::engine_error(&error, &config.engine.host);
            return ExitCode::from(exit::UNAVAILABLE);
        }
        let calls = Calls::join(&config.app.state_dir).await;
        let cancel = CancellationToken::new();
        let observer = Terminal { quiet: self.json };
        let executor = workshop.executor(None, None, None);
        let execution = async {
            let result = executor.execute(&spec, &cancel, &observer).await.result;
            executor.settle(&spec.id).await;
            result
        };
        let result = until_interrupted(execution, &cancel).await;
        // What a killed call left, unless it can be the sandbox of one that is at work.
        let alone = calls.and_then(Calls::alone);
        if alone.is_some() {
            sweep(&workshop.engine, &[]).await;
        }
        workshop
            .engine
            .finish(std::time::Duration::from_secs(10))
            .await;
        let code = exit_code(&result);
        if self.json {
            return report::product(&format!("{:#}\n", api::result_json(&result)), code);
        }
        summarise(&result, &config.app.output_root);
        code
    }

    fn specification(&self, config: &Config) -> Result<ExecutionSpec, String> {
        let code = String::from_utf8(read(&self.script)?)
            .map_err(|_| format!("{} is not UTF-8", self.script.display()))?;
        let mut input_files = BTreeMap::new();
        for path in &self.input {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let name = input_file_path(&name).map_err(|error| error.to_string())?;
            input_files.insert(name, read(path)?);
        }
        let dataset = self.dataset.as_deref().map(pin).transpose()?;
        let image = config.execution.image.clone();
        Ok(ExecutionSpec {
            id: ExecutionId::random(),
            code,
            input_files,
            expected_output_files: self.expect.clone(),
            bash_script: None,
            dataset,
            image: image.unwrap_or_else(crate::sandbox::docker::images::default_reference),
            runtime: config.execution.runtime.clone(),
            preload: true,
            limits: config.execution.default_limits(),
        })
    }
}

fn summarise(result: &ExecutionResult, output_root: &Path) {
    let colour = if result.success { "1;32" } else { "1;31" };
    report::note(&format!(
        "{} {}",
        report::paint(result.status.as_str(), colour),
        result.cause.message
    ));
    if let Some(usage) = &result.usage {
        let peak = usage
            .peak_memory_bytes
            .map_or_else(|| "?".to_owned(), report::bytes);
        report::note(&format!(
            "  {:.2} s, {:.2} s of CPU time, at most {peak} of memory",
            result.duration_seconds, usage.cpu_seconds
        ));
    }
    for warning in &result.warnings {
        report::note(&format!("  {} {warning}", report::paint("warning:", "33")));
    }
    if !result.artifacts.is_empty() {
        let place = output_root
            .join("models")
            .join(result.execution_id.as_str());
        report::note(&format!("Artifacts in {}:", place.display()));
    }
    for artifact in &result.artifacts {
        report::note(&format!(
            "  {:>10}  {}",
            report::bytes(artifact.size),
            artifact.path
        ));
    }
    for skipped in &result.artifacts_skipped {
        report::note(&format!(
            "  left out: {} ({})",
            skipped.path, skipped.reason
        ));
    }
}

/// Waits for the execution; the first signal asks it to end.
async fn until_interrupted(
    execution: impl Future<Output = ExecutionResult>,
    cancel: &CancellationToken,
) -> ExecutionResult {
    tokio::pin!(execution);
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return execution.await;
    };
    loop {
        tokio::select! {
            result = &mut execution => return result,
            _ = interrupt.recv() => cancel.cancel(),
            _ = terminate.recv() => cancel.cancel(),
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let name = path.display();
    let metadata = std::fs::metadata(path).map_err(|error| format!("{name}: {error}"))?;
    if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES {
        return Err(format!("{name} has to be a regular file of at most 64 MiB"));
    }
    std::fs::read(path).map_err(|error| format!("{name}: {error}"))
}

/// Whoever calls the command may use the directory that they name.
fn pin(directory: &Path) -> Result<crate::execution::DatasetPin, String> {
    let text = directory
        .to_str()
        .ok_or("the data set's path has to be UTF-8")?;
    dataset_path::resolve(&[directory.to_owned()], text)
        .map_err(|_| format!("the data set {} is not a directory", directory.display()))
}

fn exit_code(result: &ExecutionResult) -> ExitCode {
    ExitCode::from(match (result.status, result.return_code) {
        (Status::Success, _) => 0,
        (Status::Timeout, _) => EXIT_TIMEOUT,
        (Status::Cancelled, _) => EXIT_CANCELLED,
        (Status::InvalidOutput, _) => EXIT_INVALID_OUTPUT,
        (Status::Error, _) => exit::UNAVAILABLE,
        (Status::Failure, Some(code)) if result.cause.kind != CauseKind::Infrastructure => {
            // A signal is a negative number here and 128 + n in a shell.
            let code = if code < -1 || (code == -1 && result.started_at.is_some()) {
                128 - code
            } else {
                code
            };
            u8::try_from(code.rem_euclid(256)).unwrap_or(1)
        }
        (Status::Failure, _) => 1,
    })
}

/// Shows the program's output while it is written.
#[derive(Debug)]
struct Terminal {
    quiet: bool,
}

impl Observer for Terminal {
    fn observe(&self, event: RunEvent) {
        let RunEvent::Output { stream, bytes } = event else {
            return;
        };
        if self.quiet {
            return;
        }
        // A reader that went away is no reason to end the program.
        let _ = match stream {
            Stream::Stdout => show(&mut io::stdout().lock(), &bytes),
            Stream::Stderr => show(&mut io::stderr().lock(), &bytes),
        };
    }
}

fn show(to: &mut (impl io::Write + io::IsTerminal), bytes: &[u8]) -> io::Result<()> {
    // A terminal obeys what it is shown, a file or a pipe gets the bytes as they are.
    if to.is_terminal() {
        to.write_all(report::harmless(bytes).as_bytes())?;
    } else {
        to.write_all(bytes)?;
    }
    to.flush()
}
