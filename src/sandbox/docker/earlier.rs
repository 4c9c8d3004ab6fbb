//! What other versions of fumehood have left on the engine: volumes of their supervisors, and images
//! of their recipes. Nothing is taken that is in use, which the engine refuses, nor what this version
//! or the configuration names. Off unless the configuration gives a time: another daemon on the same
//! engine may be of such a version.

use std::collections::HashMap;
use std::time::Duration;

use bollard::models::{ImageSummary, Volume};
use bollard::query_parameters::{
    ListImagesOptionsBuilder, ListVolumesOptionsBuilder, RemoveImageOptions, RemoveVolumeOptions,
};
use jiff::Timestamp;

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

impl DockerEngine {
    /// What is of other versions and older than it is kept.
    ///
    /// # Errors
    ///
    /// [`EngineError`] if the engine does not tell.
    pub async fn earlier(&self, kept: &Kept, now: Timestamp) -> Result<Vec<Earlier>, EngineError> {
        let docker = self.client().await?;
        let mut found = Vec::new();
        if let Some(time) = kept.volumes {
            let filters = HashMap::from([("label", vec![LABEL_SUPERVISOR])]);
            let options = ListVolumesOptionsBuilder::new().filters(&filters).build();
            let listed = docker
                .once(Call::ListEarlier, docker.list_volumes(Some(options)))
                .await?;
            found.extend(volumes(listed.volumes.unwrap_or_default(), now, time));
        }
        if let Some(time) = kept.images {
            let filters = HashMap::from([("label", vec![LABEL_IMAGE])]);
            let options = ListImagesOptionsBuilder::new().filters(&filters).build();
            let listed = docker
                .once(Call::ListEarlier, docker.list_images(Some(options)))
                .await?;
            found.extend(images(listed, now, time, &kept.named));
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

fn is_older(created: Timestamp, now: Timestamp, time: Duration) -> bool {
    Duration::try_from(now.duration_since(created)).is_ok_and(|age| age > time)
}

fn volumes(listed: Vec<Volume>, now: Timestamp, time: Duration) -> Vec<Earlier> {
    let current = volume_name();
    let is_old = |volume: &Volume| {
        // One of which nobody knows when it was made stays.
        let created = volume.created_at.as_ref();
        let created = created.and_then(|time| time.to_string().parse::<Timestamp>().ok());
        created.is_some_and(|created| is_older(created, now, time))
    };
    let ours = listed.into_iter().filter(|volume| {
        volume.name.starts_with(VOLUME_PREFIX) && volume.name != current && is_old(volume)
    });
    ours.map(|volume| Earlier::Volume(volume.name)).collect()
}

/// An image that has any name that is kept stays under all its names.
fn images(
    listed: Vec<ImageSummary>,
    now: Timestamp,
    time: Duration,
    named: &[String],
) -> Vec<Earlier> {
    let default = default_reference();
    let mut found = Vec::new();
    for image in listed {
        let tags: Vec<String> = image
            .repo_tags
            .into_iter()
            .filter(|tag| !tag.contains("<none>"))
            .collect();
        let is_kept = |name: &String| *name == default || named.contains(name);
        let created = Timestamp::from_second(image.created).ok();
        let is_old = created.is_some_and(|created| is_older(created, now, time));
        if !is_old || tags.iter().chain([&image.id]).any(is_kept) {
            continue;
        }
        // By each of its names: the last takes the image with it.
        if tags.is_empty() {
            found.push(Earlier::Image(image.id));
        } else {
            found.extend(tags.into_iter().map(Earlier::Image));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn now() -> Timestamp {
        Timestamp::from_second(100 * 86_400).unwrap()
    }

    fn image(tags: &[&str], day: i64) -> ImageSummary {
        ImageSummary {
            id: format!("sha256:{day}"),
            repo_tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
            created: day * 86_400,
            ..Default::default()
        }
    }

    fn volume(name: &str, day: i64) -> Volume {
        let created = Timestamp::from_second(day * 86_400).unwrap();
        Volume {
            name: name.to_owned(),
            created_at: created.to_string().parse().ok(),
            ..Default::default()
        }
    }

    #[test]
    fn an_image_goes_if_it_is_old_and_has_no_name_that_is_kept() {
        let listed = vec![
            image(&["f:new"], 99),
            image(&["f:old", "f:also"], 1),
            image(&["f:named", "f:x"], 2),
            image(&[&default_reference()], 3),
            image(&["<none>:<none>"], 4),
        ];
        let named = ["f:named".to_owned()];
        let names: Vec<String> = images(listed, now(), 10 * DAY, &named)
            .iter()
            .map(|found| found.name().to_owned())
            .collect();
        assert_eq!(names, ["f:old", "f:also", "sha256:4"]);
    }

    #[test]
    fn a_volume_goes_if_it_is_old_ours_and_of_another_version() {
        let listed = vec![
            volume("fumehood-supervisor-a", 1),
            volume("fumehood-supervisor-b", 99),
            volume("of-somebody-else", 1),
            volume(&volume_name(), 1),
            Volume {
                name: "fumehood-supervisor-undated".to_owned(),
                ..Default::default()
            },
        ];
        let found = volumes(listed, now(), 10 * DAY);
        assert_eq!(found, [Earlier::Volume("fumehood-supervisor-a".to_owned())]);
    }

    #[test]
    fn what_comes_from_the_future_stays() {
        assert_eq!(images(vec![image(&["f:x"], 200)], now(), DAY, &[]), []);
    }
}
