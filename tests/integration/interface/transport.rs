//! Programs, texts and numbers on their way in and out (BR-41, BR-43, BR-44).

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::{Daemon, Settings};

/// Prints the length and hash of its own text, its name and its arguments.
const SELF: &str = "import hashlib, sys\nb = open(__file__, 'rb').read()\n\
    print(len(b), hashlib.sha256(b).hexdigest(), __name__, sys.argv[1:])\n";

#[tokio::test(flavor = "multi_thread")]
async fn code_arrives_byte_for_byte_and_runs_as_main() {
    let daemon = Daemon::start().await;
    let comments = [
        "# ''' \"\"\" $(id) `id` EOF \\ ; && | > < * ~ !".to_owned(),
        "#\u{2028}\u{feff}\u{7f}\u{1b}[31m é 日本 🚀\t".to_owned(),
        "x = '''a\r\nb\r\n'''\r\n".to_owned(),
        format!("# {}", "long ".repeat(30_000)),
        format!("# {}", "l".repeat(1_000_000)),
    ];
    let mut programs: Vec<String> = comments
        .iter()
        .map(|comment| format!("{SELF}{comment}"))
        .collect();
    programs.push(format!("\u{feff}{SELF}"));
    programs.push(format!("# -*- coding: latin-1 -*-\n{SELF}# é"));
    for program in programs {
        let result = daemon.execute(&program).await;
        let hash = hex::encode(Sha256::digest(&program));
        let expected = format!("{} {hash} __main__ []\n", program.len());
        let start: String = program.chars().skip(SELF.len()).take(40).collect();
        assert_eq!(result["stdout"], expected, "{start}: {}", result["stderr"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nul_in_code_is_told_and_nothing_is_started() {
    let daemon = Daemon::start().await;
    let run = daemon
        .run(json!({ "code": format!("{SELF}# a\0b\n") }))
        .await;
    assert_eq!(run["status"], "FAIL", "{run:#}");
    let result = &run["result"];
    assert_eq!(
        result["error_info"],
        "Code artifact contains a NUL character."
    );
    let never = (&json!(-1), &Value::Null);
    assert_eq!((&result["return_code"], &result["started_at"]), never);
}

#[tokio::test(flavor = "multi_thread")]
async fn input_files_arrive_byte_for_byte() {
    let daemon = Daemon::start().await;
    let code = "import hashlib\nfor n in ('a.txt', 'deep/er/b.bin', 'ü ☃.csv'):\n    \
        print(hashlib.sha256(open(n, 'rb').read()).hexdigest())";
    let text = "Grüße\r\n\0\u{2028}";
    let body = json!({ "code": code, "input_files": {
        "a.txt": text, "./deep//er/b.bin": { "base64": "AP8K/w==" }, "ü ☃.csv": "",
    } });
    let result = daemon.result(body).await;
    let hashes = [text.as_bytes(), b"\x00\xff\x0a\xff", b""].map(Sha256::digest);
    let expected: String = hashes.map(|hash| hex::encode(hash) + "\n").concat();
    assert_eq!(result["stdout"], expected, "{result:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stdin_is_at_its_end_and_text_is_utf_8_whatever_the_daemons_locale() {
    let code = "import sys\n\
        try: input('name? ')\n\
        except EOFError: print('EOF')\n\
        print('Grüße ☃ 日本 🚀', sys.stdout.encoding, sys.getfilesystemencoding())\n\
        open('out/ünï.txt', 'w').write('☃')\n\
        print(open('out/ünï.txt').read())\n";
    for environment in [
        vec![],
        vec![("LC_ALL", "C".to_owned()), ("LANG", "C".to_owned())],
    ] {
        let daemon = Daemon::start_with(Settings {
            environment,
            ..Settings::default()
        })
        .await;
        let result = daemon.execute(code).await;
        let expected = "name? EOF\nGrüße ☃ 日本 🚀 utf-8 utf-8\n☃\n";
        assert_eq!(result["stdout"], expected, "{result:#}");
        assert_eq!(result["output_files"], json!(["ünï.txt"]));
        let id = result["execution_id"].as_str().unwrap();
        let kept = std::fs::read_to_string(daemon.artifacts(id).join("ünï.txt"));
        assert_eq!(kept.unwrap(), "☃");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nan_and_infinity_spoil_no_answer() {
    let daemon = Daemon::start().await;
    let summary = r#"{"metrics": {"auc": NaN, "loss": -Infinity, "n": 1180591620717411303424,
        "neg": -0.0, "text": "NaN", "a": 0.1}}"#;
    let code = format!(
        "open('out/summary.json', 'w').write('''{summary}''')\nprint(float('nan'), float('inf'))"
    );
    let run = daemon.run(json!({ "code": code })).await;
    assert_eq!(run["status"], "SUCCESS", "{run:#}");
    let metrics =
        r#"{"auc":null,"loss":null,"n":1180591620717411303424,"neg":-0.0,"text":"NaN","a":0.1}"#;
    // The numbers as they stand in the answer's text.
    let id = run["run_id"].as_str().unwrap();
    let request = daemon.request(reqwest::Method::GET, &format!("/runs/{id}"));
    let text = super::sent(request).await.text;
    assert!(text.contains(metrics), "{text}");
    let warnings = run["result"]["warnings"].to_string();
    assert!(warnings.contains("NaN"), "{warnings}");
    let execution = run["result"]["execution_id"].as_str().unwrap();
    let kept = std::fs::read_to_string(daemon.artifacts(execution).join("summary.json"));
    assert_eq!(kept.unwrap(), summary, "the file is kept as it was");
}

#[tokio::test(flavor = "multi_thread")]
async fn summaries_that_are_no_summary_give_no_metrics() {
    let daemon = Daemon::start().await;
    for summary in [
        "not json".to_owned(),
        r#"{"metrics": {"a": "\ud800"}}"#.to_owned(),
        format!(r#"{{"metrics": {}"#, r#"{"d":"#.repeat(2000)),
        r#"{"metrics": [1, 2]}"#.to_owned(),
        r#"{"metrics": {"a": 1e999}}"#.to_owned(),
    ] {
        let code = "open('out/summary.json', 'w').write(open('given').read())";
        let body = json!({ "code": code, "input_files": { "given": summary } });
        let run = daemon.run(body).await;
        assert_eq!(run["status"], "SUCCESS", "{summary}: {run:#}");
        let metrics = &run["final_metrics"];
        let untouched = metrics["a"].is_number();
        assert!(*metrics == Value::Null || untouched, "{summary}: {metrics}");
    }
}
