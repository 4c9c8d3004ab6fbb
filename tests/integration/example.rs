//! The example: a model trained on real data by a program in a sandbox.

use serde_json::json;

use crate::support::Daemon;
use crate::support::data::{give, repository, tree_hash};

#[tokio::test(flavor = "multi_thread")]
async fn the_example_trains_a_model_on_each_real_data_set() {
    let daemon = Daemon::start().await;
    let code = std::fs::read_to_string(repository().join("examples/train.py")).unwrap();
    for name in ["breast_cancer", "diabetes", "digits", "wine"] {
        let dataset = give(&daemon, name);
        let before = tree_hash(&daemon.data());
        let body = json!({
            "dataset_path": dataset,
            "code": code,
            "expected_output_files": ["predictions.csv", "summary.json"],
        });
        let run = daemon.run(body).await;
        let result = &run["result"];
        assert_eq!(run["status"], "SUCCESS", "{run}");
        assert_eq!(run["dataset_name"], name);

        let id = result["execution_id"].as_str().unwrap();
        assert_eq!(result["workspace_dir"], format!("outputs/models/{id}"));
        assert_eq!(
            run["prediction_artifact_reference"],
            format!("{id}/predictions.csv")
        );
        assert_eq!(run["model_artifact_reference"], format!("{id}/models"));
        let files = ["models/model.joblib", "predictions.csv", "summary.json"];
        assert_eq!(result["output_files"], json!(files));
        for file in files {
            assert!(daemon.artifacts(id).join(file).metadata().unwrap().len() > 0);
        }
        let summary = std::fs::read(daemon.artifacts(id).join("summary.json")).unwrap();
        let summary: serde_json::Value = serde_json::from_slice(&summary).unwrap();
        assert_eq!(run["final_metrics"], summary["metrics"]);
        assert!(!summary["metrics"].as_object().unwrap().is_empty());

        let rows = |path| std::fs::read_to_string(path).unwrap().lines().count();
        let predictions = rows(daemon.artifacts(id).join("predictions.csv"));
        assert_eq!(predictions, rows(daemon.data().join(name).join("test.csv")));
        assert!(result["usage"]["peak_memory_bytes"].as_u64().unwrap() > 10 << 20);
        assert!(result["usage"]["cpu_seconds"].as_f64().unwrap() > 0.1);
        assert_eq!(tree_hash(&daemon.data()), before, "the data set changed");
    }
}
