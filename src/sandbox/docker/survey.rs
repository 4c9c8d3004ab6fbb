//! What Docker Engine tells of itself and of a sandbox: from its answers to the facts that an
//! examination wants. Judges nothing; what is missing in an answer stays missing in the facts.

use async_trait::async_trait;
use bollard::models::{
    ContainerInspectResponse, HostConfig, SystemInfo, SystemInfoCgroupVersionEnum, SystemVersion,
};
use bollard::query_parameters::InspectContainerOptions;

use super::DockerEngine;
use super::calls::Manner;
use super::client::Call;
use super::options::container_name;
use crate::ids::ExecutionId;
use crate::sandbox::engine::EngineError;
use crate::sandbox::survey::{AppliedSettings, EngineFacts, Survey};

/// The component of a version answer that is the default runtime.
const RUNC: &str = "runc";

#[async_trait]
impl Survey for DockerEngine {
    async fn survey(&self) -> Result<EngineFacts, EngineError> {
        let docker = self.client().await?;
        let asked = docker.repeated(Call::Describe, Manner::Polite, || docker.info());
        let info = asked.await?;
        let asked = docker.repeated(Call::Describe, Manner::Polite, || docker.version());
        let version = asked.await?;
        let api_version = docker.client_version().to_string();
        Ok(engine_facts(info, version, api_version))
    }

    async fn applied(&self, execution: &ExecutionId) -> Result<AppliedSettings, EngineError> {
        let docker = self.client().await?;
        let name = container_name(&self.instance, execution);
        let inspect = docker.repeated(Call::Inspect, Manner::Polite, || {
            docker.inspect_container(&name, None::<InspectContainerOptions>)
        });
        Ok(applied_settings(inspect.await?))
    }
}

fn engine_facts(info: SystemInfo, version: SystemVersion, api_version: String) -> EngineFacts {
    let limits = [
        ("memory", info.memory_limit),
        ("swap", info.swap_limit),
        ("processes", info.pids_limit),
        ("CPU time", info.cpu_cfs_quota),
    ];
    let mut runtimes: Vec<String> = info.runtimes.unwrap_or_default().into_keys().collect();
    runtimes.sort();
    let components = version.components.unwrap_or_default();
    let runc = components.into_iter().find(|part| part.name == RUNC);
    EngineFacts {
        id: info.id.unwrap_or_default(),
        version: info.server_version.unwrap_or_default(),
        api_version,
        runtimes,
        default_runtime: info.default_runtime.unwrap_or_default(),
        runc_version: runc.map(|part| part.version),
        kernel: info.kernel_version.unwrap_or_default(),
        cgroup_version: match info.cgroup_version {
            Some(SystemInfoCgroupVersionEnum::_1) => Some(1),
            Some(SystemInfoCgroupVersionEnum::_2) => Some(2),
            Some(SystemInfoCgroupVersionEnum::EMPTY) | None => None,
        },
        security_options: info.security_options.unwrap_or_default(),
        live_restore: info.live_restore_enabled,
        data_directory: info.docker_root_dir.unwrap_or_default(),
        missing_limits: limits
            .into_iter()
            .filter(|(_, is_kept)| *is_kept == Some(false))
            .map(|(name, _)| name)
            .collect(),
    }
}

fn applied_settings(inspected: ContainerInspectResponse) -> AppliedSettings {
    let config = inspected.config.unwrap_or_default();
    let host = inspected.host_config.unwrap_or_default();
    let restart = host.restart_policy.as_ref().and_then(|policy| policy.name);
    let log = host.log_config.as_ref().and_then(|log| log.typ.clone());
    AppliedSettings {
        published: published(&host),
        block_limits: block_limits(&host),
        seccomp_profile: host
            .security_opt
            .iter()
            .flatten()
            .find_map(|option| Some(option.strip_prefix("seccomp=")?.to_owned())),
        runtime: host.runtime.unwrap_or_default(),
        image: inspected.image.unwrap_or_default(),
        user: config.user.unwrap_or_default(),
        entrypoint: config.entrypoint.unwrap_or_default(),
        health_check: config
            .healthcheck
            .and_then(|check| check.test)
            .unwrap_or_default(),
        privileged: host.privileged.unwrap_or_default(),
        network_mode: host.network_mode.unwrap_or_default(),
        memory_bytes: host.memory.unwrap_or_default(),
        memory_and_swap_bytes: host.memory_swap.unwrap_or_default(),
        oom_kill_disabled: host.oom_kill_disable.unwrap_or_default(),
        processes: host.pids_limit.unwrap_or_default(),
        nano_cpus: host.nano_cpus.unwrap_or_default(),
        cpu_shares: host.cpu_shares.unwrap_or_default(),
        log_driver: log.unwrap_or_default(),
        restart_policy: restart.map(|name| name.to_string()).unwrap_or_default(),
        auto_remove: host.auto_remove.unwrap_or_default(),
        apparmor_profile: inspected.app_armor_profile.unwrap_or_default(),
    }
}

/// Whatever would make the sandbox known to somebody outside, or somebody outside to it.
fn published(host: &HostConfig) -> usize {
    let count = |list: &Option<Vec<String>>| list.as_ref().map_or(0, Vec::len);
    let ports = host.port_bindings.as_ref().map_or(0, |ports| ports.len());
    ports
        + count(&host.links)
        + count(&host.extra_hosts)
        + count(&host.dns)
        + usize::from(host.publish_all_ports.unwrap_or_default())
}

fn block_limits(host: &HostConfig) -> usize {
    let devices = |list: &Option<Vec<_>>| list.as_ref().map_or(0, Vec::len);
    usize::from(host.blkio_weight.unwrap_or_default() > 0)
        + devices(&host.blkio_device_read_bps)
        + devices(&host.blkio_device_write_bps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engines_answers_become_facts() {
        let info: SystemInfo = serde_json::from_value(serde_json::json!({
            "ID": "X", "ServerVersion": "29.5.1", "CgroupVersion": "2", "DefaultRuntime": "runc",
            "Runtimes": {"runsc": {}, "runc": {}}, "LiveRestoreEnabled": true, "SwapLimit": false,
            "SecurityOptions": ["name=seccomp,profile=default", "name=rootless"],
        }))
        .unwrap();
        let version: SystemVersion = serde_json::from_value(serde_json::json!({
            "Components": [{"Name": "Engine", "Version": "29.5.1"}, {"Name": "runc", "Version": "1.3.4"}],
        }))
        .unwrap();
        let facts = engine_facts(info, version, "1.41".to_owned());
        assert_eq!(facts.runtimes, ["runc", "runsc"]);
        assert_eq!(facts.runc_version.as_deref(), Some("1.3.4"));
        assert_eq!(facts.cgroup_version, Some(2));
        assert_eq!(facts.missing_limits, ["swap"]);
        assert!(facts.has_security_option("seccomp") && facts.has_security_option("rootless"));
        assert!(!facts.has_security_option("root"));
        let silent = engine_facts(
            SystemInfo::default(),
            SystemVersion::default(),
            String::new(),
        );
        assert_eq!(silent.missing_limits, Vec::<&str>::new());
        assert_ne!(silent.identity(), facts.identity());
    }

    #[test]
    fn what_inspection_shows_becomes_settings() {
        let inspected = serde_json::from_value(serde_json::json!({
            "Image": "sha256:1", "AppArmorProfile": "docker-default",
            "Config": {"User": "5:5", "Healthcheck": {"Test": ["NONE"]}},
            "HostConfig": {
                "Runtime": "runsc", "LogConfig": {"Type": "none"}, "RestartPolicy": {"Name": "no"},
                "SecurityOpt": ["no-new-privileges:true", "seccomp={}"], "ExtraHosts": ["a:1.2.3.4"],
            },
        }))
        .unwrap();
        let applied = applied_settings(inspected);
        assert_eq!(applied.runtime, "runsc");
        assert_eq!(
            (applied.log_driver.as_str(), applied.restart_policy.as_str()),
            ("none", "no")
        );
        assert_eq!(applied.seccomp_profile.as_deref(), Some("{}"));
        assert_eq!(applied.published, 1);
        assert_eq!(applied.health_check, ["NONE"]);
    }
}
