//! Facts as they are where everything holds, for tests to spoil.

use std::collections::BTreeMap;

use crate::doctor::facts::*;
use crate::execution::environment::environment;
use crate::execution::spec::SandboxLimits;
use crate::sandbox::policy::{self, SECCOMP_PROFILE};
use crate::sandbox::survey::{AppliedSettings, EngineFacts};

const UID: u32 = 50_000;

fn answers(names: &[&str], answer: &str) -> Answers {
    let pairs = names
        .iter()
        .map(|name| ((*name).to_owned(), answer.to_owned()));
    pairs.collect()
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

fn limits() -> SandboxLimits {
    SandboxLimits {
        memory_mb: 128,
        nano_cpus: 1_000_000_000,
        max_processes: 48,
        workspace_mb: 16,
        shm_mb: 8,
    }
}

/// A sandbox of runc in which everything holds.
pub(crate) fn runc() -> SandboxFacts {
    let limits = limits();
    let sizes = policy::sizes(&limits);
    let names: Vec<String> = environment(&limits)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    SandboxFacts {
        runtime: "runc".to_owned(),
        uid: UID,
        sizes,
        image: "sha256:1".to_owned(),
        nano_cpus: limits.nano_cpus,
        environment: names.clone(),
        host_name: "host7".to_owned(),
        host_kernel: "6.18.5".to_owned(),
        supervisor: None,
        host_has_lsm: true,
        seen: Seen {
            network: network(),
            identity: identity(names),
            kernel: kernel(),
            files: files(&sizes),
            resources: resources(&sizes),
        },
        endurance: Endurance {
            uid: Some(UID + 1),
            ended_at_deadline: true,
            wall_seconds: 3.1,
            limit_seconds: 3.0,
            survivors: 0,
            written_bytes: 1 << 21,
            forwarded_bytes: 1 << 16,
            cap_bytes: 1 << 16,
            flood_bytes: 1 << 20,
        },
        memory: MemoryEnd::Child("SIGKILL".to_owned()),
        collected: Some(Collected {
            survivors: 0,
            files: texts(&["out/regular"]),
            skipped: [
                ("out/link", "SymbolicLink"),
                ("out/socket", "SpecialFile"),
                ("out/large", "TotalBytes"),
            ]
            .map(|(path, reason)| (path.to_owned(), reason.to_owned()))
            .into(),
            bytes: 7,
            cap_bytes: 1 << 20,
        }),
        dataset_is_the_checked_one: true,
        dataset_unchanged: true,
        applied: AppliedSettings {
            runtime: "runc".to_owned(),
            image: "sha256:1".to_owned(),
            entrypoint: texts(&["/fumehood/supervisor"]),
            health_check: texts(&["NONE"]),
            network_mode: "none".to_owned(),
            memory_bytes: 128 << 20,
            memory_and_swap_bytes: 128 << 20,
            processes: 49,
            nano_cpus: 1_000_000_000,
            cpu_shares: 512,
            log_driver: "none".to_owned(),
            restart_policy: "no".to_owned(),
            seccomp_profile: Some(SECCOMP_PROFILE.to_owned()),
            ..AppliedSettings::default()
        },
    }
}

/// A sandbox of gVisor, as it was measured (security.md, appendix).
pub(crate) fn runsc() -> SandboxFacts {
    let mut facts = runc();
    facts.runtime = "runsc".to_owned();
    facts.applied.runtime = "runsc".to_owned();
    facts.memory = MemoryEnd::Sandbox {
        seen_by_engine: true,
    };
    facts.dataset_is_the_checked_one = false;
    let seen = &mut facts.seen;
    seen.identity.kernel = "4.4.0".to_owned();
    seen.identity.block_device = "made, opening it: ENXIO".to_owned();
    seen.identity.first_environment = NamesOrError::Names(texts(&["HOSTNAME", "PATH"]));
    seen.identity.uid_map = "0 0 4294967295".to_owned();
    seen.identity.cgroups = Vec::new();
    seen.files.sockets = texts(&["/dev/fuse"]);
    let kernel = &mut seen.kernel;
    kernel.seccomp = Some("0".to_owned());
    for (row, call, answer) in [
        ("io_uring", "io_uring_setup", "ok"),
        ("namespaces", "unshare(NEWUSER)", "ok"),
        ("namespaces", "unshare(NEWNS)", "ok"),
        ("keys", "keyctl", "EACCES"),
        ("observation", "userfaultfd", "ENOSYS"),
        ("other processes", "ptrace(TRACEME)", "ok"),
        ("mounts", "fsopen", "ENOSYS"),
        ("machine", "syslog", "ok"),
    ] {
        let group = kernel.calls.get_mut(row).unwrap();
        group.insert(call.to_owned(), answer.to_owned());
    }
    kernel.sockets = answers(&["INET", "NETLINK"], "ok");
    kernel.sockets.extend(answers(&["PACKET"], "EPERM"));
    kernel
        .masked
        .insert("/proc/version".to_owned(), "56".to_owned());
    seen.files.root = answers(&["/x", "/etc/x"], "EACCES");
    seen.resources.oom_score = "0".to_owned();
    seen.resources.group = BTreeMap::new();
    facts
}

fn network() -> Network {
    let addresses = [
        "1.1.1.1 53",
        "169.254.169.254 80",
        "172.17.0.1 2375",
        "2852039166 80",
        "0xa9fea9fe 80",
        "fd00:ec2::254 80",
    ];
    Network {
        neighbour: "ECONNREFUSED".to_owned(),
        connections: answers(&addresses, "EPERM"),
        connecting_milliseconds: 3,
        interfaces: texts(&["lo"]),
        names: answers(&["example.com", "metadata.google.internal"], "gaierror"),
        resolver: Vec::new(),
        unix_sockets: Vec::new(),
        cluster: Vec::new(),
    }
}

fn identity(environment: Vec<String>) -> Identity {
    let sets = ["CapAmb", "CapBnd", "CapEff", "CapInh", "CapPrm"];
    Identity {
        descriptors: Vec::new(),
        uids: vec![UID; 3],
        gids: vec![UID; 3],
        groups: vec![UID],
        capabilities: answers(&sets, "0000000000000000"),
        no_new_privileges: 1,
        become_root: "EPERM".to_owned(),
        devices: texts(&["fd", "full", "null", "ptmx", "pts", "random", "shm", "zero"]),
        block_device: "EPERM".to_owned(),
        processes: vec![1, 7],
        own_process: 7,
        first_command: "/fumehood/supervisor".to_owned(),
        first_environment: NamesOrError::Error("EACCES".to_owned()),
        cgroups: texts(&["/"]),
        uid_map: "0 0 4294967295".to_owned(),
        lsm: "docker-default (enforce)".to_owned(),
        terminals: vec![false; 3],
        input: "EOF".to_owned(),
        host_name: "sandbox".to_owned(),
        kernel: "6.18".to_owned(),
        hosts: "127.0.0.1 localhost".to_owned(),
        working_directory: "/work".to_owned(),
        environment,
    }
}

fn kernel() -> Kernel {
    let groups = [
        ("io_uring", &["io_uring_setup", "io_setup"][..]),
        (
            "namespaces",
            &["unshare(NEWUSER)", "unshare(NEWNS)", "setns"],
        ),
        ("keys", &["keyctl"]),
        ("observation", &["bpf", "userfaultfd"]),
        ("other processes", &["ptrace(TRACEME)", "pidfd_getfd"]),
        ("mounts", &["mount", "fsopen"]),
        ("machine", &["reboot", "syslog"]),
    ];
    let mut calls: BTreeMap<String, Answers> = groups
        .into_iter()
        .map(|(row, names)| (row.to_owned(), answers(names, "EPERM")))
        .collect();
    let namespaces = calls.get_mut("namespaces").unwrap();
    namespaces.insert("clone3".to_owned(), "ENOSYS".to_owned());
    Kernel {
        seccomp: Some("2".to_owned()),
        calls,
        sockets: answers(&["INET", "ALG", "PACKET"], "EPERM"),
        socket_pair: "ok".to_owned(),
        thread: "ok".to_owned(),
        other_abi: "SIGSYS".to_owned(),
        x32: "SIGSYS".to_owned(),
        masked: answers(&["/proc/keys", "/proc/kcore"], "0"),
        masked_directories: BTreeMap::from([("/sys/firmware".to_owned(), 0)]),
        writes: answers(&["/proc/sys/kernel/core_pattern"], "EACCES"),
        surface: Some(Surface {
            tried: 400,
            refused: 200,
        }),
    }
}

fn mount(target: &str, options: &str, kind: &str) -> MountSeen {
    MountSeen {
        target: target.to_owned(),
        options: options.split(',').map(str::to_owned).collect(),
        kind: kind.to_owned(),
    }
}

fn files(sizes: &policy::Sizes) -> Files {
    let place = |bytes, inodes| Temporary {
        bytes,
        inodes,
        fill: ("ENOSPC".to_owned(), bytes),
        files: ("ENOSPC".to_owned(), inodes),
        execute: "EACCES".to_owned(),
    };
    let (work, temporary) = (sizes.workspace, sizes.temporary);
    let memory = "rw,nosuid,nodev,noexec";
    Files {
        root: answers(&["/x", "/etc/x"], "EROFS"),
        mounts: vec![
            mount("/", "ro", "overlay"),
            mount("/proc", "rw", "proc"),
            mount("/proc/sys", "ro", "proc"),
            mount("/sys", "ro", "sysfs"),
            mount("/data", "ro", "ext4"),
            mount("/fumehood", "ro", "ext4"),
            mount("/work", memory, "tmpfs"),
            mount("/tmp", memory, "tmpfs"),
            mount("/dev/shm", memory, "tmpfs"),
        ],
        temporary: [
            ("/work", place(work.bytes, work.inodes)),
            ("/tmp", place(temporary.bytes, temporary.inodes)),
            ("/dev/shm", place(sizes.shared_memory_bytes, 1 << 30)),
        ]
        .map(|(path, place)| (path.to_owned(), place))
        .into(),
        workspace: WorkspaceSeen {
            mode: "0o700".to_owned(),
            owned: true,
            write: "ok".to_owned(),
        },
        dataset: {
            let mut tried = answers(&["create", "append", "unlink"], "EROFS");
            tried.extend(answers(&["read"], "ok"));
            tried
        },
        set_id_files: Vec::new(),
        canary: Vec::new(),
        sockets: Vec::new(),
    }
}

fn resources(sizes: &policy::Sizes) -> Resources {
    let fixed = |value| (value, value);
    let work = i64::try_from(sizes.workspace.bytes).unwrap();
    Resources {
        limits: [
            ("CORE", fixed(0)),
            ("CPU", fixed(-1)),
            ("FSIZE", fixed(work)),
            ("MEMLOCK", fixed(65_536)),
            ("NOFILE", fixed(1024)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into(),
        open_files: ("EMFILE".to_owned(), 1020),
        processes: ("EAGAIN".to_owned(), 47),
        sparse: "EFBIG".to_owned(),
        core_files: Vec::new(),
        oom_score: "1000".to_owned(),
        first_oom_score: "500".to_owned(),
        lower_oom_score: "EACCES".to_owned(),
        nice: "EPERM".to_owned(),
        group: [("memory", "134217728"), ("cpu", "100000 100000")]
            .map(|(name, value)| (name.to_owned(), Some(value.to_owned())))
            .into(),
    }
}

/// A host and an engine as the bar wants them.
pub(crate) fn machine() -> MachineFacts {
    let settings = [
        ("kernel.core_pattern", "core"),
        ("kernel.dmesg_restrict", "1"),
        ("kernel.io_uring_disabled", "2"),
        ("kernel.kptr_restrict", "2"),
        ("kernel.unprivileged_bpf_disabled", "2"),
        ("user.max_user_namespaces", "0"),
    ];
    MachineFacts {
        host: HostFacts {
            name: "host7".to_owned(),
            kernel: Some("6.18.5".to_owned()),
            swap_kib: Some(0),
            ksm: Some("0".to_owned()),
            smt: Some("0".to_owned()),
            lsm: Some("capability,apparmor".to_owned()),
            settings: settings
                .map(|(name, value)| (name, Some(value.to_owned())))
                .into(),
            socket: Some(SocketFacts {
                mode: 0o140_660,
                uid: 0,
                gid: 100,
            }),
            engine_addresses: Vec::new(),
            capabilities: Some(0),
            uid: 1000,
            engine_config: Some(serde_json::json!({
                "icc": false, "userland-proxy": false, "no-new-privileges": true,
                "log-opts": {"max-size": "10m"},
            })),
            data_is_apart: Some(true),
        },
        engine: EngineFacts {
            id: "X".to_owned(),
            version: "29.5.1".to_owned(),
            api_version: "1.51".to_owned(),
            runtimes: texts(&["runc", "runsc"]),
            default_runtime: "runc".to_owned(),
            kernel: "6.18.5".to_owned(),
            runc_version: Some("1.5.0".to_owned()),
            cgroup_version: Some(2),
            security_options: texts(&["name=rootless", "name=userns"]),
            live_restore: Some(true),
            data_directory: "/var/lib/docker".to_owned(),
            missing_limits: Vec::new(),
        },
    }
}
