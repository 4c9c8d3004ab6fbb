//! Two things that want one name, and attributes that a host may not have.

use std::os::unix::fs::MetadataExt as _;

use serde_json::json;

use super::{files, reason};
use crate::support::Daemon;

#[tokio::test(flavor = "multi_thread")]
async fn of_two_things_with_one_name_one_is_kept_and_the_other_listed() {
    let daemon = Daemon::start().await;
    let code = r#"
import os
os.makedirs("out/a"); os.makedirs("out/models")
for name in ("out/a/x", "a", "out/b", "b", "out/setup.sh", "out/script.py", "models"):
    open(name, "w").write(name)
open(b"out/\xff", "w").write("byte"); open("out/%FF", "w").write("text")
os.makedirs(b"out/d\xfe"); open(b"out/d\xfe/f", "w").write("deep")
open("script.py", "w").write("changed"); open("out/models/m", "w").write("m")
"#;
    let body = json!({"code": code, "bash_script": "stored"});
    let result = daemon.result(body).await;
    assert_eq!(result["status"], "SUCCESS", "{result:#}");
    let id = result["execution_id"].as_str().unwrap();
    let read = |name: &str| std::fs::read_to_string(daemon.artifacts(id).join(name)).unwrap();
    assert_eq!(read("a/x"), "out/a/x");
    assert_eq!(read("b"), "out/b");
    assert_eq!(read("models/m"), "m");
    assert_eq!(
        read("setup.sh"),
        "stored",
        "the request's file is not the program's to replace"
    );
    assert_eq!(read("script.py"), "out/script.py");
    assert_eq!(read("d%FE/f"), "deep");
    assert!(["byte", "text"].contains(&read("%FF").as_str()));
    for name in ["a", "b", "setup.sh", "%FF", "models"] {
        assert!(
            reason(&result, name).contains("name"),
            "{name}: {}",
            reason(&result, name)
        );
    }
    let listed = ["%FF", "a/x", "b", "d%FE/f", "models/m", "script.py"];
    assert_eq!(result["output_files"], json!(listed));
}

#[tokio::test(flavor = "multi_thread")]
async fn times_that_a_host_cannot_store_cost_no_artifact() {
    let daemon = Daemon::start().await;
    let code = r#"
import os
for name, seconds in (("old", -5), ("older", -(2 ** 40)), ("zero", 0), ("late", 2 ** 33), ("latest", 2 ** 45)):
    open("out/" + name, "w").write(name)
    os.utime("out/" + name, (seconds, seconds))
"#;
    let result = daemon.execute(code).await;
    assert_eq!(result["status"], "SUCCESS", "{result:#}");
    assert_eq!(result["warnings"], json!([]));
    let names: Vec<String> = files(&daemon, &result)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["late", "latest", "old", "older", "zero"]);
    let directory = daemon.artifacts(result["execution_id"].as_str().unwrap());
    for (name, seconds) in [("old", -5), ("zero", 0), ("late", 1 << 33)] {
        assert_eq!(
            directory.join(name).metadata().unwrap().mtime(),
            seconds,
            "{name}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expected_file_is_a_regular_file_at_its_path() {
    let daemon = Daemon::start().await;
    let code = "
import os
os.makedirs('out/sub/folder'); os.symlink('real', 'out/link')
for name in ('out/real', 'out/sub/x', 'top'):
    open(name, 'w').close()
os.chmod('out/real', 0)
";
    for (expected, present) in [
        ("real", true),
        ("./real", true),
        ("out/real", true),
        ("sub/x", true),
        ("top", true),
        ("x", false),
        ("sub", false),
        ("sub/folder", false),
        ("link", false),
        ("REAL", false),
        ("script.py", false),
        ("../work/top", false),
        ("/work/out/real", false),
    ] {
        let body = json!({"code": code, "expected_output_files": [expected]});
        let result = daemon.result(body).await;
        let status = if present { "SUCCESS" } else { "INVALID_OUTPUT" };
        assert_eq!(result["status"], status, "{expected}: {result:#}");
    }
}
