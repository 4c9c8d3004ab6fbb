//! What is fixed when a container is created.

use std::time::Duration;

use crate::execution::DatasetPin;
use crate::execution::spec::SandboxLimits;
use crate::ids::ExecutionId;

/// An installed image, pinned by its content.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Image {
    /// As configured.
    pub reference: String,
    /// `sha256:…`: what a container is created from, whatever the reference is moved to.
    pub id: String,
    /// Names of the environment variables that the image sets.
    pub environment_names: Vec<String>,
}

/// Everything about a sandbox that cannot change after its container exists, except what makes it
/// this one sandbox: two of one template are as good as each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Template {
    /// What it is made from.
    pub image: Image,
    /// The engine's runtime; `None` is the engine's default.
    pub runtime: Option<String>,
    /// What is at `/data`.
    pub dataset: DatasetMount,
    /// What the program may use.
    pub limits: SandboxLimits,
    /// Whether an interpreter is started before there is a program.
    pub interpreter: bool,
}

/// How a data set gets into a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DatasetMount {
    /// None does.
    None,
    /// The engine mounts it when it makes the container.
    Created(DatasetPin),
    /// The daemon may mount one into the waiting sandbox: an empty, read-only directory until then.
    Place,
}

/// A sandbox to be made.
#[derive(Debug, Clone)]
pub struct SandboxRequest {
    /// The one execution that it is for: names the container.
    pub execution: ExecutionId,
    /// What it is like.
    pub template: Template,
    /// Uid and gid of everything in it, unlike that of any other sandbox at the same time.
    pub uid: u32,
    /// How long it may be needed, from now.
    pub lifetime: Duration,
}
