//! Artifacts appear whole or not at all, and nothing that is there is touched.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use super::*;

fn path(text: &str) -> ArtifactPath {
    ArtifactPath::from_bytes(text.as_bytes()).unwrap()
}

fn store(staging: &Staging, name: &str, bytes: &[u8]) -> Artifact {
    let mut file = staging.create(&path(name)).unwrap();
    file.write(bytes).unwrap();
    file.finish(Attributes {
        executable: false,
        modified: (1_600_000_000, 5),
    })
    .unwrap()
}

#[test]
fn a_reader_sees_all_or_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let root = OutputRoot::new(directory.path());
    let execution = ExecutionId::random();
    let staging = root.stage(&execution).unwrap();
    let artifact = store(&staging, "models/m.bin", b"abc");
    let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!((artifact.size, artifact.sha256.as_str()), (3, expected));
    assert!(!root.published(&execution).exists());
    staging.publish().unwrap();
    let file = root
        .published(&execution)
        .join("models/m.bin")
        .metadata()
        .unwrap();
    assert_eq!(file.permissions().mode() & 0o7777, 0o644);
    assert_eq!((file.mtime(), file.mtime_nsec()), (1_600_000_000, 5));
}

#[test]
fn what_is_not_published_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let root = OutputRoot::new(directory.path());
    let staging = root.stage(&ExecutionId::random()).unwrap();
    store(&staging, "a/b/c", b"x");
    drop(staging);
    assert_eq!(
        std::fs::read_dir(directory.path().join(MODELS))
            .unwrap()
            .count(),
        0
    );
}

#[test]
fn leftovers_of_a_stopped_daemon_are_removed_and_results_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let models = directory.path().join(MODELS);
    std::fs::create_dir_all(models.join(".partial-exec_aaaaaaaa/x")).unwrap();
    std::fs::create_dir_all(models.join("exec_bbbbbbbb")).unwrap();
    OutputRoot::new(directory.path()).prepare().unwrap();
    let left: Vec<_> = std::fs::read_dir(models)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left, ["exec_bbbbbbbb"]);
}

#[test]
fn what_another_process_is_at_work_in_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let root = OutputRoot::new(directory.path());
    let execution = ExecutionId::random();
    let staging = root.stage(&execution).unwrap();
    root.prepare().unwrap();
    store(&staging, "a", b"x");
    staging.publish().unwrap();
    assert!(root.published(&execution).join("a").exists());
}

#[test]
fn nothing_that_is_there_is_written_to_or_followed() {
    let directory = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let root = OutputRoot::new(directory.path());
    let execution = ExecutionId::random();
    let staging = root.stage(&execution).unwrap();
    let partial = directory
        .path()
        .join(MODELS)
        .join(format!("{PARTIAL_PREFIX}{execution}"));
    symlink(outside.path(), partial.join("link")).unwrap();
    symlink(outside.path().join("new"), partial.join("dangling")).unwrap();
    store(&staging, "file", b"first");
    for name in ["link/x", "dangling", "file", "file/x"] {
        let refused = staging.create(&path(name)).unwrap_err();
        assert!(
            matches!(refused, StoreArtifactError::NameTaken),
            "{name}: {refused:?}"
        );
    }
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn an_earlier_result_is_never_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let root = OutputRoot::new(directory.path());
    let execution = ExecutionId::random();
    root.stage(&execution).unwrap().publish().unwrap();
    let again = root.stage(&execution).unwrap();
    assert!(again.publish().is_err());
}

#[test]
fn an_output_root_that_cannot_be_made_names_the_setting_and_no_path() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = OutputRoot::new(&file).prepare().unwrap_err();
    assert!(error.to_string().contains("app.output_root"));
    assert!(
        !error
            .to_string()
            .contains(&*directory.path().to_string_lossy())
    );
}

#[test]
fn only_a_disk_without_room_is_full() {
    let of = |errno: Errno| OutputRootError(errno.into());
    for errno in [Errno::NOSPC, Errno::DQUOT] {
        assert!(of(errno).is_full(), "{errno}");
    }
    for errno in [Errno::ROFS, Errno::ACCESS, Errno::NOTDIR, Errno::IO] {
        assert!(!of(errno).is_full(), "{errno}");
    }
}
