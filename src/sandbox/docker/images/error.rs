//! The ways in which making an image fails.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// Why no image came about. Each message names what failed and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum ImageBuildError {
    /// The engine refused a call or broke it off.
    #[error("the engine failed to {task}; check that it is running and see its log")]
    Engine {
        /// What the engine was asked to do.
        task: &'static str,
        /// What the engine answered.
        #[source]
        source: bollard::errors::Error,
    },
    /// A piece of work took longer than it may.
    #[error("giving up to {task}: not done after {} s; check the network and the engine", .limit.as_secs())]
    TooSlow {
        /// The piece of work.
        task: &'static str,
        /// How long it may take.
        limit: Duration,
    },
    /// A piece of work gave no sign of life for too long.
    #[error("giving up to {task}: nothing was heard for {} s; check the network and the engine", .limit.as_secs())]
    Silent {
        /// The piece of work.
        task: &'static str,
        /// How long it may be silent.
        limit: Duration,
    },
    /// A step of the recipe failed.
    #[error(
        "building {reference} failed; the last lines of its output say where. If TLS is re-signed \
         on the way out, pass the CA bundle of the proxy"
    )]
    Build {
        /// The image.
        reference: String,
        /// The engine's account.
        #[source]
        source: bollard::errors::Error,
    },
    /// The base that was asked for is neither on the engine nor to be had from a registry.
    #[error(
        "the base image {base} is not on the engine and cannot be pulled; load it into the engine, \
         or name no base to have one made from Debian packages"
    )]
    Base {
        /// The base.
        base: String,
        /// Why the pull failed.
        #[source]
        source: Box<ImageBuildError>,
    },
    /// `mmdebstrap` is needed and not there.
    #[error(
        "mmdebstrap, which makes a base from Debian packages where no registry can be reached, is \
         not installed; `apt-get install mmdebstrap`, or name a base that the engine has"
    )]
    NoMmdebstrap,
    /// `mmdebstrap` could not be run.
    #[error("mmdebstrap could not be run; try it by hand as images/base tells")]
    RunMmdebstrap(#[source] std::io::Error),
    /// `mmdebstrap` ran and failed.
    #[error("mmdebstrap failed ({status}); its output says why. It needs a Debian mirror and root")]
    Mmdebstrap {
        /// How it ended.
        status: ExitStatus,
    },
    /// The CA bundle cannot be used.
    #[error("the CA bundle {path} cannot be read; name a PEM file of at most {limit} bytes")]
    CaBundle {
        /// The file.
        path: PathBuf,
        /// How large it may be.
        limit: u64,
        /// What went wrong.
        #[source]
        source: std::io::Error,
    },
    /// A temporary file cannot be written or read.
    #[error("a temporary file failed; the directory for temporary files needs 500 MB of room")]
    Temporary(#[source] std::io::Error),
}
