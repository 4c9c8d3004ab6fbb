//! What programs can make without a bound, and what collecting it costs.

use std::time::Instant;

use serde_json::json;

use super::{files, reason};
use crate::support::{Daemon, Settings};

#[tokio::test(flavor = "multi_thread")]
async fn br_18_the_cost_of_collecting_is_bounded_and_what_is_left_out_is_listed() {
    let settings = Settings {
        toml: "[execution]\nmax_artifact_files = 20\nmax_artifact_mb = 4".to_owned(),
        ..Settings::default()
    };
    let daemon = Daemon::start_with(settings).await;
    let many = "
import os
d = 'out/a'
for i in range(40):
    os.mkdir(d); d += '/d'
open('out/b_real.txt', 'w').write('keep me')
for i in range(COUNT):
    open(f'out/f{i:06d}', 'w').close()
";
    let result = daemon.execute(&many.replace("COUNT", "30")).await;
    let kept = files(&daemon, &result);
    assert_eq!(kept.len(), 20);
    assert!(kept.contains(&("b_real.txt".to_owned(), b"keep me".to_vec())));
    let skipped = result["artifacts_skipped"].as_array().unwrap();
    assert!(skipped.iter().any(|entry| entry["reason"] == "too deep"));
    for number in 19..30 {
        let name = format!("f{number:06}");
        assert_eq!(reason(&result, &name), "more files than max_artifact_files");
    }

    let begun = Instant::now();
    let result = daemon.execute(&many.replace("COUNT", "50000")).await;
    assert!(begun.elapsed().as_secs() < 30);
    assert_eq!(result["status"], "SUCCESS", "{result:#}");
    assert_eq!(files(&daemon, &result).len(), 20);
    assert_eq!(reason(&result, "out"), "more entries than are looked at");
    assert!(result["artifacts_skipped"].as_array().unwrap().len() <= 1001);

    let large = "
open('out/a_sparse', 'wb').truncate(1 << 30)
open('out/b_fits', 'wb').write(bytes(3 << 20))
open('out/c_no_more', 'wb').write(bytes(2 << 20))
open('out/d_fits', 'w').write('small')
";
    let result = daemon.execute(large).await;
    let names: Vec<String> = files(&daemon, &result)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["b_fits", "d_fits"]);
    for (name, size) in [("a_sparse", 1_u64 << 30), ("c_no_more", 2 << 20)] {
        assert_eq!(
            reason(&result, name),
            "larger than what is left of max_artifact_mb"
        );
        let skipped = result["artifacts_skipped"].as_array().unwrap();
        let entry = skipped.iter().find(|entry| entry["path"] == name).unwrap();
        assert_eq!(entry["size"], size);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn br_19_a_tree_that_resists_deletion_does_not_outlive_its_run() {
    let daemon = Daemon::start().await;
    let code = "
import os
for top in ('/work', '/work/out', '/tmp'):
    os.chdir(top)
    os.makedirs('ro/deep'); open('ro/deep/x', 'w').write('locked')
    os.chmod('ro/deep/x', 0); os.chmod('ro/deep', 0); os.chmod('ro', 0o555)
    open('sticky', 'w').close(); os.chmod('sticky', 0o4000)
    name = 'n' * 250
    for _ in range(60):
        os.mkdir(name); os.chdir(name)
    open('bottom', 'w').close()
os.chdir('/work'); os.chmod('out', 0); os.chmod('.', 0)
";
    let result = daemon.execute(code).await;
    assert_eq!(result["status"], "SUCCESS", "{result:#}");
    let kept = files(&daemon, &result);
    assert!(
        kept.contains(&("ro/deep/x".to_owned(), b"locked".to_vec())),
        "{kept:?}"
    );
    assert!(kept.contains(&("sticky".to_owned(), Vec::new())));
    let skipped = result["artifacts_skipped"].as_array().unwrap();
    assert!(!skipped.is_empty(), "the deep tree is listed");
    let directory = daemon.artifacts(result["execution_id"].as_str().unwrap());
    std::fs::remove_dir_all(&directory).expect("artifacts can be deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_name_of_a_hard_linked_file_counts_with_its_bytes() {
    let settings = Settings {
        toml: "[execution]\nmax_artifact_mb = 4".to_owned(),
        ..Settings::default()
    };
    let daemon = Daemon::start_with(settings).await;
    let code = "
import os
open('out/0000', 'wb').write(bytes(1 << 20))
for i in range(1, 3000):
    os.link('out/0000', f'out/{i:04d}')
";
    let result = daemon.execute(code).await;
    let kept: Vec<String> = files(&daemon, &result)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(kept, ["0000", "0001", "0002", "0003"]);
    let left_out = "larger than what is left of max_artifact_mb";
    assert_eq!(reason(&result, "0004"), left_out);
    assert_eq!(
        reason(&result, "(more)"),
        "1996 further entries were left out"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn full_file_systems_and_memory_neither_lose_artifacts_nor_the_supervisor() {
    let daemon = Daemon::start().await;
    let code = "
import os
open('out/a_first.txt', 'w').write('kept')
def fill(path):
    try:
        with open(path, 'wb') as f:
            while True: f.write(bytes(1 << 20)); f.flush()
    except OSError: pass
for path in ('out/b_fill', '/tmp/fill', '/dev/shm/fill'): fill(path)
for _ in range(END):
    if os.fork() == 0:
        # The kernel then never picks the parent, which holds about as much.
        open('/proc/self/oom_score_adj', 'w').write('1000')
        keep = []
        while True: keep.append(bytearray(1 << 20))
for _ in range(END): os.wait()
";
    let options = json!({"memory_mb": 256, "workspace_mb": 96, "shm_mb": 96});
    for (bombs, warnings) in [("0", 1), ("12", 2)] {
        let code = code.replace("END", bombs);
        let result = daemon
            .result(json!({"code": code, "options": options}))
            .await;
        assert_eq!(result["status"], "SUCCESS", "{result:#}");
        assert_eq!(
            result["warnings"].as_array().unwrap().len(),
            warnings,
            "{result:#}"
        );
        let kept: Vec<String> = files(&daemon, &result)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(kept, ["a_first.txt", "b_fill"]);
    }
}
