//! `deploy/fumehood.service`: what it gives the daemon, and above all what it does not (security.md rows 37
//! and 64).

use std::process::Command;

use crate::support::data::repository;

#[test]
fn the_service_has_no_privilege_and_is_not_the_one_killed_for_memory() {
    let unit = std::fs::read_to_string(repository().join("deploy/fumehood.service")).unwrap();
    for line in [
        "User=fumehood",
        "SupplementaryGroups=docker",
        "OOMScoreAdjust=-900",
        "CapabilityBoundingSet=",
        "NoNewPrivileges=yes",
        "LimitCORE=0",
        "ProtectSystem=strict",
        "StateDirectoryMode=0700",
        "LockPersonality=yes",
        "MemoryDenyWriteExecute=yes",
        "PrivateDevices=yes",
        "PrivateTmp=yes",
        "ProtectClock=yes",
        "ProtectControlGroups=yes",
        "ProtectHome=yes",
        "ProtectHostname=yes",
        "ProtectKernelLogs=yes",
        "ProtectKernelModules=yes",
        "ProtectKernelTunables=yes",
        "ProtectProc=invisible",
        "RemoveIPC=yes",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
        "RestrictNamespaces=yes",
        "RestrictRealtime=yes",
        "RestrictSUIDSGID=yes",
        "SystemCallArchitectures=native",
        "SystemCallErrorNumber=EPERM",
        "SystemCallFilter=@system-service",
    ] {
        assert!(unit.lines().any(|known| known == line), "{line}");
    }
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        eprintln!("SKIPPED: the rest needs systemd-analyze");
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("fumehood.service");
    let program = env!("CARGO_BIN_EXE_fumehood");
    std::fs::write(&path, unit.replace("/usr/local/bin/fumehood", program)).unwrap();
    let analyze = |arguments: &[&str]| {
        let called = Command::new("systemd-analyze")
            .args(arguments)
            .arg(&path)
            .output()
            .unwrap();
        assert!(called.status.success(), "{called:?}");
        String::from_utf8(called.stderr).unwrap()
    };
    // A misspelt key is no error, only a line.
    let complaints = analyze(&["verify"]);
    assert!(!complaints.contains("fumehood.service:"), "{complaints}");
    // Of 100; a service without any of this has 96.
    analyze(&["security", "--offline=true", "--threshold=20", "--no-pager"]);
}
