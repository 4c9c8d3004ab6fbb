//! `fumehood image build|list`

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};

use super::{exit, report};
use crate::config::Config;
use crate::ids::InstanceId;
use crate::sandbox::docker::images::{self, BuildOptions, Origin, Progress};
use crate::sandbox::docker::{Docker, DockerEngine};

/// Make or list sandbox images
#[derive(Debug, Subcommand)]
pub(super) enum Image {
    /// Make the image that programs run in
    Build(Build),
    /// List the images made by fumehood
    List,
}

#[derive(Debug, Args)]
pub(super) struct Build {
    /// Base image with python3, or `debian-packages` [default: an official Python image where a
    /// registry is reachable, else Debian packages]
    #[arg(long, value_name = "IMAGE")]
    base: Option<String>,
    /// Certificates that are trusted during the build [default: the host's]
    #[arg(long, value_name = "FILE")]
    ca_bundle: Option<PathBuf>,
    /// Name of the image [default: named by its content]
    #[arg(long, value_name = "NAME:TAG")]
    tag: Option<String>,
    /// Build even if the image is there
    #[arg(long)]
    rebuild: bool,
}

impl Image {
    pub(super) async fn execute(self, config: Config) -> ExitCode {
        // Images belong to no instance: nothing made here carries its label.
        let engine = DockerEngine::new(&config.engine.host, InstanceId::random());
        let docker = match engine.docker().await {
            Ok(docker) => docker,
            Err(error) => {
                report::engine_error(&error, &config.engine.host);
                return ExitCode::from(exit::UNAVAILABLE);
            }
        };
        match self {
            Self::Build(build) => build.execute(&docker).await,
            Self::List => list(&docker).await,
        }
    }
}

impl Build {
    async fn execute(self, docker: &Docker) -> ExitCode {
        let options = BuildOptions {
            base: self.base,
            ca_bundle: self.ca_bundle,
            tag: self.tag,
            rebuild: self.rebuild,
        };
        let mut progress = Spinner::start();
        let built = images::build(docker, &options, &mut progress).await;
        progress.bar.finish_and_clear();
        match built {
            Ok(image) => {
                let verb = match image.origin {
                    Origin::Found => "is there already",
                    Origin::Built => "is built",
                };
                report::note(&format!(
                    "{} {verb} ({})",
                    image.reference,
                    report::bytes(image.size_bytes)
                ));
                ExitCode::SUCCESS
            }
            Err(error) => {
                report::error(&error);
                ExitCode::FAILURE
            }
        }
    }
}

async fn list(docker: &Docker) -> ExitCode {
    match images::list(docker).await {
        Ok(list) if list.is_empty() => {
            report::note("There is no image yet: make one with `fumehood image build`.");
            ExitCode::SUCCESS
        }
        Ok(list) => {
            let width = list
                .iter()
                .map(|image| image.reference.len())
                .max()
                .unwrap_or_default();
            let line = |image: images::ImageSummary| {
                let mark = if image.is_default { "  (default)" } else { "" };
                let base = image.base.unwrap_or_else(|| "?".to_owned());
                format!(
                    "{:width$}  {:>10}  base {base}{mark}\n",
                    image.reference,
                    report::bytes(image.size_bytes),
                )
            };
            let lines: String = list.into_iter().map(line).collect();
            report::product(&lines, ExitCode::SUCCESS)
        }
        Err(error) => {
            report::error(&error);
            ExitCode::FAILURE
        }
    }
}

/// One moving line on a terminal, one line per step elsewhere.
struct Spinner {
    bar: ProgressBar,
}

impl Spinner {
    fn start() -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) =
            ProgressStyle::with_template("{spinner} {prefix} [{elapsed}] {wide_msg:.dim}")
        {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { bar }
    }
}

impl Progress for Spinner {
    fn step(&mut self, text: &str) {
        if self.bar.is_hidden() {
            report::note(text);
        }
        self.bar.println(format!("• {text}"));
        self.bar.set_prefix(text.to_owned());
        self.bar.set_message("");
    }

    fn detail(&mut self, line: &str) {
        self.bar.set_message(line.to_owned());
    }
}
