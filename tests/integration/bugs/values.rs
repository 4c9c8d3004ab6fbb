//! What programs read and leave that is no ordinary value.

use serde_json::{Value, json};

use crate::support::{Daemon, Settings};

#[tokio::test(flavor = "multi_thread")]
async fn br_43_input_ends_at_once_and_text_is_utf_8_whatever_the_daemon_speaks() {
    for environment in [
        Vec::new(),
        vec![("LANG", "C".to_owned()), ("LC_ALL", "POSIX".to_owned())],
    ] {
        let settings = Settings {
            environment,
            ..Settings::default()
        };
        let daemon = Daemon::start_with(settings).await;
        let code = r#"
import sys, time
t = time.time()
try: input("name? ")
except EOFError: print("EOF after", round(time.time() - t, 1))
print("Grüße ☃ 日本 🚀", sys.stdout.encoding, sys.getfilesystemencoding())
open("out/ünï.txt", "w").write("☃")
print(open("out/ünï.txt").read())
"#;
        let result = daemon.execute(code).await;
        assert_eq!(result["status"], "SUCCESS", "{result:#}");
        let text = "name? EOF after 0.0\nGrüße ☃ 日本 🚀 utf-8 utf-8\n☃\n";
        assert_eq!(result["stdout"], text);
        assert_eq!(result["output_files"], json!(["ünï.txt"]));
        let path = daemon.artifacts(result["execution_id"].as_str().unwrap());
        assert_eq!(std::fs::read_to_string(path.join("ünï.txt")).unwrap(), "☃");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn br_44_numbers_that_json_does_not_have_harm_neither_the_run_nor_its_neighbours() {
    let daemon = Daemon::start().await;
    let code = r#"
import json
r = {"auc": float("nan"), "loss": float("inf"), "n": 2**70, "neg": -0.0, "s": "\ud800", "deep": None}
d = r
for _ in range(2000):
    d["deep"] = {}; d = d["deep"]; d["deep"] = None
open("out/metrics.json", "w").write('{"auc": NaN, "loss": Infinity, "a": 1, "a": 2, "n": 1e999}')
open("out/summary.json", "w").write(SUMMARY)
try: print(json.dumps(r))
except RecursionError: print("deep", float("nan"))
"#;
    let odd = r#"'{"success": true, "metrics": {"auc": NaN, "loss": -Infinity, "n": 1180591620717411303424, "text": "NaN"}}'"#;
    let deep = r#"'{"metrics": ' + '{"a":' * 50000 + '1' + '}' * 50000 + '}'"#;
    let surrogate = r#"'{"metrics": {"a": "\\ud800"}}'"#;
    let huge = r#"'{"metrics": {"n": 1e999}}'"#;
    for (summary, metrics) in [
        (
            odd,
            r#"{"auc":null,"loss":null,"n":1180591620717411303424,"text":"NaN"}"#,
        ),
        (deep, "null"),
        (surrogate, "null"),
        (huge, r#"{"n":1e+999}"#),
        ("'[1, 2]'", "null"),
        ("''", "null"),
    ] {
        let code = code.replace("SUMMARY", summary);
        let run = daemon.run(json!({ "code": code })).await;
        assert_eq!(run["status"], "SUCCESS", "{summary}: {run:#}");
        let shown = run["final_metrics"].to_string();
        assert!(
            shown == metrics || shown == "null" && summary == huge,
            "{summary}: {shown}"
        );
        let path = daemon.artifacts(run["result"]["execution_id"].as_str().unwrap());
        let kept = std::fs::read_to_string(path.join("metrics.json")).unwrap();
        assert_eq!(
            kept,
            r#"{"auc": NaN, "loss": Infinity, "a": 1, "a": 2, "n": 1e999}"#
        );
        let id = run["run_id"].as_str().unwrap();
        for path in ["", "/episodes", "/artifacts"] {
            let (status, _) = daemon.get(&format!("/runs/{id}{path}")).await;
            assert_eq!(status, 200, "{path}");
        }
    }
    let (status, runs) = daemon.get("/runs").await;
    assert_eq!((status, runs["runs"].as_array().unwrap().len()), (200, 6));
}

#[tokio::test(flavor = "multi_thread")]
async fn br_41_a_program_arrives_byte_for_byte() {
    let daemon = Daemon::start().await;
    let report = "import hashlib, sys; s = open(__file__, 'rb').read(); print(len(s), hashlib.sha256(s).hexdigest(), sys.argv, __name__)";
    let odd = "# ''' \"\"\" $(id) `id` EOF %s {{x}} \u{2028} \u{7f} ☃ \\ \t\n";
    let long = format!("x = '{}'\n", "y".repeat(1_000_000));
    for prefix in [
        "",
        odd,
        "# a\r\n",
        "\u{feff}",
        "# -*- coding: utf-8 -*-\n",
        &long,
    ] {
        let code = format!("{prefix}{report}");
        let result = daemon.execute(&code).await;
        let hash = hex::encode(<sha2::Sha256 as sha2::Digest>::digest(&code));
        let expected = format!("{} {hash} ['script.py'] __main__\n", code.len());
        assert_eq!(result["stdout"], expected, "{}", result["stderr"]);
    }
    // What the interpreter does not take is the program's failure and nobody else's.
    for code in ["# -*- coding: nonsense -*-\nprint(1)", "def ("] {
        let result = daemon.execute(code).await;
        assert_eq!(result["status"], "FAILURE", "{code:?}");
        assert!(result["stderr"].as_str().unwrap().contains("SyntaxError"));
    }
    // Some interpreters stop reading at a NUL, and succeed with half of the program.
    let result = daemon.execute("print(1)\0\nraise SystemExit(1)").await;
    assert_eq!(result["status"], "FAILURE");
    assert_eq!(result["started_at"], Value::Null);
    assert_eq!(
        result["error_info"],
        "Code artifact contains a NUL character."
    );
}
