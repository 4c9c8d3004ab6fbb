//! What an engine tells of itself and of a sandbox to whoever examines them: facts, no judgement.
//!
//! Apart from [`Engine`], which is what running programs takes. An engine's word is all there is
//! for some rows of the security bar, such as the runtime (row 10): a sign inside the sandbox could
//! be forged.

use async_trait::async_trait;

use super::engine::{Engine, EngineError};
use crate::ids::ExecutionId;

/// An engine that can be examined.
#[async_trait]
pub trait Survey: Engine {
    /// What the engine says of itself: rows 65, 66 and 68.
    async fn survey(&self) -> Result<EngineFacts, EngineError>;

    /// What the engine says of the sandbox that was made for this execution.
    async fn applied(&self, execution: &ExecutionId) -> Result<AppliedSettings, EngineError>;
}

/// An engine's word on itself. `None` and empty: it does not tell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineFacts {
    /// Its identity: another one means another engine, or one that was set up anew.
    pub id: String,
    /// Its version.
    pub version: String,
    /// The version of the interface that was agreed on.
    pub api_version: String,
    /// Names of its runtimes, sorted.
    pub runtimes: Vec<String>,
    /// The runtime of a sandbox that asks for none.
    pub default_runtime: String,
    /// Version of its runc.
    pub runc_version: Option<String>,
    /// Release of the kernel that it runs on.
    pub kernel: String,
    /// 1 or 2.
    pub cgroup_version: Option<u8>,
    /// Such as `name=seccomp,profile=default`, `name=apparmor`, `name=rootless`.
    pub security_options: Vec<String>,
    /// Whether sandboxes outlive a restart of the engine.
    pub live_restore: Option<bool>,
    /// Where its own data is.
    pub data_directory: String,
    /// Limits that its host's kernel cannot keep, such as `memory`.
    pub missing_limits: Vec<&'static str>,
}

impl EngineFacts {
    /// Whether the engine has this security option, such as `rootless`.
    #[must_use]
    pub fn has_security_option(&self, name: &str) -> bool {
        let wanted = format!("name={name}");
        self.security_options
            .iter()
            .any(|option| option.split(',').next() == Some(wanted.as_str()))
    }

    /// What a change of makes every earlier examination worthless.
    #[must_use]
    pub fn identity(&self) -> EngineIdentity {
        EngineIdentity {
            id: self.id.clone(),
            version: self.version.clone(),
            runc_version: self.runc_version.clone(),
            kernel: self.kernel.clone(),
            default_runtime: self.default_runtime.clone(),
            runtimes: self.runtimes.clone(),
        }
    }
}

/// Which engine it is, and what it is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineIdentity {
    id: String,
    version: String,
    runc_version: Option<String>,
    kernel: String,
    default_runtime: String,
    runtimes: Vec<String>,
}

/// An engine's word on one sandbox: what inspecting it shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppliedSettings {
    /// Row 10.
    pub runtime: String,
    /// Row 31.
    pub image: String,
    /// Row 1.
    pub user: String,
    /// Row 47.
    pub entrypoint: Vec<String>,
    /// Row 47.
    pub health_check: Vec<String>,
    /// Row 6.
    pub privileged: bool,
    /// Rows 6, 7 and 48.
    pub network_mode: String,
    /// Row 35, in bytes.
    pub memory_bytes: i64,
    /// Row 35, memory included, in bytes.
    pub memory_and_swap_bytes: i64,
    /// Row 37.
    pub oom_kill_disabled: bool,
    /// Row 38.
    pub processes: i64,
    /// Row 39, in billionths of a CPU.
    pub nano_cpus: i64,
    /// Row 39.
    pub cpu_shares: i64,
    /// Row 45.
    pub log_driver: String,
    /// Row 46.
    pub restart_policy: String,
    /// Row 46.
    pub auto_remove: bool,
    /// Row 51: published ports, links and further hosts.
    pub published: usize,
    /// Row 21.
    pub apparmor_profile: String,
    /// Row 11: the profile itself.
    pub seccomp_profile: Option<String>,
    /// Row 41: limits on block devices.
    pub block_limits: usize,
}
