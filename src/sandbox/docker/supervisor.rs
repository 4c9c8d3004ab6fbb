//! The supervisor's volume: made once per version, shared read-only by every sandbox.
//!
//! The engine gives no way to fill a volume but through a container. One is created for that from
//! the sandbox's image and never started; the program goes in as a plain archive of one file
//! (security.md finding 5), is read back, and compared.

use bollard::Docker;
use bollard::models::{
    ContainerCreateBody, HostConfig, Mount, MountType, MountVolumeOptions, VolumeCreateRequest,
};
use bollard::query_parameters::{
    CreateContainerOptions, DownloadFromContainerOptions, UploadToContainerOptions,
};
use bytes::Bytes;
use futures_util::StreamExt as _;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::io::Read as _;
use tracing::info;

use super::client::{Call, bounded, is_missing};
use super::options::{LABEL_EXECUTION, LABEL_INSTANCE};
use crate::ids::{ExecutionId, InstanceId};
use crate::sandbox::engine::EngineError;
use crate::sandbox::policy::SUPERVISOR_DIRECTORY;
use crate::sandbox::template::Image;

/// The static program that is PID 1 of every sandbox.
pub const SUPERVISOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/supervisor"));

const FILE_NAME: &str = "supervisor";

/// An archive with the supervisor and its framing is not longer than this.
const MAX_ARCHIVE_BYTES: usize = SUPERVISOR.len() + (64 << 10);

/// The volume's name, which follows from its content.
#[must_use]
pub fn volume_name() -> String {
    let digest = hex::encode(Sha256::digest(SUPERVISOR));
    format!("fumehood-supervisor-{}", &digest[..16])
}

/// The volume as the engine shows it. One that was removed and made again by the same name, or
/// written to, is another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SupervisorVolume {
    pub(super) name: String,
    created_at: Option<String>,
}

impl SupervisorVolume {
    /// Looks for the volume on the engine.
    pub(super) async fn find(docker: &Docker) -> Result<Option<Self>, EngineError> {
        let name = volume_name();
        match bounded(Call::InspectVolume, docker.inspect_volume(&name)).await {
            Ok(volume) => Ok(Some(Self {
                created_at: volume.created_at.map(|time| time.to_string()),
                name,
            })),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Makes the volume if it is not there.
pub(super) async fn make_volume(docker: &Docker) -> Result<(), EngineError> {
    let volume = volume_name();
    let label = ("fumehood.supervisor".to_owned(), volume.clone());
    let request = VolumeCreateRequest {
        name: Some(volume),
        labels: Some(HashMap::from([label])),
        ..Default::default()
    };
    bounded(Call::CreateVolume, docker.create_volume(request))
        .await
        .map(drop)
}

/// Makes the container through which the volume is filled. It has the labels of a sandbox, so that
/// one that is left is found at the next start.
pub(super) async fn create_helper(
    docker: &Docker,
    name: &str,
    instance: &InstanceId,
    execution: &ExecutionId,
    image: &Image,
) -> Result<(), EngineError> {
    let mount = Mount {
        typ: Some(MountType::VOLUME),
        source: Some(volume_name()),
        target: Some(SUPERVISOR_DIRECTORY.to_owned()),
        volume_options: Some(MountVolumeOptions {
            no_copy: Some(true),
            ..Default::default()
        }),
        ..Default::default()
    };
    let body = ContainerCreateBody {
        image: Some(image.id.clone()),
        entrypoint: Some(vec![format!("{SUPERVISOR_DIRECTORY}/{FILE_NAME}")]),
        network_disabled: Some(true),
        labels: Some(HashMap::from([
            (LABEL_INSTANCE.to_owned(), instance.to_string()),
            (LABEL_EXECUTION.to_owned(), execution.to_string()),
        ])),
        host_config: Some(HostConfig {
            mounts: Some(vec![mount]),
            ..Default::default()
        }),
        ..Default::default()
    };
    let options = CreateContainerOptions {
        name: Some(name.to_owned()),
        ..Default::default()
    };
    bounded(Call::Create, docker.create_container(Some(options), body))
        .await
        .map(drop)
}

/// Makes sure that the volume holds exactly this supervisor.
pub(super) async fn fill(docker: &Docker, helper: &str) -> Result<(), EngineError> {
    if content(docker, helper).await?.as_deref() == Some(SUPERVISOR) {
        return Ok(());
    }
    info!(
        bytes = SUPERVISOR.len(),
        "writing the supervisor into its volume"
    );
    let options = UploadToContainerOptions {
        path: SUPERVISOR_DIRECTORY.to_owned(),
        ..Default::default()
    };
    let archive = archive().map_err(|error| EngineError::Failed {
        call: "copy the supervisor",
        source: error.into(),
    })?;
    let body = bollard::body_full(Bytes::from(archive));
    bounded(
        Call::CopySupervisor,
        docker.upload_to_container(helper, Some(options), body),
    )
    .await?;
    if content(docker, helper).await?.as_deref() == Some(SUPERVISOR) {
        return Ok(());
    }
    Err(EngineError::PolicyNotApplied(
        "the supervisor's volume holds another program".to_owned(),
    ))
}

fn archive() -> std::io::Result<Vec<u8>> {
    let mut header = tar::Header::new_ustar();
    header.set_size(SUPERVISOR.len() as u64);
    header.set_mode(0o555);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    let mut archive = tar::Builder::new(Vec::new());
    archive.append_data(&mut header, FILE_NAME, SUPERVISOR)?;
    archive.into_inner()
}

/// What the volume holds, read through the engine's archive call; `None` if there is nothing, or
/// too much.
async fn content(docker: &Docker, helper: &str) -> Result<Option<Vec<u8>>, EngineError> {
    let options = DownloadFromContainerOptions {
        path: format!("{SUPERVISOR_DIRECTORY}/{FILE_NAME}"),
    };
    let download = async {
        let mut stream = docker.download_from_container(helper, Some(options));
        let mut bytes = Vec::new();
        while let Some(piece) = stream.next().await {
            bytes.extend_from_slice(&piece?);
            if bytes.len() > MAX_ARCHIVE_BYTES {
                return Ok(None);
            }
        }
        Ok(Some(bytes))
    };
    match bounded(Call::CopySupervisor, download).await {
        Ok(bytes) => Ok(bytes.and_then(|bytes| only_file(&bytes))),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn only_file(archive: &[u8]) -> Option<Vec<u8>> {
    let mut archive = tar::Archive::new(archive);
    let entry = archive.entries().ok()?.next()?.ok()?;
    let executable =
        entry.header().entry_type().is_file() && entry.header().mode().ok()? & 0o777 == 0o555;
    let mut bytes = Vec::new();
    entry
        .take(MAX_ARCHIVE_BYTES as u64)
        .read_to_end(&mut bytes)
        .ok()?;
    executable.then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_holds_the_supervisor_and_nothing_else() {
        assert_eq!(only_file(&archive().unwrap()).as_deref(), Some(SUPERVISOR));
    }

    #[test]
    fn the_supervisor_is_a_static_program() {
        // An ELF program that needs a loader has an interpreter segment (type 3).
        let field = |offset: usize| {
            u64::from(u16::from_le_bytes([
                SUPERVISOR[offset],
                SUPERVISOR[offset + 1],
            ]))
        };
        assert_eq!(&SUPERVISOR[..4], b"\x7fELF");
        let headers = u64::from_le_bytes(SUPERVISOR[32..40].try_into().unwrap());
        for index in 0..field(56) {
            let start = usize::try_from(headers + index * field(54)).unwrap();
            let kind = u32::from_le_bytes(SUPERVISOR[start..start + 4].try_into().unwrap());
            assert_ne!(kind, 3, "the supervisor asks for a dynamic loader");
        }
    }
}
