//! Runs whose program is written: the loop from the request to its episodes, on real data.

mod key;

mod killed;

mod leaving;

mod looking;

use serde_json::{Value, json};

use crate::support::data::{give, repository, tree_hash};
use crate::support::model::{self, Model, programs};
use crate::support::{Daemon, Settings};

async fn episodes(daemon: &Daemon, run: &Value) -> Value {
    let id = run["run_id"].as_str().unwrap();
    let (status, episodes) = daemon.get(&format!("/runs/{id}/episodes")).await;
    assert_eq!(status, 200);
    episodes
}

/// What scikit-learn itself says, by a program that shares nothing with the one that is judged: how a
/// boosted model does on a fifth of the rows, split off with the same seed.
const REFERENCE: &str = r#"
import json, os
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import train_test_split

frame = pd.read_csv("/data/train.csv")
y = frame.pop("target")
a, b, c, d = train_test_split(frame, y, test_size=0.2, random_state=0, stratify=y)
said = HistGradientBoostingClassifier(random_state=0).fit(a, c).predict(b)
metrics = {"accuracy": accuracy_score(d, said), "f1": f1_score(d, said, average="macro")}
with open(os.environ["FUMEHOOD_OUTPUT"] + "/summary.json", "w") as file:
    json.dump({"success": True, "metrics": metrics}, file)
"#;

/// How well the predictions for the held-out rows fit their labels, which no data set holds.
const TRUTH: &str = r#"
import json, os
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split

frame = load_breast_cancer(as_frame=True).frame
_, test = train_test_split(frame, test_size=0.2, random_state=0, stratify=frame["target"])
said = pd.read_csv("predictions.csv")["prediction"]
metrics = {"accuracy": accuracy_score(test["target"], said)}
with open(os.environ["FUMEHOOD_OUTPUT"] + "/summary.json", "w") as file:
    json.dump({"success": True, "metrics": metrics}, file)
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_mock_run_fails_once_then_trains_for_real() {
    let daemon = Daemon::start().await;
    let dataset = give(&daemon, "breast_cancer");
    let before = tree_hash(&daemon.data());
    let wish = "Predict the target from the measurements.";
    let body = json!({"dataset_path": dataset, "user_instruction": wish});
    let run = daemon.run(body).await;
    assert_eq!(run["status"], "SUCCESS", "{run}");
    assert_eq!(
        (&run["success"], &run["iterations"]),
        (&json!(true), &json!(2))
    );
    assert_eq!(run["final_error"], Value::Null);
    assert_eq!(run["execution_backend"], "mock");
    assert_eq!(run["dataset_name"], "breast_cancer");
    assert_eq!(run["selected_library"], "sklearn");
    assert_eq!(run["model_usage"], Value::Null);
    let task = &run["task_summary"];
    assert_eq!(task["objective"], wish);
    assert_eq!(task["task_type"], "classification");
    assert_eq!(task["target_column"], "target");
    assert_eq!(task["input_data_files"], json!(["train.csv", "test.csv"]));
    assert_eq!(task["evaluation_metric"], "accuracy");
    let decisions = run["judge_decisions"].as_array().unwrap();
    let said: Vec<_> = decisions
        .iter()
        .map(|one| (&one["iteration"], &one["decision"]))
        .collect();
    assert_eq!(
        said,
        [(&json!(1), &json!("FIX")), (&json!(2), &json!("FINISH"))]
    );
    assert_eq!(tree_hash(&daemon.data()), before, "the data set changed");

    let id = run["result"]["execution_id"].as_str().unwrap();
    assert_eq!(
        run["prediction_artifact_reference"],
        format!("{id}/predictions.csv")
    );
    assert_eq!(run["model_artifact_reference"], format!("{id}/models"));
    let artifacts = daemon.artifacts(id);
    assert!(artifacts.join("models/model.joblib").exists());
    let predictions = std::fs::read_to_string(artifacts.join("predictions.csv")).unwrap();

    // The metrics are those of scikit-learn, and they are true.
    let reference = json!({"dataset_path": "data/breast_cancer", "code": REFERENCE});
    let reference = daemon.run(reference).await;
    for metric in ["accuracy", "f1"] {
        let [ours, theirs] =
            [&run, &reference].map(|run| run["final_metrics"][metric].as_f64().unwrap());
        assert!(
            (ours - theirs).abs() <= 0.02,
            "{metric}: {ours} against {theirs}"
        );
    }
    let truth = json!({"code": TRUTH, "input_files": {"predictions.csv": predictions}});
    let truth = daemon.run(truth).await;
    assert!(
        truth["final_metrics"]["accuracy"].as_f64().unwrap() > 0.9,
        "{truth}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_episodes_of_a_mock_run_tell_what_happened() {
    let daemon = Daemon::start().await;
    let dataset = give(&daemon, "diabetes");
    let run = daemon.run(json!({"dataset_path": dataset})).await;
    assert_eq!(run["status"], "SUCCESS", "{run}");
    assert_eq!(run["task_summary"]["task_type"], "regression");
    assert!(run["final_metrics"]["rmse"].as_f64().unwrap() > 0.0);

    let told = episodes(&daemon, &run).await;
    assert_eq!(told["selected_library"], "sklearn");
    assert_eq!(told["final_result"], "SUCCESS");
    let turns = told["episodes"].as_array().unwrap();
    assert_eq!(turns.len(), 2);
    let first = &turns[0];
    assert_eq!(
        (&first["iteration"], &first["status"]),
        (&json!(1), &json!("FAIL"))
    );
    assert_eq!(first["execution_status"], "FAILURE");
    assert_eq!(first["error_category"], "missing_column");
    let context = &first["error_context_summary"];
    assert_eq!(context["error_message"], "KeyError: 'targt'");
    let summary = &first["execution_result_summary"];
    assert!(
        summary["stderr_excerpt"]
            .as_str()
            .unwrap()
            .contains("KeyError: 'targt'")
    );
    assert!(summary["stderr_excerpt"].as_str().unwrap().chars().count() <= 1500);
    assert_eq!(
        (&turns[1]["iteration"], &turns[1]["status"]),
        (&json!(2), &json!("SUCCESS"))
    );

    // Each execution has a receipt of its own, the look at the data set included.
    let id = run["run_id"].as_str().unwrap();
    let (_, receipt) = daemon.get(&format!("/runs/{id}/receipt")).await;
    assert!(receipt.to_string().contains("\"iteration\":2"), "{receipt}");

    // No program is served or logged.
    for text in [told.to_string(), run.to_string(), daemon.log()] {
        assert!(!text.contains("import pandas") && !text.contains("make_pipeline"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_shows_the_result_and_the_turns() {
    let daemon = Daemon::start().await;
    let dataset = give(&daemon, "wine");
    let mut example = std::process::Command::new(repository().join("examples/generate.sh"));
    example.args([&dataset, "Predict the target."]);
    example.env("FUMEHOOD_URL", daemon.address());
    let shown = tokio::task::spawn_blocking(move || example.output().unwrap());
    let shown = shown.await.unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    let trouble = String::from_utf8_lossy(&shown.stderr);
    assert!(shown.status.success(), "{text}\n{trouble}");
    for word in [
        "\"status\": \"SUCCESS\"",
        "\"iterations\": 2",
        "KeyError: 'targt'",
    ] {
        assert!(text.contains(word), "{word}\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_may_try_once_fails_with_one_iteration() {
    let daemon = Daemon::start().await;
    let dataset = give(&daemon, "wine");
    let options = json!({"max_iterations": 1});
    let run = daemon
        .run(json!({"dataset_path": dataset, "options": options}))
        .await;
    assert_eq!(
        (&run["status"], &run["iterations"]),
        (&json!("FAIL"), &json!(1))
    );
    assert_eq!(run["final_error"], "missing_column");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_model_a_real_run_is_refused() {
    let daemon = Daemon::start().await;
    let dataset = give(&daemon, "wine");
    let body = json!({"dataset_path": dataset, "options": {"llm_mode": "real"}});
    let (status, answer) = daemon.post("/runs", &body).await;
    assert_eq!(status, 400);
    assert!(
        answer["detail"]
            .as_str()
            .unwrap()
            .starts_with("No model is configured")
    );
}

const KEY: &str = "CANARY_llm_key_7f3a9c51e08b46d2a1c4";

fn with_model(model: &Model) -> Settings {
    Settings {
        toml: format!(
            "[llm]\nmode = 'real'\nbase_url = '{}'\nmodel = 'test-model'\n\
             prompt_price_per_million = 2.0\ncompletion_price_per_million = 4.0",
            model.base_url()
        ),
        environment: vec![("OPENAI_API_KEY", KEY.to_owned())],
        log: Some("trace"),
        ..Settings::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_writes_judges_and_repairs_and_its_key_stays_with_the_daemon() {
    // It leaves what is asked for, so that it is for the judge to say what it is worth.
    let broken = "open('out/predictions.csv', 'w').write('x')\nopen('out/summary.json', 'w').write('{}')\n\
        print(open('/proc/self/mountinfo').read()[-300:])\nraise ValueError('no')";
    let model = Model::start(programs(&[broken, model::GOOD]));
    let daemon = Daemon::start_with(with_model(&model)).await;
    let dataset = give(&daemon, "wine");
    let wish = "Predict target. UNIQUE_WISH";
    let run = daemon
        .run(json!({"dataset_path": dataset, "user_instruction": wish}))
        .await;
    assert_eq!(run["status"], "SUCCESS", "{run}\n{:?}", model.kinds());
    assert_eq!(
        (&run["iterations"], &run["execution_backend"]),
        (&json!(2), &json!("real"))
    );
    assert_eq!(
        model.kinds(),
        [
            "program",
            "judgement",
            "explanation",
            "program",
            "judgement"
        ]
    );
    let usage = &run["model_usage"];
    assert_eq!(
        (&usage["calls"], &usage["prompt_tokens"]),
        (&json!(5), &json!(500))
    );
    assert!(
        (usage["cost"].as_f64().unwrap() - 5.0 * 240e-6).abs() < 1e-9,
        "{usage}"
    );

    let told = episodes(&daemon, &run).await;
    let first = &told["episodes"][0];
    assert_eq!(first["judge_reason"], "It raised.");
    assert_eq!(first["error_category"], "made_up");
    assert_eq!(first["suggested_fix"], "Do not raise.");

    // The key travels to the model and is nowhere else; no path of the host reaches the model.
    let requests = model.stop();
    let host_path = daemon.path().display().to_string();
    for request in &requests {
        assert!(
            request.head.contains(&format!("Bearer {KEY}")),
            "{}",
            request.head
        );
        assert!(!request.body.contains("CANARY"), "{}", request.body);
        assert!(!request.body.contains(&host_path), "{}", request.body);
    }
    assert!(requests[0].body.contains("UNIQUE_WISH"));
    assert!(requests[3].body.contains("ValueError: no"));
    let environment = std::fs::read(format!("/proc/{}/environ", daemon.pid())).unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    let command_line = std::fs::read(format!("/proc/{}/cmdline", daemon.pid())).unwrap();
    let (_, settings) = daemon.get("/settings").await;
    let texts = [
        environment,
        String::from_utf8_lossy(&command_line).into_owned(),
        settings.to_string(),
        told.to_string(),
        run.to_string(),
        daemon.log(),
    ];
    for text in texts {
        assert!(!text.contains("CANARY"), "{text}");
        assert!(!text.contains("UNIQUE_PROGRAM"), "a program is shown");
    }
    let store = std::fs::read(daemon.path().join("state/fumehood.db")).unwrap();
    assert!(!String::from_utf8_lossy(&store).contains("CANARY"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_is_away_ends_the_run_with_the_reason() {
    let model = Model::start(Box::new(|_, _| (401, String::new())));
    let daemon = Daemon::start_with(with_model(&model)).await;
    let dataset = give(&daemon, "wine");
    let body = json!({"dataset_path": dataset});
    let (_, accepted) = daemon.post("/runs", &body).await;
    let run = daemon.ended(accepted["run_id"].as_str().unwrap()).await;
    assert_eq!(
        (&run["status"], &run["iterations"]),
        (&json!("FAIL"), &json!(0))
    );
    let why =
        "The program could not be written: llm_error: the model's server answered with status 401.";
    assert_eq!(run["final_error"], why);
    // What was found out before is told all the same.
    assert_eq!(run["task_summary"]["target_column"], "target");
    assert_eq!(model.stop().len(), 1);
}
