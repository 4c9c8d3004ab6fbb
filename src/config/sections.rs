//! The sections and their defaults.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::num::NonZeroUsize;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize};

use super::engine::EngineSettings;
use super::llm::Llm;
use super::storage::{RetentionSection, StoreSection};
use super::tenants::Tenant;
use crate::execution::Limits;

/// The whole configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The HTTP interface.
    pub api: Api,
    /// The daemon as a whole.
    pub app: App,
    /// What programs get.
    pub execution: Execution,
    /// Where sandboxes are made.
    pub engine: EngineSettings,
    /// Sandboxes made ahead of use.
    pub pool: Pool,
    /// The loop.
    pub limits: LimitsSection,
    /// The model.
    pub llm: Llm,
    /// Where runs are kept.
    pub store: StoreSection,
    /// For how long.
    pub retention: RetentionSection,
    /// Who may use the interface.
    pub auth: Auth,
    /// Whether this host is examined before runs are taken.
    pub doctor: Doctor,
    /// What each tenant may do, by name.
    pub tenants: BTreeMap<String, Tenant>,
}

/// `[api]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Api {
    /// Address and port to listen on.
    pub listen: SocketAddr,
    /// Address of loopback and port on which `/metrics` can be read without a token; `None` is none.
    pub metrics_listen: Option<SocketAddr>,
    /// The largest request body, in bytes.
    pub max_body_bytes: usize,
    /// How long a request's head and body may take to arrive, in seconds.
    pub read_timeout_seconds: u64,
    /// Connections served at the same time.
    pub max_connections: usize,
    /// Whether artifacts can be fetched.
    pub artifact_download: bool,
    /// Certificates of the server as PEM, its own first; with `tls_key` it speaks TLS.
    pub tls_cert: Option<PathBuf>,
    /// The private key as PEM.
    pub tls_key: Option<PathBuf>,
    /// Origins whose pages may use the interface from a browser.
    pub cors_origins: Vec<String>,
    /// Names besides those of loopback that requests without tokens may call the host.
    pub allowed_hosts: Vec<String>,
    /// Whether data sets can be uploaded.
    pub uploads: bool,
}

impl Default for Api {
    fn default() -> Self {
        Self {
            listen: SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8000)),
            metrics_listen: None,
            max_body_bytes: 16 << 20,
            read_timeout_seconds: 30,
            max_connections: 1024,
            artifact_download: false,
            uploads: false,
            tls_cert: None,
            tls_key: None,
            cors_origins: Vec::new(),
            allowed_hosts: Vec::new(),
        }
    }
}

/// `[app]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct App {
    /// Directories that data sets may be in.
    #[serde(deserialize_with = "one_or_many")]
    pub allowed_data_root: Vec<PathBuf>,
    /// Where artifacts go, in `models/exec_…`.
    pub output_root: PathBuf,
    /// The daemon's own files: store, lock, identity, receipt key.
    pub state_dir: PathBuf,
    /// The longest instruction, in characters.
    pub max_instruction_length: usize,
    /// Runs carried out at the same time.
    pub max_concurrent_runs: usize,
    /// Runs waiting; more are refused with 429.
    pub max_queued_runs: u32,
    /// Wall clock of a whole run, in seconds.
    pub run_timeout_seconds: u64,
}

impl Default for App {
    fn default() -> Self {
        Self {
            allowed_data_root: vec![PathBuf::from(".")],
            output_root: PathBuf::from("outputs"),
            state_dir: PathBuf::from(".fumehood"),
            max_instruction_length: 1000,
            max_concurrent_runs: std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            max_queued_runs: 1000,
            run_timeout_seconds: 600,
        }
    }
}

/// `[execution]`: defaults for programs, and the ceilings that requests may ask for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Execution {
    /// Wall clock of one program, in seconds.
    pub timeout_seconds: f64,
    /// The most that a request may ask for.
    pub max_timeout_seconds: f64,
    /// Bytes kept of standard output.
    pub max_stdout_size_bytes: u64,
    /// Bytes kept of standard error.
    pub max_stderr_size_bytes: u64,
    /// Memory and tmpfs together, in MiB.
    pub memory_mb: u64,
    /// The most that a request may ask for.
    pub max_memory_mb: u64,
    /// CPUs' worth of time.
    pub cpus: f64,
    /// The most that a request may ask for.
    pub max_cpus: f64,
    /// Processes and threads.
    pub max_processes: u64,
    /// The most that a request may ask for.
    pub max_max_processes: u64,
    /// Workspace, in MiB.
    pub workspace_mb: u64,
    /// The most that a request may ask for.
    pub max_workspace_mb: u64,
    /// `/dev/shm`, in MiB.
    pub shm_mb: u64,
    /// The most that a request may ask for.
    pub max_shm_mb: u64,
    /// Bytes of all artifacts of one execution, in MiB.
    pub max_artifact_mb: u64,
    /// Files of one execution.
    pub max_artifact_files: u64,
    /// The default image; `None` is the one built by this project.
    pub image: Option<String>,
    /// Further images that requests may name.
    pub images: Vec<String>,
    /// The engine's runtime; `None` is the engine's default.
    pub runtime: Option<String>,
    /// Whether paths of the host are taken out of what programs show. Off only to find out what they
    /// would show.
    pub redact_host_paths: bool,
    /// The uid of the first sandbox; each further one at the same time has the next.
    pub uid_base: u32,
}

impl Default for Execution {
    fn default() -> Self {
        Self {
            timeout_seconds: 120.0,
            max_timeout_seconds: 600.0,
            max_stdout_size_bytes: 102_400,
            max_stderr_size_bytes: 102_400,
            memory_mb: 2048,
            max_memory_mb: 16_384,
            cpus: 1.0,
            max_cpus: 8.0,
            max_processes: 256,
            max_max_processes: 4096,
            workspace_mb: 1024,
            max_workspace_mb: 8192,
            shm_mb: 256,
            max_shm_mb: 4096,
            max_artifact_mb: 1024,
            max_artifact_files: 10_000,
            image: None,
            images: Vec::new(),
            runtime: None,
            redact_host_paths: true,
            uid_base: 50_000,
        }
    }
}

impl Execution {
    /// Makes sizes that are charged to the memory small enough for it, unless they were given:
    /// filling a tmpfs has to be "no space left" and not a kill (security.md row 36).
    pub(super) fn fit_into_memory(&mut self, given: &[String]) {
        if !given.iter().any(|key| key == "workspace_mb") {
            self.workspace_mb = self.workspace_mb.min(self.memory_mb / 2);
        }
        if !given.iter().any(|key| key == "shm_mb") {
            self.shm_mb = self.shm_mb.min(self.memory_mb / 8);
        }
    }

    /// Makes time limits that were not given small enough for a whole run, which ends its program.
    #[expect(
        clippy::cast_precision_loss,
        reason = "seconds of a run fit a double exactly"
    )]
    pub(super) fn fit_into_run(&mut self, given: &[String], run_timeout_seconds: u64) {
        let whole = run_timeout_seconds as f64;
        if !given.iter().any(|key| key == "max_timeout_seconds") {
            self.max_timeout_seconds = whole;
        }
        if !given.iter().any(|key| key == "timeout_seconds") {
            self.timeout_seconds = self.timeout_seconds.min(self.max_timeout_seconds);
        }
    }

    /// The limits of a program whose request names none.
    #[must_use]
    pub fn default_limits(&self) -> Limits {
        Limits {
            timeout_seconds: self.timeout_seconds,
            memory_mb: self.memory_mb,
            cpus: self.cpus,
            max_processes: self.max_processes,
            workspace_mb: self.workspace_mb,
            shm_mb: self.shm_mb,
            max_stdout_size_bytes: self.max_stdout_size_bytes,
            max_stderr_size_bytes: self.max_stderr_size_bytes,
            max_artifact_mb: self.max_artifact_mb,
            max_artifact_files: self.max_artifact_files,
        }
    }
}

/// `[pool]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pool {
    /// Sandboxes kept waiting; 0 makes each when it is needed.
    pub size: usize,
    /// Memory that they may take together, in MiB.
    pub memory_mb: u64,
    /// Modules that a waiting interpreter has imported; those that an image does not have are
    /// skipped.
    pub preload: Vec<String>,
}

impl Default for Pool {
    fn default() -> Self {
        let preload = [
            "pandas",
            // What pandas itself imports only when it writes the first CSV.
            "pandas.io.formats.csvs",
            "sklearn.ensemble",
            "sklearn.linear_model",
            "sklearn.metrics",
            "sklearn.model_selection",
            "sklearn.pipeline",
            "sklearn.preprocessing",
        ];
        Self {
            size: 2,
            memory_mb: 1024,
            preload: preload.map(str::to_owned).to_vec(),
        }
    }
}

/// `[limits]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsSection {
    /// Turns of the loop, unless a request names fewer or more.
    pub max_iterations: u32,
}

impl Default for LimitsSection {
    fn default() -> Self {
        Self { max_iterations: 10 }
    }
}

/// `[auth]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    /// The file with the tokens; without it the daemon listens on loopback only.
    pub tokens_file: Option<PathBuf>,
}

/// `[doctor]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Doctor {
    /// Whether runs are refused until every mandatory protection was seen to hold.
    pub at_start: bool,
}

impl Default for Doctor {
    fn default() -> Self {
        Self { at_start: true }
    }
}

pub(super) fn one_or_many<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<PathBuf>, D::Error> {
    struct OneOrMany;

    impl<'de> serde::de::Visitor<'de> for OneOrMany {
        type Value = Vec<PathBuf>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a path or a list of paths")
        }

        fn visit_str<E: serde::de::Error>(self, path: &str) -> Result<Self::Value, E> {
            Ok(vec![PathBuf::from(path)])
        }

        fn visit_seq<A: serde::de::SeqAccess<'de>>(
            self,
            mut list: A,
        ) -> Result<Self::Value, A::Error> {
            let mut paths = Vec::new();
            while let Some(path) = list.next_element()? {
                paths.push(path);
            }
            Ok(paths)
        }
    }

    deserializer.deserialize_any(OneOrMany)
}
