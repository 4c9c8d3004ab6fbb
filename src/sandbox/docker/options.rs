//! From a template to the body of a create-container request: a pure function, pinned by a
//! snapshot. Rows are those of the security bar, where each setting's reason and test stand.

use std::collections::HashMap;

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig,
    Mount, MountBindOptions, MountBindOptionsPropagationEnum, MountType, MountVolumeOptions,
    ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
};

use crate::execution::environment::place;
use crate::ids::{ExecutionId, InstanceId};
use crate::sandbox::policy::{self, Tmpfs};
use crate::sandbox::template::{DatasetMount, Template};

/// Label: whose container it is.
pub const LABEL_INSTANCE: &str = "fumehood.instance";
/// Label: the execution it was made for.
pub const LABEL_EXECUTION: &str = "fumehood.execution";
/// Label: the life of the daemon that made it, from its start to its end.
pub const LABEL_LIFE: &str = "fumehood.life";
/// Label: when its program has to be over, in seconds since the epoch.
pub const LABEL_DEADLINE: &str = "fumehood.deadline";

/// What a container's options depend on besides the template.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    /// The daemon's state directory.
    pub instance: &'a InstanceId,
    /// The daemon's process.
    pub life: &'a str,
    /// The execution.
    pub execution: &'a ExecutionId,
    /// Uid and gid.
    pub uid: u32,
    /// Seconds since the epoch.
    pub deadline: i64,
    /// The volume with the supervisor.
    pub supervisor_volume: &'a str,
    /// Whether the engine has version 1 control groups, which alone know swappiness.
    pub cgroup_v1: bool,
}

/// The name of an execution's container: creating is idempotent by it.
#[must_use]
pub fn container_name(instance: &InstanceId, execution: &ExecutionId) -> String {
    format!("fumehood-{instance}-{execution}")
}

/// The whole request.
#[must_use]
pub fn container(template: &Template, identity: &Identity<'_>) -> ContainerCreateBody {
    let labels = [
        (LABEL_INSTANCE, identity.instance.to_string()),
        (LABEL_EXECUTION, identity.execution.to_string()),
        (LABEL_LIFE, identity.life.to_owned()),
        (LABEL_DEADLINE, identity.deadline.to_string()),
    ];
    ContainerCreateBody {
        image: Some(template.image.id.clone()),
        // Rows 1, 3: a numeric uid and gid that nothing else has.
        user: Some(format!("{0}:{0}", identity.uid)),
        // Row 47: never the image's own program.
        entrypoint: Some(vec![format!("{}/supervisor", policy::SUPERVISOR_DIRECTORY)]),
        cmd: Some(Vec::new()),
        // Row 27: a working directory on the tmpfs would reset its mode.
        working_dir: Some("/".to_owned()),
        // Row 53: a name without a value removes the image's variable. The program's environment
        // does not come from here at all, the supervisor sets it.
        env: Some(template.image.environment_names.clone()),
        // Row 54.
        hostname: Some(policy::HOST_NAME.to_owned()),
        domainname: Some(String::new()),
        // Row 48, the second half: the namespace stays as the kernel makes it, its one interface
        // down and no name known. What the engine would do for a network is half of a start.
        network_disabled: Some(true),
        // Row 24, and the stream to the supervisor, which a second daemon may attach to again.
        tty: Some(false),
        open_stdin: Some(true),
        stdin_once: Some(false),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        // Row 47: an image's health check would be a second program.
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".to_owned()]),
            ..Default::default()
        }),
        labels: Some(labels.map(|(name, value)| (name.to_owned(), value)).into()),
        host_config: Some(host_config(template, identity)),
        ..Default::default()
    }
}

fn host_config(template: &Template, identity: &Identity<'_>) -> HostConfig {
    let sizes = policy::sizes(&template.limits);
    let runtime = template.runtime.as_deref();
    HostConfig {
        runtime: template.runtime.clone(),
        // Rows 4 to 8: no privilege, no device, no shared namespace.
        privileged: Some(false),
        cap_add: Some(Vec::new()),
        cap_drop: Some(vec!["ALL".to_owned()]),
        group_add: Some(Vec::new()),
        security_opt: Some(vec![
            "no-new-privileges:true".to_owned(),
            // Row 11: the profile itself, not a path on the engine's host.
            format!("seccomp={}", policy::SECCOMP_PROFILE),
        ]),
        devices: Some(Vec::new()),
        device_requests: Some(Vec::new()),
        device_cgroup_rules: Some(Vec::new()),
        pid_mode: Some(String::new()),
        ipc_mode: Some("private".to_owned()),
        uts_mode: Some(String::new()),
        userns_mode: Some(String::new()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        // Rows 22, 23.
        masked_paths: Some(strings(policy::MASKED_PATHS)),
        readonly_paths: Some(strings(policy::READ_ONLY_PATHS)),
        sysctls: Some(HashMap::new()),
        // Rows 25 to 34: nothing to write to but sized tmpfs, nothing mounted but what is listed.
        readonly_rootfs: Some(true),
        tmpfs: Some(temporary_file_systems(template, &sizes, identity.uid)),
        mounts: Some(mounts(template, identity.supervisor_volume)),
        binds: Some(Vec::new()),
        volumes_from: Some(Vec::new()),
        shm_size: Some(signed(sizes.shared_memory_bytes)),
        // Rows 35 to 40.
        memory: Some(signed(sizes.memory_bytes)),
        memory_swap: Some(signed(sizes.memory_bytes)),
        memory_swappiness: identity.cgroup_v1.then_some(0),
        oom_kill_disable: Some(false),
        oom_score_adj: Some(policy::OOM_SCORE_ADJUSTMENT),
        pids_limit: Some(signed(policy::engine_tasks(runtime, &sizes))),
        nano_cpus: Some(signed(template.limits.nano_cpus)),
        cpu_shares: Some(policy::CPU_SHARES),
        ulimits: Some(ulimits(runtime, &sizes)),
        // Rows 45, 46: no log of the engine, no restart, and nothing removed behind our back.
        log_config: Some(HostConfigLogConfig {
            typ: Some("none".to_owned()),
            config: Some(HashMap::new()),
        }),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: Some(0),
        }),
        auto_remove: Some(false),
        init: Some(false),
        // Rows 48 to 51.
        network_mode: Some("none".to_owned()),
        dns: Some(Vec::new()),
        dns_options: Some(Vec::new()),
        dns_search: Some(Vec::new()),
        extra_hosts: Some(Vec::new()),
        links: Some(Vec::new()),
        port_bindings: Some(HashMap::new()),
        publish_all_ports: Some(false),
        ..Default::default()
    }
}

fn temporary_file_systems(
    template: &Template,
    sizes: &policy::Sizes,
    uid: u32,
) -> HashMap<String, String> {
    let mut list = HashMap::from([
        (
            place::WORKSPACE.to_owned(),
            workspace_options(sizes.workspace, uid),
        ),
        (
            place::TEMPORARY.to_owned(),
            temporary_options(sizes.temporary),
        ),
    ]);
    if template.dataset == DatasetMount::Place {
        // Where a data set is mounted later, over an empty directory that nobody can write to.
        let empty = "ro,noexec,nosuid,nodev,size=4096,nr_inodes=1,mode=0555";
        list.insert(place::DATASET.to_owned(), empty.to_owned());
    }
    list
}

fn workspace_options(size: Tmpfs, uid: u32) -> String {
    format!("{},uid={uid},gid={uid},mode=0700", tmpfs_options(size))
}

fn temporary_options(size: Tmpfs) -> String {
    format!("{},mode=1777", tmpfs_options(size))
}

fn tmpfs_options(size: Tmpfs) -> String {
    format!(
        "rw,noexec,nosuid,nodev,size={},nr_inodes={}",
        size.bytes, size.inodes
    )
}

fn mounts(template: &Template, supervisor_volume: &str) -> Vec<Mount> {
    let supervisor = Mount {
        typ: Some(MountType::VOLUME),
        source: Some(supervisor_volume.to_owned()),
        target: Some(policy::SUPERVISOR_DIRECTORY.to_owned()),
        read_only: Some(true),
        volume_options: Some(MountVolumeOptions {
            no_copy: Some(true),
            ..Default::default()
        }),
        ..Default::default()
    };
    // Row 28: a mount of its own kind, never the short form, whose colons a path could imitate;
    // not recursive, since a read-only bind leaves what is mounted below it writable.
    let pin = match &template.dataset {
        DatasetMount::Created(pin) => Some(pin),
        DatasetMount::None | DatasetMount::Place => None,
    };
    let dataset = pin.map(|pin| Mount {
        typ: Some(MountType::BIND),
        source: Some(pin.path.to_string_lossy().into_owned()),
        target: Some(place::DATASET.to_owned()),
        read_only: Some(true),
        bind_options: Some(MountBindOptions {
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            non_recursive: Some(true),
            ..Default::default()
        }),
        ..Default::default()
    });
    std::iter::once(supervisor).chain(dataset).collect()
}

fn ulimits(runtime: Option<&str>, sizes: &policy::Sizes) -> Vec<ResourcesUlimits> {
    let fixed = [
        ulimit("core", 0),
        ulimit("fsize", signed(sizes.workspace.bytes)),
        ulimit("memlock", policy::LOCKED_MEMORY_BYTES),
        ulimit("nofile", signed(policy::OPEN_FILES)),
    ];
    let processes = policy::user_processes(runtime, sizes);
    let processes = processes.map(|count| ulimit("nproc", signed(count)));
    fixed.into_iter().chain(processes).collect()
}

fn ulimit(name: &str, value: i64) -> ResourcesUlimits {
    ResourcesUlimits {
        name: Some(name.to_owned()),
        soft: Some(value),
        hard: Some(value),
    }
}

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|&text| text.to_owned()).collect()
}

/// The engine counts in signed numbers; limits are bounded far below their maximum.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Execution;
    use crate::execution::DatasetPin;
    use crate::sandbox::template::Image;

    pub(crate) fn template() -> Template {
        Template {
            image: Image {
                reference: "fumehood/python:1".to_owned(),
                id: "sha256:0123".to_owned(),
                environment_names: vec!["PYTHON_VERSION".to_owned()],
            },
            runtime: None,
            dataset: DatasetMount::Created(DatasetPin {
                path: "/srv/data/a:/etc:rw".into(),
                device: 1,
                inode: 2,
            }),
            limits: Execution::default().default_limits().of_sandbox(),
            interpreter: false,
        }
    }

    fn body(template: &Template) -> serde_json::Value {
        let identity = Identity {
            instance: &InstanceId::parse("abcdefghijkl").unwrap(),
            life: "0123456789abcdef",
            execution: &ExecutionId::parse("exec_12345678").unwrap(),
            uid: 50_003,
            deadline: 1_800_000_000,
            supervisor_volume: "fumehood-supervisor-0",
            cgroup_v1: true,
        };
        let mut body = serde_json::to_value(container(template, &identity)).unwrap();
        // The profile has a file and tests of its own.
        let profile = &mut body["HostConfig"]["SecurityOpt"][1];
        assert_eq!(*profile, format!("seccomp={}", policy::SECCOMP_PROFILE));
        *profile = "seccomp=…".into();
        sorted(body)
    }

    /// With the keys in order, whatever order a map had.
    fn sorted(value: serde_json::Value) -> serde_json::Value {
        match value {
            serde_json::Value::Object(map) => {
                let mut entries: Vec<_> = map
                    .into_iter()
                    .map(|(key, value)| (key, sorted(value)))
                    .collect();
                entries.sort_by(|a, b| a.0.cmp(&b.0));
                serde_json::Value::Object(entries.into_iter().collect())
            }
            serde_json::Value::Null
            | serde_json::Value::Bool(_)
            | serde_json::Value::Number(_)
            | serde_json::Value::String(_)
            | serde_json::Value::Array(_) => value,
        }
    }

    #[test]
    fn the_settings_of_a_container_are_pinned() {
        insta::assert_snapshot!(format!("{:#}", body(&template())));
    }

    /// Row 38: the engine would count gVisor's own threads.
    #[test]
    fn a_sandbox_with_a_kernel_of_its_own_counts_its_processes_itself() {
        let body = body(&Template {
            runtime: Some("runsc".to_owned()),
            ..template()
        });
        let host = &body["HostConfig"];
        assert!(host["PidsLimit"].as_i64().unwrap() >= 1024, "{host}");
        let limits = host["Ulimits"].as_array().unwrap();
        assert_eq!(limits.len(), 5);
        assert_eq!(limits[4]["Name"], "nproc");
        assert_eq!(limits[4]["Hard"], 257);
    }

    #[test]
    fn a_container_without_a_data_set_mounts_the_supervisor_only() {
        let body = body(&Template {
            dataset: DatasetMount::None,
            ..template()
        });
        let mounts = body["HostConfig"]["Mounts"].as_array().unwrap();
        assert_eq!(mounts.len(), 1);
        assert_eq!(mounts[0]["Target"], "/fumehood");
        assert_eq!(
            body["HostConfig"]["Tmpfs"]["/data"],
            serde_json::Value::Null
        );
    }

    #[test]
    fn a_container_that_waits_for_a_data_set_has_an_empty_read_only_place_for_it() {
        let body = body(&Template {
            dataset: DatasetMount::Place,
            ..template()
        });
        assert_eq!(body["HostConfig"]["Mounts"].as_array().unwrap().len(), 1);
        let place = body["HostConfig"]["Tmpfs"]["/data"].as_str().unwrap();
        assert!(place.starts_with("ro,"), "{place}");
    }
}
