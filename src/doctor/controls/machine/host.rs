//! The host: its kernel's settings and what its memory is shared with (rows 21 and 67).

use super::{advice, confines, floor, setting, value};
use crate::doctor::controls::Control;
use crate::doctor::controls::findings::{absent, decide, holds};
use crate::doctor::facts::MachineFacts;
use crate::doctor::versions::Version;

/// Rows 21 and 67.
pub const TABLE: &[Control<MachineFacts>] = &[
    advice(
        "21",
        "Linux security modules",
        "AppArmor or SELinux",
        "Enable AppArmor",
        |facts| match &facts.host.lsm {
            Some(list) if confines(list) => holds(list.clone()),
            Some(list) => absent(format!("only {list}")),
            None => absent("none"),
        },
    ),
    advice(
        "67",
        "control groups",
        "version 2",
        "Boot with systemd.unified_cgroup_hierarchy=1",
        |facts| match facts.engine.cgroup_version {
            Some(version) => decide(version == 2, format!("version {version}")),
            None => absent("the engine does not tell"),
        },
    ),
    advice(
        "67",
        "swap",
        "none",
        "swapoff -a: what is in memory would be written to disk",
        |facts| match facts.host.swap_kib {
            Some(size) => decide(size == 0, format!("{} MiB", size >> 10)),
            None => absent("not told"),
        },
    ),
    advice(
        "67",
        "same-page merging (KSM)",
        "off",
        "echo 2 > /sys/kernel/mm/ksm/run",
        |facts| value(facts.host.ksm.as_deref(), |text| text == "0" || text == "2"),
    ),
    advice(
        "67",
        "threads of one core (SMT)",
        "off for more than one tenant",
        "echo off > /sys/devices/system/cpu/smt/control",
        |facts| value(facts.host.smt.as_deref(), |text| text == "0"),
    ),
    advice(
        "67",
        "kernel.dmesg_restrict",
        "1",
        "sysctl -w kernel.dmesg_restrict=1",
        |facts| setting(facts, "kernel.dmesg_restrict", |text| text != "0"),
    ),
    advice(
        "67",
        "kernel.kptr_restrict",
        "1 or 2",
        "sysctl -w kernel.kptr_restrict=2",
        |facts| setting(facts, "kernel.kptr_restrict", |text| text != "0"),
    ),
    advice(
        "67",
        "kernel.unprivileged_bpf_disabled",
        "1 or 2",
        "sysctl -w kernel.unprivileged_bpf_disabled=2",
        |facts| {
            setting(facts, "kernel.unprivileged_bpf_disabled", |text| {
                text != "0"
            })
        },
    ),
    advice(
        "67",
        "kernel.io_uring_disabled",
        "2",
        "sysctl -w kernel.io_uring_disabled=2",
        |facts| setting(facts, "kernel.io_uring_disabled", |text| text == "2"),
    ),
    advice(
        "67",
        "kernel.core_pattern",
        "no pipe",
        "sysctl -w kernel.core_pattern=core",
        |facts| setting(facts, "kernel.core_pattern", |text| !text.starts_with('|')),
    ),
    advice(
        "67",
        "user.max_user_namespaces",
        "0 if unused",
        "sysctl -w user.max_user_namespaces=0",
        |facts| setting(facts, "user.max_user_namespaces", |text| text == "0"),
    ),
    advice(
        "67k",
        "kernel: Dirty Pipe, Dirty COW",
        "5.10.102, 5.15.25, 5.16.11 or later",
        "Upgrade the kernel",
        |facts| {
            let floors = [
                Version::new(5, 10, 102),
                Version::new(5, 15, 25),
                Version::new(5, 16, 11),
            ];
            floor(facts.host.kernel.as_deref(), &floors)
        },
    ),
];
