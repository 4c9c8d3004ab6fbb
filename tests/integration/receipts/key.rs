//! The key of a state directory: for its owner only, made once, and never used after others could
//! have read it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use super::{Auditor, call, public_key, receipt};
use crate::command_line::Bench;
use crate::support::Daemon;

const SERVE: [&str; 3] = ["serve", "--listen", "127.0.0.1:0"];

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_others_can_read_is_refused_with_the_remedy_and_works_again_after_it() {
    let mut daemon = Daemon::start().await;
    let key = daemon.path().join("state/receipt-key");
    let mode = std::fs::metadata(&key).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode, 0o600, "{mode:o}");
    let before = public_key(&daemon);
    assert_eq!(before.len(), 64);
    daemon.stop();

    std::fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    for arguments in [&SERVE[..], &["receipt", "key"]] {
        let called = call(daemon.path(), arguments);
        assert_eq!(called.code, 69, "{called:?}");
        for words in ["receipt-key", "0644", "chmod 600"] {
            assert!(called.stderr.contains(words), "{words}: {called:?}");
        }
        assert!(!called.stderr.contains("listens on"), "{called:?}");
        assert_eq!(called.stdout, "");
    }
    std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    daemon.launch();
    assert_eq!(public_key(&daemon), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_key_was_replaced_the_chain_goes_on_and_says_so() {
    let mut daemon = Daemon::start().await;
    let run = daemon.run(json!({ "code": "print()" })).await;
    let first = receipt(&daemon, run["run_id"].as_str().unwrap()).await;
    let before = public_key(&daemon);
    daemon.stop();
    std::fs::remove_file(daemon.path().join("state/receipt-key")).unwrap();
    daemon.launch();
    assert_ne!(public_key(&daemon), before);
    let run = daemon.run(json!({ "code": "print()" })).await;
    let second = receipt(&daemon, run["run_id"].as_str().unwrap()).await;
    let auditor = Auditor::new();
    auditor.keep("before.json", first);
    let reasons = auditor.refusal(&second, &["--previous", "before.json"]);
    let words = format!("the receipt before was signed with another key, {before}");
    assert!(reasons.contains(&words), "{reasons}");
    assert_eq!(reasons.lines().count(), 1, "{reasons}");
    // The operator is told at the start, and who trusts both keys accepts the change.
    let log = daemon.log();
    assert!(
        log.contains("signed with another key") && log.contains(&before),
        "{log}"
    );
    let after = public_key(&daemon);
    let both = ["--key", before.as_str(), "--key", after.as_str()];
    auditor.keep("second.json", &second);
    let arguments = ["second.json", "--previous", "before.json"];
    let accepted = auditor.verify(&[&arguments[..], &both].concat());
    assert_eq!(accepted.code, 0, "{accepted:?}");
    let reasons = auditor.refusal(&second, &both[..2]);
    assert!(
        reasons.contains("signature: it was signed with the key"),
        "{reasons}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_behind_a_link_or_of_another_user_is_refused_with_the_remedy() {
    let mut daemon = Daemon::start().await;
    let key = daemon.path().join("state/receipt-key");
    daemon.stop();
    let refused = |words: &[&str]| {
        for arguments in [&SERVE[..], &["receipt", "key"]] {
            let called = call(daemon.path(), arguments);
            assert_eq!(called.code, 69, "{called:?}");
            for words in words {
                assert!(called.stderr.contains(words), "{words}: {called:?}");
            }
        }
    };
    let elsewhere = daemon.path().join("elsewhere");
    std::fs::rename(&key, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &key).unwrap();
    refused(&["receipt-key", "symbolic link", "remove the link"]);
    std::fs::remove_file(&key).unwrap();
    std::fs::rename(&elsewhere, &key).unwrap();
    // These tests need root for other reasons, too.
    std::os::unix::fs::chown(&key, Some(12_345), None).unwrap();
    refused(&["receipt-key", "uid 12345", "chown"]);
    std::os::unix::fs::chown(&key, Some(0), None).unwrap();
    daemon.launch();
}

#[test]
fn without_a_store_there_is_nothing_to_export_and_none_is_made() {
    let bench = Bench::new();
    let called = bench.call(&["receipt", "export"]);
    assert_eq!((called.code, called.stdout.as_str()), (69, ""));
    assert!(called.stderr.contains("fumehood serve"), "{called:?}");
    assert!(!bench.path().join(".fumehood").exists());
}

#[test]
fn a_key_that_is_damaged_or_not_there_is_told_and_no_other_is_made() {
    let bench = Bench::new();
    let called = bench.call(&["receipt", "key"]);
    assert_eq!(called.code, 69, "{called:?}");
    assert!(called.stderr.contains("fumehood serve"), "{called:?}");
    assert!(!bench.path().join(".fumehood").exists());

    std::fs::create_dir(bench.path().join(".fumehood")).unwrap();
    let key = bench.write(".fumehood/receipt-key", "damaged");
    std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    for arguments in [&SERVE[..], &["receipt", "key"]] {
        let called = bench.call(arguments);
        assert_eq!(called.code, 69, "{called:?}");
        assert!(called.stderr.contains("damaged or no key"), "{called:?}");
    }
    assert_eq!(std::fs::read_to_string(&key).unwrap(), "damaged");
}
