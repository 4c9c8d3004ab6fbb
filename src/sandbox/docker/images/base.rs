//! The base that the sandbox image is built upon: given, pulled, or made from Debian packages.
//!
//! Owns the choice between the three, and the one place where a foreign program is started:
//! `mmdebstrap`, with fixed arguments, a bound and an environment of ours.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::CreateImageOptionsBuilder;
use bytes::Bytes;
use futures_util::{Stream, stream};
use rustix::process::{Pid, Signal, kill_process_group};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::engine::{Patience, StreamFailure, call, drain, is_not_found};
use super::output::Lines;
use super::{ImageBuildError, Progress};

/// Asks for a base made from Debian packages, and is what such a base is called.
pub const DEBIAN_PACKAGES: &str = "debian-packages";
/// Tried first where no base is named.
const REGISTRY_BASE: &str = "docker.io/library/python:3.12-slim-bookworm";
/// Where a base made here is kept for the next build.
const LOCAL_REPOSITORY: &str = "fumehood/base";

/// `images/base` explains them. The output file is added as the last argument.
const MMDEBSTRAP: &str = "mmdebstrap";
const MMDEBSTRAP_ARGUMENTS: &[&str] = &[
    "--variant=minbase",
    "--include=python3,ca-certificates",
    "--format=tar",
    "bookworm",
];
const MMDEBSTRAP_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const MMDEBSTRAP_LIMIT: Duration = Duration::from_mins(10);
/// Between asking it to clean up and ending it.
const MMDEBSTRAP_GRACE: Duration = Duration::from_secs(10);

const PULL: Patience = Patience {
    total: Duration::from_mins(10),
    silence: Duration::from_secs(60),
};
/// The engine says nothing until it has read the whole archive.
const IMPORT: Patience = Patience {
    total: Duration::from_mins(5),
    silence: Duration::from_mins(5),
};
const CHUNK_BYTES: usize = 256 * 1024;

/// A base that is on the engine.
#[derive(Debug)]
pub(super) struct Base {
    /// What the engine knows it as.
    pub(super) reference: String,
    /// What the label of the finished image says.
    pub(super) label: String,
}

impl Base {
    fn named(reference: &str) -> Self {
        Self {
            reference: reference.to_owned(),
            label: reference.to_owned(),
        }
    }
}

/// Finds or makes the base. `fresh` makes one from packages anew, to get their updates.
pub(super) async fn obtain(
    docker: &Docker,
    wanted: Option<&str>,
    fresh: bool,
    progress: &mut dyn Progress,
) -> Result<Base, ImageBuildError> {
    match wanted {
        Some(DEBIAN_PACKAGES) => from_packages(docker, fresh, progress).await,
        Some(reference) => match present_or_pulled(docker, reference, progress).await {
            Ok(()) => Ok(Base::named(reference)),
            Err(source) => Err(ImageBuildError::Base {
                base: reference.to_owned(),
                source: Box::new(source),
            }),
        },
        None => match present_or_pulled(docker, REGISTRY_BASE, progress).await {
            Ok(()) => Ok(Base::named(REGISTRY_BASE)),
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "base not pulled");
                progress.step("No registry to pull a base from: making one from Debian packages");
                from_packages(docker, fresh, progress).await
            }
        },
    }
}

async fn is_present(docker: &Docker, reference: &str) -> Result<bool, ImageBuildError> {
    match call("look up an image", docker.inspect_image(reference)).await {
        Ok(_) => Ok(true),
        Err(error) if is_not_found(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn present_or_pulled(
    docker: &Docker,
    reference: &str,
    progress: &mut dyn Progress,
) -> Result<(), ImageBuildError> {
    if is_present(docker, reference).await? {
        return Ok(());
    }
    progress.step(&format!("Pulling {reference}"));
    let (name, tag) = split_reference(reference);
    let options = CreateImageOptionsBuilder::new()
        .from_image(name)
        .tag(tag)
        .build();
    let mut lines = Lines::default();
    let pulled = drain(
        docker.create_image(Some(options), None, None),
        PULL,
        |info| {
            // Lines with progress come by the hundred and say only how many bytes there are.
            if let (Some(status), None) =
                (info.status, info.progress_detail.and_then(|of| of.current))
            {
                lines.push(status.as_bytes(), progress);
                lines.finish(progress);
            }
        },
    );
    pulled
        .await
        .map_err(|failure| failure.during("pull a base image"))
}

/// Without a tag the engine would pull every one there is.
fn split_reference(reference: &str) -> (&str, &str) {
    if let Some((name, digest)) = reference.split_once('@') {
        return (name, digest);
    }
    match reference.rsplit_once(':') {
        // A colon before a slash belongs to a port.
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (reference, "latest"),
    }
}

/// The tag names the arguments that the base was made with.
fn packages_tag() -> String {
    let digest = hex::encode(Sha256::digest(MMDEBSTRAP_ARGUMENTS.join("\n")));
    format!("debian-{}", digest.get(..16).unwrap_or(&digest))
}

async fn from_packages(
    docker: &Docker,
    fresh: bool,
    progress: &mut dyn Progress,
) -> Result<Base, ImageBuildError> {
    let tag = packages_tag();
    let reference = format!("{LOCAL_REPOSITORY}:{tag}");
    let base = Base {
        reference,
        label: DEBIAN_PACKAGES.to_owned(),
    };
    if !fresh && is_present(docker, &base.reference).await? {
        return Ok(base);
    }
    let directory = tempfile::tempdir().map_err(ImageBuildError::Temporary)?;
    let archive = directory.path().join("base.tar");
    progress.step("Making a base from Debian packages");
    bootstrap(&archive, progress).await?;
    progress.step("Importing the base into the engine");
    import(docker, &archive, &tag).await?;
    Ok(base)
}

async fn import(docker: &Docker, archive: &Path, tag: &str) -> Result<(), ImageBuildError> {
    let file = tokio::fs::File::open(archive)
        .await
        .map_err(ImageBuildError::Temporary)?;
    let options = CreateImageOptionsBuilder::new()
        .from_src("-")
        .repo(LOCAL_REPOSITORY)
        .tag(tag)
        .build();
    let body = bollard::body_try_stream(chunks(file));
    drain(
        docker.create_image(Some(options), Some(body), None),
        IMPORT,
        |_| (),
    )
    .await
    .map_err(|failure: StreamFailure| failure.during("import the base"))
}

fn chunks(file: tokio::fs::File) -> impl Stream<Item = std::io::Result<Bytes>> + Send + 'static {
    stream::try_unfold(file, async |mut file| {
        let mut chunk = vec![0; CHUNK_BYTES];
        let length = file.read(&mut chunk).await?;
        chunk.truncate(length);
        Ok((length > 0).then(|| (Bytes::from(chunk), file)))
    })
}

async fn bootstrap(archive: &Path, progress: &mut dyn Progress) -> Result<(), ImageBuildError> {
    let started = Command::new(MMDEBSTRAP)
        .args(MMDEBSTRAP_ARGUMENTS)
        .arg(archive)
        .env_clear()
        .env("PATH", MMDEBSTRAP_PATH)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // Its helpers are in the group too, so that all of them can be ended.
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(ImageBuildError::NoMmdebstrap);
        }
        Err(error) => return Err(ImageBuildError::RunMmdebstrap(error)),
    };
    let output = child.stderr.take();
    let finished = timeout(MMDEBSTRAP_LIMIT, async {
        if let Some(output) = output {
            forward(output, progress).await?;
        }
        child.wait().await
    });
    match finished.await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(ImageBuildError::Mmdebstrap { status }),
        Ok(Err(error)) => {
            end(&mut child).await;
            Err(ImageBuildError::RunMmdebstrap(error))
        }
        Err(_) => {
            end(&mut child).await;
            let task = "make a base from Debian packages";
            Err(ImageBuildError::TooSlow {
                task,
                limit: MMDEBSTRAP_LIMIT,
            })
        }
    }
}

async fn forward(
    mut output: impl AsyncRead + Unpin,
    progress: &mut dyn Progress,
) -> std::io::Result<()> {
    let mut lines = Lines::default();
    let mut chunk = [0; 4096];
    loop {
        let length = output.read(&mut chunk).await?;
        let Some(read) = chunk.get(..length).filter(|read| !read.is_empty()) else {
            lines.finish(progress);
            return Ok(());
        };
        lines.push(read, progress);
    }
}

/// Lets it undo its mounts, then ends it and its helpers whatever they are doing.
async fn end(child: &mut Child) {
    let Some(group) = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(Pid::from_raw)
    else {
        return;
    };
    for signal in [Signal::TERM, Signal::KILL] {
        // Fails only if nobody is left to signal.
        let _ = kill_process_group(group, signal);
        if timeout(MMDEBSTRAP_GRACE, child.wait()).await.is_ok() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_split_at_the_tag_and_not_at_a_port() {
        assert_eq!(split_reference("python"), ("python", "latest"));
        assert_eq!(split_reference("python:3.12"), ("python", "3.12"));
        assert_eq!(
            split_reference("host:5000/a/b"),
            ("host:5000/a/b", "latest")
        );
        assert_eq!(split_reference("host:5000/a/b:c"), ("host:5000/a/b", "c"));
        assert_eq!(split_reference("a/b@sha256:00"), ("a/b", "sha256:00"));
    }

    #[test]
    fn the_tag_of_a_made_base_is_a_valid_one() {
        let tag = packages_tag();
        assert_eq!(tag, packages_tag());
        assert!(tag.len() == "debian-".len() + 16, "{tag}");
    }

    #[tokio::test]
    async fn a_file_is_streamed_whole_in_bounded_chunks() {
        use futures_util::TryStreamExt;

        let content: Vec<u8> = (0..=u8::MAX).cycle().take(CHUNK_BYTES + 10).collect();
        let file = tempfile::NamedTempFile::new().unwrap();
        tokio::fs::write(file.path(), &content).await.unwrap();
        let open = tokio::fs::File::open(file.path()).await.unwrap();
        let read: Vec<Bytes> = chunks(open).try_collect().await.unwrap();
        assert!(
            read.iter()
                .all(|chunk| !chunk.is_empty() && chunk.len() <= CHUNK_BYTES)
        );
        assert_eq!(read.concat(), content);
    }
}
