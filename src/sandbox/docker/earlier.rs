//! What other versions of fumehood have left on the engine: volumes of their supervisors, and images
//! of their recipes. Nothing is taken that is in use, which the engine refuses, nor what this version
//! or the configuration names. Off unless the configuration gives a time: another daemon on the same
//! engine may be of such a version.
//!
//! How old something is cannot be asked of the engine: it notes the wall clock, which anybody may set. So
//! a thing's age is for how long it has been seen here, which the store keeps.

use std::collections::HashMap;
use std::time::Duration;

use bollard::models::{ImageSummary, Volume};
use bollard::query_parameters::{
    ListImagesOptionsBuilder, ListVolumesOptionsBuilder, RemoveImageOptions, RemoveVolumeOptions,
};

use super::DockerEngine;
use super::client::{Call, is_missing};
use super::images::{LABEL_IMAGE, default_reference};
use super::supervisor::{LABEL_SUPERVISOR, volume_name};
use crate::sandbox::engine::EngineError;

/// What stands before every name of a volume of ours.
const VOLUME_PREFIX: &str = "fumehood-supervisor-";

/// For how long what is of other versions is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// Volumes; `None` is for ever.
    pub volumes: Option<Duration>,
    /// Images; `None` is for ever.
    pub images: Option<Duration>,
    /// Images that are kept in any case, by their references.
    pub named: Vec<String>,
}

impl Kept {
    /// Whether anything can go at all.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.volumes.is_some() || self.images.is_some()
    }
}

/// Something of another version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Earlier {
    /// A volume, by its name.
    Volume(String),
    /// An image, by its reference, or by its id if it has none.
    Image(String),
}

impl Earlier {
    /// What it is, in a word.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Volume(_) => "volume",
            Self::Image(_) => "image",
        }
    }

    /// What the engine calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Volume(name) | Self::Image(name) => name,
        }
    }
}

/// Something of another version that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// It.
    pub earlier: Earlier,
    /// Tells it from another one of the same name: when the volume was made, or which image it is.
    pub mark: String,
}

impl Kept {
    /// Whether something goes that has been seen for so long.
    #[must_use]
    pub fn is_over(&self, earlier: &Earlier, seen: Duration) -> bool {
        let kept = match earlier {
            Earlier::Volume(_) => self.volumes,
            Earlier::Image(_) => self.images,
        };
        kept.is_some_and(|kept| seen > kept)
    }
}

impl DockerEngine {
    /// What there is of other versions, of the kinds that are not kept for ever.
    ///
    /// # Errors
    ///
    /// [`EngineError`] if the engine does not tell.
    pub async fn earlier(&self, kept: &Kept) -> Result<Vec<Found>, EngineError> {
        let docker = self.client().await?;
        let mut found = Vec::new();
        if kept.volumes.is_some() {
            let filters = HashMap::from([("label", vec![LABEL_SUPERVISOR])]);
            let options = ListVolumesOptionsBuilder::new().filters(&filters).build();
            let listed = docker
                .once(Call::ListEarlier, docker.list_volumes(Some(options)))
                .await?;
            found.extend(volumes(listed.volumes.unwrap_or_default()));
        }
        if kept.images.is_some() {
            let filters = HashMap::from([("label", vec![LABEL_IMAGE])]);
            let options = ListImagesOptionsBuilder::new().filters(&filters).build();
            let listed = docker
                .once(Call::ListEarlier, docker.list_images(Some(options)))
                .await?;
            found.extend(images(listed, &kept.named));
        }
        Ok(found)
    }

    /// Removes it, unless it is in use.
    ///
    /// # Errors
    ///
    /// [`EngineError`] if it stays.
    pub async fn remove_earlier(&self, earlier: &Earlier) -> Result<(), EngineError> {
        let docker = self.client().await?;
        // Not by force: what a container uses stays.
        let removed = match earlier {
            Earlier::Volume(name) => {
                let removing = docker.remove_volume(name, None::<RemoveVolumeOptions>);
                docker.once(Call::RemoveEarlier, removing).await
            }
            Earlier::Image(name) => {
                let removing = docker.remove_image(name, None::<RemoveImageOptions>, None);
                docker.once(Call::RemoveEarlier, removing).await.map(drop)
            }
        };
        match removed {
            Err(error) if is_missing(&error) => Ok(()),
            removed => removed,
        }
    }
}

fn volumes(listed: Vec<Volume>) -> Vec<Found> {
    let current = volume_name();
    let ours = listed
        .into_iter()
        .filter(|volume| volume.name.starts_with(VOLUME_PREFIX) && volume.name != current);
    ours.map(|volume| Found {
        mark: volume
            .created_at
            .map_or_else(String::new, |made| made.to_string()),
        earlier: Earlier::Volume(volume.name),
    })
    .collect()
}

/// An image that has any name that is kept stays under all its names.
fn images(listed: Vec<ImageSummary>, named: &[String]) -> Vec<Found> {
    let default = default_reference();
    let mut found = Vec::new();
    for image in listed {
        let mut tags: Vec<String> = image
            .repo_tags
            .into_iter()
            .filter(|tag| !tag.contains("<none>"))
            .collect();
        let is_kept = |name: &String| *name == default || named.contains(name);
        if tags.iter().chain([&image.id]).any(is_kept) {
            continue;
        }
        if tags.is_empty() {
            tags.push(image.id.clone());
        }
        // By each of its names: the last takes the image with it.
        found.extend(tags.into_iter().map(|tag| Found {
            earlier: Earlier::Image(tag),
            mark: image.id.clone(),
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn image(tags: &[&str], number: i64) -> ImageSummary {
        ImageSummary {
            id: format!("sha256:{number}"),
            repo_tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
            ..Default::default()
        }
    }

    fn volume(name: &str) -> Volume {
        Volume {
            name: name.to_owned(),
            created_at: "2026-11-30T00:00:00Z".parse().ok(),
            ..Default::default()
        }
    }

    #[test]
    fn an_image_may_go_if_it_has_no_name_that_is_kept() {
        let listed = vec![
            image(&["f:old", "f:also"], 1),
            image(&["f:named", "f:x"], 2),
            image(&[&default_reference()], 3),
            image(&["<none>:<none>"], 4),
        ];
        let found = images(listed, &["f:named".to_owned()]);
        let names: Vec<&str> = found.iter().map(|found| found.earlier.name()).collect();
        assert_eq!(names, ["f:old", "f:also", "sha256:4"]);
        let marks: Vec<&str> = found.iter().map(|found| found.mark.as_str()).collect();
        assert_eq!(marks, ["sha256:1", "sha256:1", "sha256:4"]);
    }

    #[test]
    fn a_volume_may_go_if_it_is_ours_and_of_another_version() {
        let listed = vec![
            volume("fumehood-supervisor-a"),
            volume("of-somebody-else"),
            volume(&volume_name()),
            Volume {
                name: "fumehood-supervisor-undated".to_owned(),
                ..Default::default()
            },
        ];
        let found = volumes(listed);
        let names: Vec<&str> = found.iter().map(|found| found.earlier.name()).collect();
        assert_eq!(
            names,
            ["fumehood-supervisor-a", "fumehood-supervisor-undated"]
        );
        assert_ne!(found[0].mark, found[1].mark);
    }

    #[test]
    fn what_has_been_seen_for_longer_than_its_kind_is_kept_is_over() {
        let kept = Kept {
            volumes: Some(DAY),
            images: None,
            named: Vec::new(),
        };
        let volume = Earlier::Volume("v".to_owned());
        assert!(!kept.is_over(&volume, DAY));
        assert!(kept.is_over(&volume, DAY + Duration::from_secs(1)));
        assert!(!kept.is_over(&Earlier::Image("i".to_owned()), 99 * DAY));
    }
}
