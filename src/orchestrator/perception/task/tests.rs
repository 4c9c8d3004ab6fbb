//! Which column, which kind, which metric: case by case.

use serde_json::json;

use super::*;
use crate::orchestrator::perception::profile::tests::{column, profile, table};

/// A table with a few columns to choose from.
fn houses() -> Profile {
    let columns = [
        column("id", "int", 50),
        column("living_area", "float", 50),
        column("Sale Price", "float", 50),
        column("quality", "int", 5),
        column("town", "text", 12),
    ];
    profile(&[table("houses.csv", 100, &columns)])
}

#[test]
fn the_target_is_what_the_instruction_names() {
    let cases = [
        ("Predict the Sale Price.", Some("Sale Price"), "regression"),
        (
            "please predict sale_price from living_area",
            Some("Sale Price"),
            "regression",
        ),
        (
            "The target column is quality",
            Some("quality"),
            "classification",
        ),
        (
            "classify `town` by living area",
            Some("town"),
            "classification",
        ),
        (
            "Use column 'quality' as what to predict",
            Some("quality"),
            "classification",
        ),
        // The only one that is named at all.
        (
            "I care about quality, nothing else",
            Some("quality"),
            "classification",
        ),
        // Words that the instruction has are stronger than the values of the column.
        ("a regression of quality", Some("quality"), "regression"),
        // Named, but which? The last column, then.
        (
            "living area and quality matter",
            Some("town"),
            "classification",
        ),
        ("segment the houses into clusters", None, "clustering"),
        ("qualityx", Some("town"), "classification"),
    ];
    for (instruction, target, kind) in cases {
        let task = choose(Some(instruction), &houses());
        assert_eq!(task.target_column.as_deref(), target, "{instruction}");
        assert_eq!(task.task_type, kind, "{instruction}");
        assert_eq!(task.objective, instruction);
    }
}

#[test]
fn without_a_name_it_is_the_one_that_is_missing_or_usual_or_last() {
    let a = || column("a", "float", 50);
    let train = |columns: &[serde_json::Value]| table("train.csv", 10, columns);
    let cases = [
        (
            vec![
                train(&[column("risk", "int", 2), a(), column("label", "int", 2)]),
                table("test.csv", 5, &[a(), column("label", "int", 2)]),
            ],
            Some("risk"),
        ),
        // Two are missing: neither tells anything.
        (
            vec![
                train(&[column("risk", "int", 2), column("y", "int", 2), a()]),
                table("test.csv", 5, &[a()]),
            ],
            Some("y"),
        ),
        (
            vec![train(&[column("Target", "int", 2), a()])],
            Some("Target"),
        ),
        (vec![train(&[a(), column("z", "int", 2)])], Some("z")),
        (vec![train(&[a()])], None),
        (vec![], None),
    ];
    for (files, expected) in cases {
        let task = choose(None, &profile(&files));
        assert_eq!(
            task.target_column.as_deref(),
            expected,
            "{}",
            task.explanation
        );
    }
}

#[test]
fn the_kind_follows_from_the_values() {
    let cases = [
        ("int", 2, "classification", Some("accuracy")),
        ("int", 20, "classification", Some("accuracy")),
        ("int", 21, "regression", Some("rmse")),
        ("int", 50, "regression", Some("rmse")),
        ("float", 3, "regression", Some("rmse")),
        ("bool", 2, "classification", Some("accuracy")),
        ("text", 50, "classification", Some("accuracy")),
        ("empty", 0, "unknown", None),
    ];
    for (values, distinct, kind, metric) in cases {
        let columns = [column("a", "int", 9), column("target", values, distinct)];
        let task = choose(None, &profile(&[table("x.csv", 60, &columns)]));
        assert_eq!(task.task_type, kind, "{values} {distinct}");
        assert_eq!(task.evaluation_metric.as_deref(), metric);
    }
}

#[test]
fn the_metric_is_the_one_that_is_asked_for_if_it_fits() {
    let cases = [
        ("classify town, f1 counts", "f1"),
        ("classify town by ROC AUC", "roc_auc"),
        ("predict Sale Price with a small mean absolute error", "mae"),
        ("predict Sale Price, I like f2", "rmse"),
    ];
    for (instruction, metric) in cases {
        let task = choose(Some(instruction), &houses());
        assert_eq!(
            task.evaluation_metric.as_deref(),
            Some(metric),
            "{instruction}"
        );
    }
}

#[test]
fn files_are_named_in_the_order_in_which_they_matter() {
    let text = |path: &str| json!({"path": path, "bytes": 3, "head": "x"});
    let files = [
        text("README.md"),
        text("notes.txt"),
        json!({"path": "picture.png", "bytes": 3}),
        table("test.csv", 1, &[]),
        table("train.csv", 1, &[]),
        text("variables_description.txt"),
    ];
    let task = choose(None, &profile(&files));
    let inputs = ["train.csv", "test.csv", "notes.txt", "picture.png"];
    assert_eq!(task.input_data_files, inputs);
    let described = ["README.md", "variables_description.txt"];
    assert_eq!(task.relevant_description_files, described);
}

#[test]
fn nothing_known_is_said_plainly() {
    let task = choose(Some("   "), &Profile::default());
    assert_eq!(task.task_type, "unknown");
    assert_eq!(task.evaluation_metric, None);
    assert!(task.explanation.contains("No column to predict"));
}
