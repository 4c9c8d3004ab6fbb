//! What the tests of receipts share: a notary with a known key, and executions to make receipts of.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::chain::{Head, Notary, Sealed};
use super::document::{Account, Known};
use super::evidence::{DatasetEvidence, DatasetListing, EnforcedLimits, Evidence, HashedFile};
use super::key::ReceiptKey;
use crate::execution::isolation::{
    Applied, AppliedLimits, EngineFacts, Found, FoundDataset, Isolation, MountFacts, Namespaces,
    PathList, RuntimeFacts,
};
use crate::execution::result::{DatasetMounted, SandboxStart, SandboxUse};
use crate::execution::{Artifact, Cause, CauseKind, ExecutionResult, Status};
use crate::ids::{ExecutionId, InstanceId, RunId};

/// A notary whose key every test can make again.
pub(crate) fn notary() -> Notary {
    notary_with(7, "abcdefghijkl")
}

pub(crate) fn notary_with(secret: u8, instance: &str) -> Notary {
    let key = ReceiptKey::of_secret(&[secret; 32]);
    Notary::new(key, InstanceId::parse(instance).unwrap())
}

pub(crate) fn run_id() -> RunId {
    RunId::parse("123e4567-e89b-42d3-a456-426614174000").unwrap()
}

pub(crate) fn execution_id(number: usize) -> ExecutionId {
    ExecutionId::parse(&format!("exec_{number:08}")).unwrap()
}

/// An execution that ended well and left two files.
pub(crate) fn result(execution: &ExecutionId) -> ExecutionResult {
    let artifact = |path: &str, content: &str| {
        let HashedFile { path, sha256, size } = HashedFile::of(path, content.as_bytes());
        Artifact { path, size, sha256 }
    };
    ExecutionResult {
        execution_id: execution.clone(),
        success: true,
        status: Status::Success,
        return_code: Some(0),
        stdout: "PRINTED".to_owned(),
        stderr: "PRINTED".to_owned(),
        duration_seconds: 1.25,
        timed_out: false,
        output_files: Vec::new(),
        missing_expected_files: Vec::new(),
        error_info: None,
        workspace_dir: format!("outputs/models/{execution}"),
        limit: None,
        cause: Cause {
            may_be_the_programs: false,
            kind: CauseKind::Exited,
            limit: None,
            configured: None,
            observed: None,
            evidence: vec!["PRINTED".to_owned()],
            message: "PRINTED".to_owned(),
        },
        warnings: Vec::new(),
        stdout_bytes: 7,
        stderr_bytes: 8,
        stdout_tail: None,
        stderr_tail: None,
        usage: None,
        sandbox: Some(SandboxUse {
            start: SandboxStart::Preloaded,
            dataset_mount: Some(DatasetMounted::Placed),
        }),
        started_at: Some(Timestamp::UNIX_EPOCH),
        finished_at: Timestamp::from_millisecond(1250).unwrap(),
        artifacts: vec![
            artifact("models/model.pkl", "a model"),
            artifact("predictions.csv", "id,value\n"),
        ],
        artifacts_skipped: Vec::new(),
    }
}

/// What such an execution was made from.
pub(crate) fn evidence() -> Evidence {
    Evidence {
        image: "fumehood/python:1".to_owned(),
        input_files: vec![HashedFile::of("helper.py", b"x = 1\n")],
        setup_script: Some(HashedFile::of("setup.sh", b"true\n")),
        limits: EnforcedLimits {
            wall_milliseconds: 120_000,
            stdout_bytes: 102_400,
            stderr_bytes: 102_400,
            file_bytes: 1 << 30,
            open_files: 1024,
            artifact_bytes: 1 << 30,
            artifact_files: 10_000,
        },
        dataset: Some(DatasetEvidence {
            listing: Some(DatasetListing {
                sha256: "ab".repeat(32),
                entries: 2,
                entry_limit: 1000,
                complete: true,
                bytes: 77,
            }),
        }),
        isolation: Some(isolation()),
    }
}

fn isolation() -> Isolation {
    let private = || "private".to_owned();
    Isolation {
        applied: Applied {
            engine: EngineFacts {
                name: "Docker Engine".to_owned(),
                version: Some("29.3.1".to_owned()),
                kernel: Some("6.18.0".to_owned()),
            },
            runtime: RuntimeFacts {
                name: "runc".to_owned(),
                version: Some("1.3.4".to_owned()),
            },
            image: format!("sha256:{}", "cd".repeat(32)),
            user: "50000:50000".to_owned(),
            capabilities_dropped: vec!["ALL".to_owned()],
            no_new_privileges: true,
            seccomp_profile_sha256: Some("ef".repeat(32)),
            read_only_root: true,
            network: "none".to_owned(),
            namespaces: Namespaces {
                cgroup: private(),
                ipc: private(),
                pid: private(),
                user: "engine default".to_owned(),
                uts: private(),
            },
            mounts: vec![MountFacts {
                target: "/work".to_owned(),
                kind: "tmpfs".to_owned(),
                read_only: false,
                options: "rw,noexec".to_owned(),
            }],
            masked_paths: PathList::of(vec!["/proc/kcore".to_owned()]),
            log: "none".to_owned(),
            limits: AppliedLimits {
                memory_bytes: Some(2 << 30),
                ulimits: BTreeMap::from([("core".to_owned(), 0)]),
                ..AppliedLimits::default()
            },
            ..Applied::default()
        },
        found: Found {
            protocol: 1,
            uid: 50_000,
            gid: 50_000,
            supplementary_groups: Vec::new(),
            capabilities: "0000000000000000".to_owned(),
            no_new_privileges: Some(true),
            seccomp_mode: Some(2),
            root_read_only: true,
            network_interfaces: vec!["lo".to_owned()],
            dataset: Some(FoundDataset {
                read_only: true,
                readable: true,
            }),
            workspace_bytes: 1 << 30,
            // More than a double can tell from its neighbours.
            workspace_inodes: u64::MAX,
        },
    }
}

/// The receipt of an execution after `last`.
pub(crate) fn receipt(notary: &Notary, number: usize, last: Option<&Head>) -> Sealed {
    sealed(notary, &result(&execution_id(number)), &evidence(), last)
}

/// The receipt of an execution with this result.
pub(crate) fn sealed(
    notary: &Notary,
    result: &ExecutionResult,
    evidence: &Evidence,
    last: Option<&Head>,
) -> Sealed {
    let account = Account {
        run: run_id(),
        execution: &result.execution_id,
        known: Known::Ended {
            iteration: 1,
            code_sha256: "12",
            code_bytes: 5,
            result,
            evidence,
        },
    };
    notary.seal(&notary.draft(&account).unwrap(), last)
}

/// The first receipt of a chain, of an execution that left these files.
pub(crate) fn receipt_with(notary: &Notary, files: &[(&str, &str)]) -> Sealed {
    let (execution, evidence) = (execution_id(1), evidence());
    let mut result = result(&execution);
    let artifact = |(path, content): &(&str, &str)| {
        let HashedFile { path, sha256, size } = HashedFile::of(path, content.as_bytes());
        Artifact { path, size, sha256 }
    };
    result.artifacts = files.iter().map(artifact).collect();
    sealed(notary, &result, &evidence, None)
}

/// A chain from its beginning.
pub(crate) fn chain_of(notary: &Notary, length: usize) -> Vec<Sealed> {
    let mut chain: Vec<Sealed> = Vec::new();
    for number in 1..=length {
        let last = chain.last().map(|sealed| sealed.head.clone());
        chain.push(receipt(notary, number, last.as_ref()));
    }
    chain
}
