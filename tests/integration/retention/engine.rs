//! What other versions have left on the engine.

use std::collections::HashMap;
use std::time::Duration;

use bollard::models::{ContainerCreateBody, HostConfig, Mount, MountType, VolumeCreateRequest};
use bollard::query_parameters::{CreateContainerOptions, RemoveContainerOptions};
use fumehood::ids::InstanceId;
use fumehood::sandbox::docker::DockerEngine;
use fumehood::sandbox::docker::earlier::{Earlier, Kept};
use fumehood::sandbox::docker::images::default_reference;
use fumehood::sandbox::docker::supervisor::volume_name;

use crate::support::engine::{docker, volumes};

/// A volume as another version would have made it.
async fn volume() -> String {
    let name = format!("fumehood-supervisor-test-{}", uuid::Uuid::new_v4().simple());
    let label = ("fumehood.supervisor".to_owned(), name.clone());
    let request = VolumeCreateRequest {
        name: Some(name.clone()),
        labels: Some(HashMap::from([label])),
        ..Default::default()
    };
    docker().await.create_volume(request).await.unwrap();
    name
}

/// A container that has the volume; it is never started.
async fn holder_of(volume: &str) -> String {
    let name = format!("holder-of-{volume}");
    let create = CreateContainerOptions {
        name: Some(name.clone()),
        ..Default::default()
    };
    let mount = Mount {
        typ: Some(MountType::VOLUME),
        source: Some(volume.to_owned()),
        target: Some("/held".to_owned()),
        ..Default::default()
    };
    let body = ContainerCreateBody {
        image: Some(default_reference()),
        cmd: Some(vec!["/none".to_owned()]),
        host_config: Some(HostConfig {
            mounts: Some(vec![mount]),
            ..Default::default()
        }),
        ..Default::default()
    };
    let docker = docker().await;
    docker.create_container(Some(create), body).await.unwrap();
    name
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_of_another_version_is_found_and_goes_when_nobody_uses_it() {
    let name = volume().await;
    let ours = Earlier::Volume(name.clone());
    let engine = DockerEngine::new("unix:///var/run/docker.sock", InstanceId::random());
    let kept = Kept {
        volumes: Some(Duration::from_secs(86_400)),
        ..Kept::default()
    };
    let found = engine.earlier(&kept).await.unwrap();
    let of = |earlier: &Earlier| found.iter().find(|found| found.earlier == *earlier);
    assert!(!of(&ours).unwrap().mark.is_empty(), "{found:?}");
    // However old it is: this version needs it.
    assert_eq!(of(&Earlier::Volume(volume_name())), None, "{found:?}");

    let holder = holder_of(&name).await;
    assert!(engine.remove_earlier(&ours).await.is_err());
    assert!(volumes().await.contains(&name));
    let remove = None::<RemoveContainerOptions>;
    docker()
        .await
        .remove_container(&holder, remove)
        .await
        .unwrap();
    // Twice: what is gone is gone.
    for _ in 0..2 {
        engine.remove_earlier(&ours).await.unwrap();
        assert!(!volumes().await.contains(&name));
    }
}
