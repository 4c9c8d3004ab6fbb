//! What was changed is refused, and the reason names what it was.

use std::fs::File;
use std::path::Path;

use super::{Auditor, full_run, public_key, receipt};
use crate::command_line::{Called, command_in};
use crate::support::Daemon;

/// The public key of the first example of RFC 8032, section 7.1: it signed none of these.
const OTHER_KEY: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_tampering_with_a_receipt_is_named() {
    let daemon = Daemon::start().await;
    let run = full_run(&daemon).await;
    let good = receipt(&daemon, run["run_id"].as_str().unwrap()).await;
    let key = public_key(&daemon);
    let auditor = Auditor::new();
    for (from, to) in [
        ("\"status\":\"SUCCESS\"", "\"status\":\"FAILURE\""),
        ("\"read_only_root\":true", "\"read_only_root\":false"),
        ("\"network\":\"none\"", "\"network\":\"host\""),
        ("\"number\":1", "\"number\":2"),
        ("\"memory_bytes\":", "\"memory_bytes\":1"),
        (key.as_str(), OTHER_KEY),
    ] {
        let changed = good.replacen(from, to, 1);
        assert_ne!(changed, good, "{from} is not in {good}");
        let reasons = auditor.refusal(&changed, &[]);
        assert!(
            reasons.contains("signature: it does not fit"),
            "{to}: {reasons}"
        );
    }
    for (changed, reason) in [
        (good.replacen(':', ": ", 1), "form: it is no receipt"),
        (
            good.replacen("\"outcome\":", "\"outcome\": ", 1),
            "form: it is not in canonical form",
        ),
        (good[..good.len() / 2].to_owned(), "form: it is no receipt"),
        (String::new(), "form: it is no receipt"),
        (
            "{\"status\":\"SUCCESS\"}".to_owned(),
            "form: it is no receipt",
        ),
        (format!("{good}{good}"), "form: it is no receipt"),
    ] {
        let reasons = auditor.refusal(&changed, &[]);
        assert!(reasons.contains(reason), "{reason}: {reasons}");
    }
    // Every digit of the signature counts, in its one spelling.
    let start = good.find(":\"").unwrap() + 2;
    for index in [start, start + 64, start + 127] {
        let mut changed = good.clone().into_bytes();
        changed[index] = if changed[index] == b'0' { b'1' } else { b'0' };
        let reasons = auditor.refusal(&changed, &[]);
        assert!(reasons.contains("signature: it does not fit"), "{reasons}");
    }
    let reasons = auditor.refusal(&good, &["--key", OTHER_KEY]);
    for named in ["signature: it was signed with the key", &key, OTHER_KEY] {
        assert!(reasons.contains(named), "{named}: {reasons}");
    }
    // A line end that a program has added, and nothing else.
    auditor.keep("receipt.json", format!("{good}\n"));
    assert_eq!(auditor.verify(&["receipt.json", "--key", &key]).code, 0);
    // Nor is it good if nobody is told so.
    let mut lost = command_in(auditor.directory.path(), &["verify", "receipt.json"]);
    let full = File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(Called::from(lost.stdout(full).output().unwrap()).code, 74);
}

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_that_are_changed_missing_or_more_are_named() {
    let daemon = Daemon::start().await;
    let run = full_run(&daemon).await;
    let good = receipt(&daemon, run["run_id"].as_str().unwrap()).await;
    let published = daemon.artifacts(run["result"]["execution_id"].as_str().unwrap());
    let auditor = Auditor::new();
    let refusal = |change: &dyn Fn(&Path)| {
        let copy = tempfile::tempdir().unwrap();
        for name in ["models/model.pkl", "predictions.csv", "setup.sh"] {
            let to = copy.path().join(name);
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::copy(published.join(name), to).unwrap();
        }
        change(copy.path());
        let directory = copy.path().to_str().unwrap();
        auditor.refusal(&good, &["--artifacts", directory])
    };
    let write = |directory: &Path, name: &str, text: &str| {
        std::fs::write(directory.join(name), text).unwrap();
    };
    let changed = refusal(&|copy| write(copy, "models/model.pkl", "a modem"));
    assert!(
        changed.contains("artifact models/model.pkl: its SHA-256 is "),
        "{changed}"
    );
    let longer = refusal(&|copy| write(copy, "predictions.csv", "id,value\n1"));
    let words = "artifact predictions.csv: it has 10 bytes, not 9";
    assert!(longer.contains(words), "{longer}");
    let more = refusal(&|copy| write(copy, "models/extra.pkl", ""));
    let words = "artifact models/extra.pkl: the receipt has no such file";
    assert!(more.contains(words), "{more}");
    let script = refusal(&|copy| write(copy, "setup.sh", "rm -rf /"));
    assert!(script.contains("artifact setup.sh: "), "{script}");
    let missing = refusal(&|copy| std::fs::remove_file(copy.join("predictions.csv")).unwrap());
    assert!(
        missing.contains("artifact predictions.csv: it is missing"),
        "{missing}"
    );
    let link = refusal(&|copy| {
        std::fs::rename(copy.join("setup.sh"), copy.join("models/elsewhere")).unwrap();
        std::os::unix::fs::symlink("models/elsewhere", copy.join("setup.sh")).unwrap();
    });
    assert!(
        link.contains("artifact setup.sh: it is no regular file"),
        "{link}"
    );
    assert!(
        link.contains("artifact models/elsewhere: the receipt has no"),
        "{link}"
    );
    // All at once, each by its name.
    let all = refusal(&|copy| {
        std::fs::remove_dir_all(copy.join("models")).unwrap();
        write(copy, "predictions.csv", "");
        write(copy, "note.txt", "");
    });
    assert_eq!(all.lines().count(), 3, "{all}");
}

#[test]
fn what_cannot_be_checked_is_told_from_what_is_wrong() {
    let auditor = Auditor::new();
    auditor.keep("receipt.json", "{}");
    for arguments in [
        &[][..],
        &["missing.json"],
        &["."],
        &["receipt.json", "--key"],
        &["receipt.json", "--key", "1234"],
        &["receipt.json", "--key", &OTHER_KEY.to_uppercase()],
        &["receipt.json", "--unknown"],
        &["receipt.json", "another.json"],
    ] {
        let called = auditor.verify(arguments);
        assert_eq!(called.code, 2, "{arguments:?}: {called:?}");
        assert_ne!(called.stderr, "");
    }
    let wrong = auditor.verify(&["receipt.json"]);
    assert_eq!(wrong.code, 1, "{wrong:?}");
    // Neither a line nor a file without end is read to its end.
    let huge = File::create(auditor.keep("huge", "")).unwrap();
    huge.set_len(1 << 40).unwrap();
    for arguments in [&["huge"][..], &["receipt.json", "--previous", "huge"]] {
        let called = auditor.verify(arguments);
        assert_eq!(called.code, 2, "{called:?}");
        assert!(
            called.stderr.contains("longer than a receipt can be"),
            "{called:?}"
        );
    }
    // Nor is there a value in memory for each of the values in it, which would take a gigabyte here.
    let zeros = "0,".repeat(16 << 20);
    let hostile = format!(
        "{{\"signature\":\"{}\",\"statement\":[{zeros}0]}}",
        "0".repeat(128)
    );
    auditor.keep("hostile", hostile);
    let called = auditor.verify_with_memory(400, &["hostile"]);
    assert_eq!(called.code, 1, "{called:?}");
    assert!(called.stderr.contains("document of the kind"), "{called:?}");
    auditor.keep("lines", "\n".repeat(1 << 20));
    let reasons = auditor.verify(&["lines"]);
    assert_eq!(reasons.code, 1);
    assert!(
        reasons.stderr.contains("line 100: form: it is no receipt"),
        "{reasons:?}"
    );
    assert!(reasons.stderr.contains("not looked at"), "{reasons:?}");
    assert_eq!(reasons.stderr.lines().count(), 101);
}
