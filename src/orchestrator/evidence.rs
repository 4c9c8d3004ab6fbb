//! What a receipt says of an execution besides its result, as far as it is known before there is a
//! sandbox: a pure translation of its specification.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::execution::spec::{ExecutionSpec, Limits, SETUP_NAME};
use crate::receipt::Evidence;
use crate::receipt::evidence::{DatasetEvidence, EnforcedLimits, HashedFile};
use crate::sandbox::program;

/// What is known of an execution before it is prepared.
pub(super) fn of(spec: &ExecutionSpec) -> Evidence {
    let files = spec.input_files.iter();
    let script = spec.bash_script.as_deref();
    Evidence {
        image: spec.image.clone(),
        input_files: files
            .map(|(path, bytes)| HashedFile::of(path, bytes))
            .collect(),
        setup_script: script.map(|script| HashedFile::of(SETUP_NAME, script.as_bytes())),
        limits: enforced(&spec.limits),
        dataset: spec.dataset.as_ref().map(|_| DatasetEvidence::default()),
        isolation: None,
    }
}

/// SHA-256 of each input file, by its name.
pub(super) fn input_digests(evidence: &Evidence) -> BTreeMap<String, String> {
    let files = evidence.input_files.iter();
    files
        .map(|file| (file.path.clone(), file.sha256.clone()))
        .collect()
}

fn enforced(limits: &Limits) -> EnforcedLimits {
    let wall = Duration::try_from_secs_f64(limits.timeout_seconds).unwrap_or(Duration::MAX);
    EnforcedLimits {
        wall_milliseconds: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
        stdout_bytes: limits.max_stdout_size_bytes,
        stderr_bytes: limits.max_stderr_size_bytes,
        file_bytes: program::file_size_bytes(&limits.of_sandbox()),
        open_files: program::OPEN_FILES,
        artifact_bytes: limits.max_artifact_mb << 20,
        artifact_files: limits.max_artifact_files,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Execution;
    use crate::ids::ExecutionId;

    #[test]
    fn everything_that_was_given_is_in_it_by_its_hash_and_nothing_by_its_text() {
        let spec = ExecutionSpec {
            id: ExecutionId::random(),
            code: "print('SECRET')".to_owned(),
            input_files: BTreeMap::from([("a.py".to_owned(), b"SECRET".to_vec())]),
            expected_output_files: Vec::new(),
            bash_script: Some("# SECRET".to_owned()),
            dataset: None,
            image: "image".to_owned(),
            runtime: None,
            preload: true,
            limits: Execution::default().default_limits(),
        };
        let evidence = of(&spec);
        assert_eq!(evidence.input_files, [HashedFile::of("a.py", b"SECRET")]);
        let script = HashedFile::of("setup.sh", b"# SECRET");
        assert_eq!(evidence.setup_script, Some(script));
        assert_eq!(evidence.limits.wall_milliseconds, 120_000);
        assert_eq!(evidence.limits.artifact_bytes, 1 << 30);
        assert_eq!(evidence.isolation, None);
        assert!(!format!("{evidence:?}").contains("SECRET"));
        assert_eq!(
            input_digests(&evidence)["a.py"],
            evidence.input_files[0].sha256
        );
    }
}
