//! Real data sets, written once per test run by a program in the sandbox image itself.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use sha2::{Digest as _, Sha256};

use super::Daemon;

/// The directory with `breast_cancer`, `diabetes`, `digits` and `wine`, each with `train.csv` and
/// `test.csv`.
pub(crate) fn datasets() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let work = tempfile::tempdir_in(target).unwrap();
        let script = repository().join("tests/fixtures/datasets.py");
        let made = Command::new(env!("CARGO_BIN_EXE_fumehood"))
            .args(["run", "--json", "--output", "outputs"])
            .arg(script)
            .current_dir(work.path())
            .output()
            .unwrap();
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        let result: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
        let id = result["execution_id"].as_str().unwrap();
        let directory = work.keep().join("outputs/models").join(id);
        assert!(directory.join("breast_cancer/train.csv").exists());
        directory
    })
}

/// Copies a data set into the daemon's data root; gives its path as a request has it.
pub(crate) fn give(daemon: &Daemon, name: &str) -> String {
    let target = daemon.data().join(name);
    std::fs::create_dir(&target).unwrap();
    for file in ["train.csv", "test.csv"] {
        std::fs::copy(datasets().join(name).join(file), target.join(file)).unwrap();
    }
    format!("data/{name}")
}

/// The checkout.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// One hash over every name, kind, mode, time and content of a tree.
pub(crate) fn tree_hash(root: &Path) -> String {
    use std::os::unix::fs::MetadataExt as _;

    let mut hash = Sha256::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        let mut entries: Vec<_> = std::fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        entries.sort();
        for path in entries {
            let metadata = path.symlink_metadata().unwrap();
            let facts = (
                metadata.mode(),
                metadata.uid(),
                metadata.len(),
                metadata.mtime_nsec(),
            );
            hash.update(format!(
                "{} {facts:?} {}\n",
                path.display(),
                metadata.mtime()
            ));
            if metadata.is_dir() {
                pending.push(path);
            } else if metadata.is_file() {
                hash.update(std::fs::read(&path).unwrap());
            }
        }
    }
    hex::encode(hash.finalize())
}

/// Makes a data set whose files everybody could change, were it not for the sandbox.
pub(crate) fn make_open_set(directory: &Path) {
    use std::fs::{Permissions, create_dir_all, set_permissions, write};
    use std::os::unix::fs::PermissionsExt as _;

    create_dir_all(directory.join("sub")).unwrap();
    write(directory.join("data.csv"), "a,b\n1,2\n").unwrap();
    write(directory.join("large.bin"), vec![7; 4 << 20]).unwrap();
    for (name, mode) in [
        ("sub", 0o777),
        ("data.csv", 0o666),
        ("large.bin", 0o666),
        ("", 0o777),
    ] {
        set_permissions(directory.join(name), Permissions::from_mode(mode)).unwrap();
    }
}
