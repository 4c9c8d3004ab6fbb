//! What is fixed when a container is created.

use crate::execution::{DatasetPin, Limits};

/// An installed image, pinned by its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// As configured.
    pub reference: String,
    /// `sha256:…`: what a container is created from, whatever the reference is moved to.
    pub id: String,
    /// Names of the environment variables that the image sets.
    pub environment_names: Vec<String>,
}

/// Everything about a sandbox that cannot change after its container exists.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    /// What it is made from.
    pub image: Image,
    /// The engine's runtime; `None` is the engine's default.
    pub runtime: Option<String>,
    /// Uid and gid of everything in it, unlike that of any other sandbox at the same time.
    pub uid: u32,
    /// The directory mounted at `/data`.
    pub dataset: Option<DatasetPin>,
    /// What the program may use.
    pub limits: Limits,
}
