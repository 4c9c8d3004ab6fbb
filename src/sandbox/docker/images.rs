//! The sandbox images of this project: building one and listing them, through the engine's API.
//!
//! Owns the recipe's way onto the engine. Never calls the docker command line, never pulls or
//! builds as a side effect of a run, and prints nothing: what happens is told to a [`Progress`].

mod base;
mod engine;
mod error;
mod output;
mod recipe;

use std::collections::HashMap;
use std::io::{Error as IoError, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::Docker;
use bollard::models::ImageInspect;
use bollard::query_parameters::{
    BuildImageOptions, BuildImageOptionsBuilder, ListImagesOptionsBuilder, RemoveImageOptions,
};
use tokio::io::AsyncReadExt;

use engine::{Patience, StreamFailure, call, drain, is_not_found};
use output::Lines;

pub use base::DEBIAN_PACKAGES;
pub use error::ImageBuildError;
pub use recipe::default_reference;

/// On every image of ours; its value says which recipe made it.
pub(super) const LABEL_IMAGE: &str = "fumehood.image";
/// The digest of the recipe.
const LABEL_RECIPE: &str = "fumehood.recipe";
/// What the image was built upon.
const LABEL_BASE: &str = "fumehood.base";

/// Taken along where it exists and no other bundle is named.
const HOST_CA_BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Ten times what the bundle of a distribution has.
const MAX_CA_BUNDLE_BYTES: u64 = 4 * 1024 * 1024;

const BUILD: Patience = Patience {
    total: Duration::from_mins(20),
    silence: Duration::from_mins(5),
};

/// What to build, and from what.
#[derive(Debug, Clone, Default)]
pub struct BuildOptions {
    /// The base image, or [`DEBIAN_PACKAGES`]. None: the official Python image if it is there or
    /// can be pulled, else Debian packages.
    pub base: Option<String>,
    /// The certificates that pip trusts during the build. None: the host's, if it has any.
    pub ca_bundle: Option<PathBuf>,
    /// What to call the image. None: [`default_reference`].
    pub tag: Option<String>,
    /// Builds even if the image is there, without cache, on a fresh base.
    pub rebuild: bool,
}

/// An image that is on the engine now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltImage {
    /// What it is called.
    pub reference: String,
    /// The digest of its configuration, `sha256:…`: what a run pins.
    pub id: String,
    /// How much room its layers take.
    pub size_bytes: u64,
    /// What it was built upon; none if the image does not say.
    pub base: Option<String>,
    /// Whether this call made it or found it.
    pub origin: Origin,
}

/// Where a [`BuiltImage`] came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It was there already.
    Found,
    /// It was built by this call.
    Built,
}

/// One image of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSummary {
    /// What it is called; its id if it has lost its name to a newer one.
    pub reference: String,
    /// The digest of its configuration.
    pub id: String,
    /// How much room its layers take.
    pub size_bytes: u64,
    /// When it was built, in seconds since 1970.
    pub created_unix_seconds: i64,
    /// What it was built upon.
    pub base: Option<String>,
    /// Whether it is the one that this version uses.
    pub is_default: bool,
}

/// Is told what goes on. The texts hold no control characters.
pub trait Progress: Send {
    /// A new piece of work begins.
    fn step(&mut self, text: &str);
    /// A line of output of the piece of work.
    fn detail(&mut self, line: &str);
}

/// Sees to it that the image is on the engine, building it if it is not.
pub async fn build(
    docker: &Docker,
    options: &BuildOptions,
    progress: &mut dyn Progress,
) -> Result<BuiltImage, ImageBuildError> {
    let reference = options.tag.clone().unwrap_or_else(default_reference);
    if !options.rebuild
        && let Some(found) = find(docker, &reference).await?
    {
        progress.step(&format!("{reference} is there already"));
        return Ok(describe(reference, found, Origin::Found));
    }
    let ca_bundle = ca_bundle(options.ca_bundle.as_deref()).await?;
    let context =
        recipe::context(recipe::FILES, ca_bundle.as_deref()).map_err(ImageBuildError::Temporary)?;
    let base = base::obtain(docker, options.base.as_deref(), options.rebuild, progress).await?;

    progress.step(&format!("Building {reference} on {}", base.reference));
    let call_options = build_options(&reference, &base, options.rebuild);
    let body = bollard::body_full(context.into());
    let mut lines = Lines::default();
    let streamed = drain(
        docker.build_image(call_options, None, Some(body)),
        BUILD,
        |info| {
            if let Some(text) = info.stream.or(info.status) {
                lines.push(text.as_bytes(), progress);
            }
        },
    )
    .await;
    lines.finish(progress);
    streamed.map_err(|failure| match failure {
        StreamFailure::Engine(source) => ImageBuildError::Build {
            reference: reference.clone(),
            source,
        },
        other @ (StreamFailure::TooSlow(_) | StreamFailure::Silent(_)) => {
            other.during("build the image")
        }
    })?;

    let built = call(
        "look up the image just built",
        docker.inspect_image(&reference),
    )
    .await?;
    discard_stages(docker, lines.layers()).await;
    Ok(describe(reference, built, Origin::Built))
}

/// All images of ours that are on the engine, newest first.
pub async fn list(docker: &Docker) -> Result<Vec<ImageSummary>, ImageBuildError> {
    let filters = HashMap::from([("label", vec![LABEL_IMAGE])]);
    let options = ListImagesOptionsBuilder::new().filters(&filters).build();
    let found = call("list images", docker.list_images(Some(options))).await?;
    Ok(summaries(found, &default_reference()))
}

fn summaries(found: Vec<bollard::models::ImageSummary>, default: &str) -> Vec<ImageSummary> {
    let mut all = Vec::new();
    for image in found {
        let mut references: Vec<_> = image
            .repo_tags
            .into_iter()
            .filter(|tag| !tag.contains("<none>"))
            .collect();
        if references.is_empty() {
            references.push(image.id.clone());
        }
        all.extend(references.into_iter().map(|reference| ImageSummary {
            is_default: reference == default,
            reference,
            id: image.id.clone(),
            size_bytes: u64::try_from(image.size).unwrap_or(0),
            created_unix_seconds: image.created,
            base: image.labels.get(LABEL_BASE).cloned(),
        }));
    }
    all.sort_by(|a, b| {
        b.created_unix_seconds
            .cmp(&a.created_unix_seconds)
            .then_with(|| a.reference.cmp(&b.reference))
    });
    all
}

fn build_options(reference: &str, base: &base::Base, rebuild: bool) -> BuildImageOptions {
    let digest = recipe::digest(recipe::FILES);
    BuildImageOptionsBuilder::new()
        .t(reference)
        .rm(true)
        .forcerm(true)
        .nocache(rebuild)
        .buildargs(&HashMap::from([("BASE", base.reference.as_str())]))
        .labels(&HashMap::from([
            (LABEL_IMAGE, "python"),
            (LABEL_RECIPE, digest.as_str()),
            (LABEL_BASE, base.label.as_str()),
        ]))
        .build()
}

async fn find(docker: &Docker, reference: &str) -> Result<Option<ImageInspect>, ImageBuildError> {
    match call("look up an image", docker.inspect_image(reference)).await {
        Ok(image) => Ok(Some(image)),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn describe(reference: String, image: ImageInspect, origin: Origin) -> BuiltImage {
    let mut labels = image
        .config
        .and_then(|config| config.labels)
        .unwrap_or_default();
    BuiltImage {
        id: image.id.unwrap_or_else(|| reference.clone()),
        reference,
        size_bytes: image
            .size
            .and_then(|size| u64::try_from(size).ok())
            .unwrap_or(0),
        base: labels.remove(LABEL_BASE),
        origin,
    }
}

async fn ca_bundle(named: Option<&Path>) -> Result<Option<Vec<u8>>, ImageBuildError> {
    let path = named.unwrap_or(Path::new(HOST_CA_BUNDLE));
    match read_capped(path, MAX_CA_BUNDLE_BYTES).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if named.is_none() && error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => {
            let limit = MAX_CA_BUNDLE_BYTES;
            Err(ImageBuildError::CaBundle {
                path: path.to_owned(),
                limit,
                source,
            })
        }
    }
}

async fn read_capped(path: &Path, limit: u64) -> std::io::Result<Vec<u8>> {
    let file = tokio::fs::File::open(path).await?;
    let mut bytes = Vec::new();
    let read = file.take(limit + 1).read_to_end(&mut bytes).await?;
    if read as u64 > limit {
        return Err(IoError::from(ErrorKind::FileTooLarge));
    }
    Ok(bytes)
}

/// The stages of a build stay on the engine as nameless images, twice as large as its result.
/// Removing them is a courtesy: the engine keeps those that somebody uses, and a failure is none
/// of the build's.
async fn discard_stages(docker: &Docker, layers: &[String]) {
    for id in layers.iter().rev() {
        let Ok(image) = call("look up a build stage", docker.inspect_image(id)).await else {
            continue;
        };
        if image.repo_tags.is_none_or(|tags| tags.is_empty()) {
            let removed = docker.remove_image(id, None::<RemoveImageOptions>, None);
            if let Err(error) = call("remove a build stage", removed).await {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, image = %id, "build stage kept");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine_image(tags: &[&str], created: i64) -> bollard::models::ImageSummary {
        bollard::models::ImageSummary {
            id: format!("sha256:{created}"),
            repo_tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
            created,
            size: 10,
            labels: HashMap::from([(LABEL_BASE.to_owned(), "debian-packages".to_owned())]),
            ..Default::default()
        }
    }

    #[test]
    fn the_list_has_one_row_a_name_newest_first_and_marks_the_default() {
        let found = vec![
            engine_image(&["<none>:<none>"], 1),
            engine_image(&["f:old", "f:also"], 2),
            engine_image(&["f:new"], 3),
        ];
        let rows = summaries(found, "f:new");
        let names: Vec<_> = rows.iter().map(|row| row.reference.as_str()).collect();
        assert_eq!(names, ["f:new", "f:also", "f:old", "sha256:1"]);
        assert!(
            rows.iter()
                .all(|row| row.is_default == (row.reference == "f:new"))
        );
        assert_eq!(rows[0].base.as_deref(), Some("debian-packages"));
    }

    #[test]
    fn a_build_says_what_it_is_made_of() {
        let base = base::Base {
            reference: "r:1".to_owned(),
            label: "l".to_owned(),
        };
        let options = build_options("f:x", &base, true);
        assert_eq!(options.buildargs.unwrap()["BASE"], "r:1");
        let labels = options.labels.unwrap();
        assert_eq!(labels[LABEL_BASE], "l");
        assert_eq!(labels[LABEL_RECIPE].len(), 64);
        assert!(options.nocache && options.rm);
    }

    #[tokio::test]
    async fn a_named_bundle_must_be_readable_and_small() {
        let missing = ca_bundle(Some(Path::new("/nowhere/ca.crt"))).await;
        assert!(matches!(missing, Err(ImageBuildError::CaBundle { .. })));

        let file = tempfile::NamedTempFile::new().unwrap();
        tokio::fs::write(file.path(), b"12345").await.unwrap();
        assert_eq!(read_capped(file.path(), 5).await.unwrap(), b"12345");
        let error = read_capped(file.path(), 4).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
    }
}
