//! Directories with names that mean something to a shell, an engine or a terminal, and data that
//! the sandbox's user cannot read (BR-29).

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, chown};

use serde_json::json;

use super::{LIST, make};
use crate::support::program::printed;
use crate::support::{Daemon, Settings};

/// Nobody's uid, and no sandbox's.
const STRANGER: u32 = 54_321;

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_never_more_than_a_name() {
    let daemon = Daemon::start().await;
    for (number, name) in [
        "exp:2024,v1 é 'q' $(x)",
        "a:/etc:rw",
        ":ro",
        "x,readonly=false,source=",
        " lead",
        "trail ",
        "new\nline",
        "-v",
        "--privileged",
        "\"quoted\"",
        "back\\slash",
        "%2e%2e",
        "tab\tbell\u{7}",
        "\u{202e}gpj",
        "ne\u{301}",
        "n\u{e9}",
        "*",
        "{{.Name}}",
        "${HOME}",
    ]
    .into_iter()
    .enumerate()
    {
        let marker = format!("marker-{number}.csv");
        make(&daemon.data().join(name), &marker);
        let code = "import json, os\n\
            mounts = [l.split()[4] for l in open('/proc/self/mountinfo')]\n\
            print(json.dumps([sorted(os.listdir('/data')), mounts.count('/data'),\n    \
                os.access('/data', os.W_OK), os.path.exists('/etc/hostname.rw')]))\n";
        let body = json!({ "dataset_path": format!("data/{name}"), "code": code });
        let run = daemon.run(body).await;
        let found = printed(&run["result"]);
        assert_eq!(
            found,
            json!([[marker], 1, false, false]),
            "{name:?}: {run:#}"
        );
        let last = name.rsplit('/').next().unwrap();
        assert_eq!(run["dataset_name"], last);
    }
    let names = std::fs::read_dir(daemon.data()).unwrap().count();
    assert_eq!(names, 19, "a name made a directory on the host");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_set_that_the_sandbox_cannot_read_is_named_with_the_remedy() {
    let daemon = Daemon::start().await;
    let closed = daemon.data().join("closed");
    make(&closed, "a.csv");
    std::fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
    chown(&closed, Some(STRANGER), Some(STRANGER)).unwrap();
    let run = daemon
        .run(json!({ "dataset_path": "data/closed", "code": LIST }))
        .await;
    let result = &run["result"];
    assert_eq!(
        (&run["status"], &result["status"]),
        (&json!("FAIL"), &json!("ERROR")),
        "{run:#}"
    );
    assert_eq!(result["cause"]["kind"], "infrastructure");
    assert_eq!(
        result["stdout"], "",
        "no empty listing passed off as a result"
    );
    let text = result["cause"]["message"].as_str().unwrap();
    assert!(text.contains("data set cannot be read"), "{text}");
    assert!(text.contains("chmod") && text.contains("uid"), "{text}");
    assert_eq!(run["final_error"], result["error_info"]);
    let host = daemon.path().to_str().unwrap();
    assert!(!run.to_string().contains(host), "{run:#}");

    // The remedy works.
    std::fs::set_permissions(&closed, Permissions::from_mode(0o755)).unwrap();
    let result = daemon
        .result(json!({ "dataset_path": "data/closed", "code": LIST }))
        .await;
    assert_eq!(printed(&result), json!(["a.csv"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_file_in_a_readable_data_set_is_the_programs_own_error() {
    let daemon = Daemon::start_with(Settings::default()).await;
    let set = daemon.data().join("set");
    make(&set, "open.csv");
    make(&set, "closed.csv");
    let closed = set.join("closed.csv");
    std::fs::set_permissions(&closed, Permissions::from_mode(0o600)).unwrap();
    chown(&closed, Some(STRANGER), Some(STRANGER)).unwrap();
    let code = "print(len(open('/data/open.csv').read()))\nopen('/data/closed.csv')\n";
    let run = daemon
        .run(json!({ "dataset_path": "data/set", "code": code }))
        .await;
    let result = &run["result"];
    assert_eq!(result["status"], "FAILURE", "{run:#}");
    assert_eq!(
        (&result["cause"]["kind"], &result["return_code"]),
        (&json!("exited"), &json!(1))
    );
    let stderr = result["stderr"].as_str().unwrap();
    assert!(stderr.contains("PermissionError: [Errno 13]"), "{stderr}");
}
