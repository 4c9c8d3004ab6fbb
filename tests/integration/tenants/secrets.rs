//! A token is shown once, and nowhere again.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_in_no_log_no_answer_no_argument_and_no_file() {
    let daemon = daemon_with("").await;
    let good = token(&daemon, "alice", "admin").await;
    let unknown = format!("fh_bbbbbbbbbbbb_{}", "c0ffee00".repeat(8));
    let mut shown = Vec::new();
    for sent_token in [&good, &unknown] {
        for path in ["/runs", "/settings", "/runs/x", "/nothing", "/ready"] {
            let seen = ask(&daemon, Method::GET, path, Some(sent_token)).await;
            shown.push(format!("{seen:?}"));
        }
        let request = daemon.request(Method::GET, &format!("/runs?cursor={sent_token}"));
        sent(request).await;
        shown.push(format!("{:?}", submit(&daemon, sent_token, QUICK).await));
    }
    let printing = "import os\nprint(dict(os.environ), open('/proc/self/cmdline').read())";
    let id = submit(&daemon, &good, printing).await.run_id();
    shown.push(ended(&daemon, &good, &id).await.to_string());
    for path in ["episodes", "events", "artifacts"] {
        let path = format!("/runs/{id}/{path}");
        shown.push(format!(
            "{:?}",
            ask(&daemon, Method::GET, &path, Some(&good)).await
        ));
    }
    let list = ask(&daemon, Method::GET, "/runs", Some(&good)).await.json();
    for run in list["runs"].as_array().unwrap() {
        ended(&daemon, &good, run["run_id"].as_str().unwrap()).await;
    }
    for file in ["cmdline", "environ"] {
        let path = format!("/proc/{}/{file}", daemon.pid());
        shown.push(String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned());
    }
    shown.push(format!("{:?}", call(&daemon, &["token", "list"])));
    shown.push(format!("{:?}", call(&daemon, &["token", "revoke", &good])));
    shown.push(format!(
        "{:?}",
        call(&daemon, &["token", "revoke", "nonsense"])
    ));
    shown.push(format!("{:?}", call(&daemon, &["config"])));
    shown.push(daemon.log());
    for entry in std::fs::read_dir(daemon.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            shown.push(String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned());
        }
    }
    for text in &shown {
        for token in [&good, &unknown] {
            // The secret, whole or in half, whatever stands before it.
            let secret = &token[16..];
            for part in [secret, &secret[..32], &secret[32..]] {
                assert!(!text.contains(part), "{text}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_made_listed_and_revoked_while_the_daemon_runs() {
    let daemon = daemon_with("").await;
    let first = token(&daemon, "alice", "read").await;
    let arguments = [
        "--tenant",
        "bob",
        "--role",
        "submit",
        "--name",
        "ci",
        "--expires",
        "never",
    ];
    let second = fresh_token(&daemon, &arguments);
    until_known(&daemon, &second).await;
    let path = daemon.path().join("tokens");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let listed = call(&daemon, &["token", "list"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    let lines: Vec<Vec<&str>> = listed
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines.len(), 3, "{listed:?}");
    assert_eq!(lines[1][..4], [key_of(&first), "active", "read", "alice"]);
    let expected = [key_of(&second), "active", "submit", "bob", "never", "ci"];
    assert_eq!(lines[2], expected);

    let revoked = call(&daemon, &["token", "revoke", key_of(&first)]);
    assert_eq!(revoked.code, 0, "{revoked:?}");
    until_refused(&daemon, &first).await;
    assert_eq!(
        ask(&daemon, Method::GET, "/runs", Some(&second))
            .await
            .status,
        200
    );
    let listed = call(&daemon, &["token", "list"]).stdout;
    assert!(listed.contains("revoked"), "{listed}");

    for (arguments, words) in [
        (&["token", "revoke", "aaaaaaaaaaaa"][..], "aaaaaaaaaaaa"),
        (
            &["token", "create", "--tenant", "carol", "--role", "read"],
            "[tenants.",
        ),
        (
            &["token", "create", "--role", "read", "--expires", "soon"],
            "--expires",
        ),
    ] {
        let called = call(&daemon, arguments);
        assert_eq!(called.code, 78, "{called:?}");
        assert!(called.stderr.contains(words), "{called:?}");
        assert_eq!(called.stdout, "");
    }

    // Without its file the daemon admits nobody, and says so as its own failure.
    let kept = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let asked = || ask(&daemon, Method::GET, "/runs", Some(&second));
    until(PATIENCE, asked, |seen| seen.status == 503).await;
    assert_eq!(ask(&daemon, Method::GET, "/health", None).await.status, 200);
    std::fs::write(&path, kept).unwrap();
    until(PATIENCE, asked, |seen| seen.status == 200).await;
}
