//! From the engine's description of a created container to the facts of a receipt: a pure function
//! over the same answer that [`verify`](super::verify) has compared with the request.
//!
//! Nothing here comes from the request. Where a mount comes from on the host is left out.

use std::collections::HashMap;

use bollard::models::{
    ContainerInspectResponse, HostConfig, Mount, MountBindOptions, MountPoint, ResourcesUlimits,
};

use super::about::About;
use crate::digest;
use crate::execution::isolation::{Applied, AppliedLimits, MountFacts, Namespaces, PathList};

/// What stands before a profile among the security options.
const SECCOMP: &str = "seccomp=";

/// What the engine writes where something is each container's own.
const PRIVATE: &str = "private";

/// The facts of a container, made by an engine about which this is known.
#[must_use]
pub(super) fn applied(container: ContainerInspectResponse, about: &About) -> Applied {
    let config = container.config.unwrap_or_default();
    let host = container.host_config.unwrap_or_default();
    let options = host.security_opt.clone().unwrap_or_default();
    let profile = options.iter().find_map(|o| o.strip_prefix(SECCOMP));
    Applied {
        engine: about.engine(),
        runtime: about.runtime(host.runtime.as_deref().unwrap_or_default()),
        image: container.image.unwrap_or_default(),
        user: config.user.unwrap_or_default(),
        privileged: host.privileged.unwrap_or_default(),
        capabilities_added: host.cap_add.clone().unwrap_or_default(),
        capabilities_dropped: host.cap_drop.clone().unwrap_or_default(),
        no_new_privileges: options.iter().any(|option| {
            matches!(
                option.as_str(),
                "no-new-privileges" | "no-new-privileges:true"
            )
        }),
        seccomp_profile_sha256: profile.map(|profile| digest::of_content(profile.as_bytes())),
        apparmor_profile: container.app_armor_profile.filter(|name| !name.is_empty()),
        read_only_root: host.readonly_rootfs.unwrap_or_default(),
        network: host.network_mode.clone().unwrap_or_default(),
        namespaces: namespaces(&host),
        mounts: mounts(&host, container.mounts.unwrap_or_default()),
        masked_paths: PathList::of(host.masked_paths.clone().unwrap_or_default()),
        read_only_paths: PathList::of(host.readonly_paths.clone().unwrap_or_default()),
        sysctls: sorted(host.sysctls.clone().unwrap_or_default().into_keys()),
        devices: host.devices.as_ref().map_or(0, Vec::len)
            + host.device_requests.as_ref().map_or(0, Vec::len),
        log: host
            .log_config
            .clone()
            .and_then(|log| log.typ)
            .unwrap_or_default(),
        limits: limits(host),
    }
}

fn namespaces(host: &HostConfig) -> Namespaces {
    // What the engine leaves empty is private, except for users, which its own settings decide.
    let or = |mode: Option<&str>, empty: &str| match mode {
        Some("") | None => empty.to_owned(),
        Some(mode) => mode.to_owned(),
    };
    Namespaces {
        cgroup: or(
            host.cgroupns_mode.as_ref().map(AsRef::as_ref),
            "engine default",
        ),
        ipc: or(host.ipc_mode.as_deref(), "engine default"),
        pid: or(host.pid_mode.as_deref(), PRIVATE),
        user: or(host.userns_mode.as_deref(), "engine default"),
        uts: or(host.uts_mode.as_deref(), PRIVATE),
    }
}

/// The engine tells of tmpfs in one place, of other mounts in two: their options, and what it made
/// of them.
fn mounts(host: &HostConfig, made: Vec<MountPoint>) -> Vec<MountFacts> {
    let options: HashMap<&str, &Mount> = host
        .mounts
        .iter()
        .flatten()
        .filter_map(|mount| Some((mount.target.as_deref()?, mount)))
        .collect();
    let temporary = host.tmpfs.iter().flatten();
    let temporary = temporary.map(|(target, options)| MountFacts {
        target: target.clone(),
        kind: "tmpfs".to_owned(),
        read_only: options.split(',').any(|option| option == "ro"),
        options: options.clone(),
    });
    let made = made.into_iter().map(|mount| {
        let target = mount.destination.unwrap_or_default();
        MountFacts {
            kind: mount.typ.unwrap_or_default(),
            read_only: mount.rw == Some(false),
            options: mount_options(options.get(target.as_str()).copied(), mount.propagation),
            target,
        }
    });
    let mut all: Vec<MountFacts> = temporary.chain(made).collect();
    all.sort_by(|a, b| a.target.cmp(&b.target));
    all
}

fn mount_options(mount: Option<&Mount>, propagation: Option<String>) -> String {
    let bind = mount.and_then(|mount| mount.bind_options.as_ref());
    let is = |flag: fn(&MountBindOptions) -> Option<bool>| bind.and_then(flag) == Some(true);
    let mut options: Vec<String> = propagation.into_iter().filter(|p| !p.is_empty()).collect();
    for (flag, name) in [
        (is(|bind| bind.non_recursive), "non-recursive"),
        (
            is(|bind| bind.read_only_force_recursive),
            "read-only-force-recursive",
        ),
    ] {
        if flag {
            options.push(name.to_owned());
        }
    }
    options.join(",")
}

fn limits(host: HostConfig) -> AppliedLimits {
    let hard = |limit: ResourcesUlimits| Some((limit.name?, limit.hard?));
    AppliedLimits {
        memory_bytes: host.memory,
        memory_and_swap_bytes: host.memory_swap,
        nano_cpus: host.nano_cpus,
        cpu_shares: host.cpu_shares,
        processes: host.pids_limit,
        shared_memory_bytes: host.shm_size,
        oom_score_adjustment: host.oom_score_adj,
        ulimits: host
            .ulimits
            .into_iter()
            .flatten()
            .filter_map(hard)
            .collect(),
    }
}

fn sorted(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container() -> ContainerInspectResponse {
        serde_json::from_value(json!({
            "Image": "sha256:1",
            "AppArmorProfile": "",
            "Config": { "User": "50000:50000" },
            "HostConfig": {
                "Runtime": "runc",
                "Privileged": false,
                "CapAdd": null,
                "CapDrop": ["ALL"],
                "SecurityOpt": ["no-new-privileges:true", "seccomp={}"],
                "ReadonlyRootfs": true,
                "NetworkMode": "none",
                "PidMode": "",
                "IpcMode": "private",
                "UTSMode": "",
                "UsernsMode": "",
                "CgroupnsMode": "private",
                "MaskedPaths": ["/proc/kcore"],
                "ReadonlyPaths": [],
                "Tmpfs": { "/work": "rw,size=1", "/data": "ro,size=4096" },
                "Mounts": [
                    { "Type": "volume", "Source": "v", "Target": "/fumehood", "ReadOnly": true },
                    { "Type": "bind", "Source": "/srv/secret", "Target": "/set", "ReadOnly": true,
                      "BindOptions": { "Propagation": "rprivate", "NonRecursive": true } },
                ],
                "LogConfig": { "Type": "none", "Config": {} },
                "Memory": 1024, "MemorySwap": 1024, "NanoCpus": 5, "PidsLimit": 257,
                "Ulimits": [{ "Name": "core", "Soft": 0, "Hard": 0 }],
            },
            "Mounts": [
                { "Type": "volume", "Name": "v", "Source": "/var/lib/docker/volumes/v/_data",
                  "Destination": "/fumehood", "RW": false, "Propagation": "" },
                { "Type": "bind", "Source": "/srv/secret", "Destination": "/set", "RW": false,
                  "Propagation": "rprivate" },
            ],
        }))
        .unwrap()
    }

    #[test]
    fn the_facts_are_those_of_the_answer() {
        let facts = applied(container(), &About::default());
        assert_eq!(facts.image, "sha256:1");
        assert_eq!(facts.user, "50000:50000");
        assert_eq!(facts.runtime.name, "runc");
        assert!(facts.no_new_privileges && facts.read_only_root && !facts.privileged);
        assert_eq!(
            facts.seccomp_profile_sha256,
            Some(digest::of_content(b"{}"))
        );
        assert_eq!(facts.apparmor_profile, None);
        assert_eq!(facts.capabilities_dropped, ["ALL"]);
        assert_eq!(facts.namespaces.pid, "private");
        assert_eq!(facts.namespaces.user, "engine default");
        assert_eq!(facts.masked_paths.count, 1);
        assert_eq!((facts.devices, facts.sysctls.len()), (0, 0));
        assert_eq!(facts.limits.memory_and_swap_bytes, Some(1024));
        assert_eq!(facts.limits.shared_memory_bytes, None);
        assert_eq!(facts.limits.ulimits["core"], 0);
        let mounts: Vec<_> = facts
            .mounts
            .iter()
            .map(|mount| {
                (
                    mount.target.as_str(),
                    mount.read_only,
                    mount.options.as_str(),
                )
            })
            .collect();
        let expected = [
            ("/data", true, "ro,size=4096"),
            ("/fumehood", true, ""),
            ("/set", true, "rprivate,non-recursive"),
            ("/work", false, "rw,size=1"),
        ];
        assert_eq!(mounts, expected);
    }

    #[test]
    fn where_a_mount_comes_from_on_the_host_is_not_said() {
        let facts = applied(container(), &About::default());
        let text = serde_json::to_string(&facts).unwrap();
        for path in ["/srv", "/var"] {
            assert!(!text.contains(path), "{text}");
        }
    }

    #[test]
    fn what_an_engine_weakened_is_told_as_it_is() {
        let mut container = container();
        let host = container.host_config.as_mut().unwrap();
        host.privileged = Some(true);
        host.security_opt = None;
        host.readonly_rootfs = None;
        host.pid_mode = Some("host".to_owned());
        host.sysctls = Some(HashMap::from([(
            "kernel.shm_rmid_forced".to_owned(),
            "1".to_owned(),
        )]));
        let facts = applied(container, &About::default());
        assert!(facts.privileged && !facts.no_new_privileges && !facts.read_only_root);
        assert_eq!(facts.seccomp_profile_sha256, None);
        assert_eq!(facts.namespaces.pid, "host");
        assert_eq!(facts.sysctls, ["kernel.shm_rmid_forced"]);
    }
}
