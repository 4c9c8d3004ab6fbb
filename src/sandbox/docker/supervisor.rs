//! The supervisor's volume: made once per version, shared read-only by every sandbox.
//!
//! The engine gives no way to fill a volume but through a container. One is created for that from
//! the sandbox's image and never started; the program goes in as a plain archive of one file
//! (security.md finding 5), is read back, and compared.

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

use super::calls::Manner;
use super::client::{Call, Client, is_missing};
use super::options::{LABEL_EXECUTION, LABEL_INSTANCE, LABEL_LIFE};
use crate::ids::{ExecutionId, InstanceId};
use crate::sandbox::engine::EngineError;
use crate::sandbox::policy::SUPERVISOR_DIRECTORY;
use crate::sandbox::template::Image;

/// The static program that is PID 1 of every sandbox.
pub const SUPERVISOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/supervisor"));

/// What makes an interpreter import libraries and wait for its program.
const PRELOAD: &[u8] = include_bytes!("../../../images/preload/sitecustomize.py");

/// What it does with the libraries before it waits.
const WARM_UP: &[u8] = include_bytes!("../../../images/preload/warm_up.py");

/// A file of the volume.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct VolumeFile {
    /// Below the volume's root.
    path: String,
    mode: u32,
    content: Vec<u8>,
}

/// Everything in the volume.
fn files() -> Vec<VolumeFile> {
    let file = |path: &str, mode, content: &[u8]| VolumeFile {
        path: path.to_owned(),
        mode,
        content: content.to_vec(),
    };
    vec![
        file("preload/sitecustomize.py", 0o444, PRELOAD),
        file("preload/warm_up.py", 0o444, WARM_UP),
        file(FILE_NAME, 0o555, SUPERVISOR),
    ]
}

/// On every volume of a supervisor; its value is the volume's name.
pub(super) const LABEL_SUPERVISOR: &str = "fumehood.supervisor";

const FILE_NAME: &str = "supervisor";

/// An archive of the volume and its framing is not longer than this.
const MAX_ARCHIVE_BYTES: usize = SUPERVISOR.len() + PRELOAD.len() + WARM_UP.len() + (64 << 10);

/// The volume's name, which follows from its content.
#[must_use]
pub fn volume_name() -> String {
    let mut digest = Sha256::new();
    for file in files() {
        digest.update(file.path);
        digest.update((file.content.len() as u64).to_le_bytes());
        digest.update(file.content);
    }
    let digest = hex::encode(digest.finalize());
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
    pub(super) async fn find(docker: &Client) -> Result<Option<Self>, EngineError> {
        let name = volume_name();
        let asked = docker.repeated(Call::InspectVolume, Manner::Polite, || {
            docker.inspect_volume(&name)
        });
        match asked.await {
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
pub(super) async fn make_volume(docker: &Client) -> Result<(), EngineError> {
    let volume = volume_name();
    let label = (LABEL_SUPERVISOR.to_owned(), volume.clone());
    let request = VolumeCreateRequest {
        name: Some(volume),
        labels: Some(HashMap::from([label])),
        ..Default::default()
    };
    let made = docker.repeated(Call::CreateVolume, Manner::Polite, || {
        docker.create_volume(request.clone())
    });
    made.await.map(drop)
}

/// Makes the container through which the volume is filled. It has the labels of a sandbox, so that
/// one that is left is found at the next start.
pub(super) async fn create_helper(
    docker: &Client,
    name: &str,
    (instance, life): (&InstanceId, &str),
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
            (LABEL_LIFE.to_owned(), life.to_owned()),
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
    let create = docker.create_container(Some(options), body);
    docker.once(Call::Create, create).await.map(drop)
}

/// Makes sure that the volume holds exactly what it should.
pub(super) async fn fill(docker: &Client, helper: &str) -> Result<(), EngineError> {
    if content(docker, helper)
        .await?
        .is_some_and(|found| found == files())
    {
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
    let upload = docker.upload_to_container(helper, Some(options), body);
    docker.once(Call::CopySupervisor, upload).await?;
    if content(docker, helper)
        .await?
        .is_some_and(|found| found == files())
    {
        return Ok(());
    }
    Err(EngineError::PolicyNotApplied(
        "the supervisor's volume holds something else".to_owned(),
    ))
}

fn archive() -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut directories = Vec::new();
    for file in files() {
        if let Some((directory, _)) = file.path.rsplit_once('/')
            && !directories.contains(&directory.to_owned())
        {
            let mut header = header(0, 0o555);
            header.set_entry_type(tar::EntryType::Directory);
            archive.append_data(&mut header, format!("{directory}/"), std::io::empty())?;
            directories.push(directory.to_owned());
        }
        let mut header = header(file.content.len() as u64, file.mode);
        archive.append_data(&mut header, &file.path, file.content.as_slice())?;
    }
    archive.into_inner()
}

fn header(size: u64, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_size(size);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

/// What the volume holds, read through the engine's archive call; `None` if that is too much, or
/// nothing that can be read.
async fn content(docker: &Client, helper: &str) -> Result<Option<Vec<VolumeFile>>, EngineError> {
    let options = DownloadFromContainerOptions {
        path: SUPERVISOR_DIRECTORY.to_owned(),
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
    match docker.once(Call::CopySupervisor, download).await {
        Ok(bytes) => Ok(bytes.and_then(|bytes| unpacked(&bytes).ok())),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The files of an archive whose entries are below one directory, sorted. Anything but a file or a
/// directory is shown as a file that none of ours is like.
fn unpacked(archive: &[u8]) -> std::io::Result<Vec<VolumeFile>> {
    let mut files = Vec::new();
    for entry in tar::Archive::new(archive).entries()? {
        let entry = entry?;
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            continue;
        }
        let path = entry.path()?.to_string_lossy().into_owned();
        let path = path
            .split_once('/')
            .map_or(String::new(), |(_, path)| path.to_owned());
        let mode = entry.header().mode()? & 0o7777;
        let mut content = Vec::new();
        entry
            .take(MAX_ARCHIVE_BYTES as u64)
            .read_to_end(&mut content)?;
        files.push(VolumeFile {
            path,
            mode: if kind.is_file() { mode } else { 0 },
            content,
        });
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The archive as the engine gives it: everything below the directory's own name.
    fn as_downloaded(archive: &[u8]) -> Vec<u8> {
        let mut copy = tar::Builder::new(Vec::new());
        for entry in tar::Archive::new(archive).entries().unwrap() {
            let entry = entry.unwrap();
            let mut header = entry.header().clone();
            let path = std::path::Path::new("fumehood").join(entry.path().unwrap());
            copy.append_data(&mut header, path, entry).unwrap();
        }
        copy.into_inner().unwrap()
    }

    #[test]
    fn the_archive_holds_our_files_and_nothing_else() {
        let archive = as_downloaded(&archive().unwrap());
        assert_eq!(unpacked(&archive).unwrap(), files());
    }

    #[test]
    fn a_volume_with_anything_more_or_less_is_not_ours() {
        let unpack = |archive: Vec<u8>| unpacked(&as_downloaded(&archive)).unwrap();
        assert_ne!(
            unpack(tar::Builder::new(Vec::new()).into_inner().unwrap()),
            files()
        );
        let mut more = tar::Builder::new(Vec::new());
        for file in files() {
            more.append_data(
                &mut header(file.content.len() as u64, file.mode),
                &file.path,
                &*file.content,
            )
            .unwrap();
        }
        more.append_data(&mut header(0, 0o444), "preload/os.py", std::io::empty())
            .unwrap();
        assert_ne!(unpack(more.into_inner().unwrap()), files());
        let mut writable = tar::Builder::new(Vec::new());
        for file in files() {
            writable
                .append_data(
                    &mut header(file.content.len() as u64, 0o777),
                    &file.path,
                    &*file.content,
                )
                .unwrap();
        }
        assert_ne!(unpack(writable.into_inner().unwrap()), files());
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
