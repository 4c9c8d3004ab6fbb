//! What is admitted, what is refused, and in which order it is said.

use std::fs;

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::execution::runtime::Offered;

struct Fixture {
    dir: TempDir,
    rules: Rules,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("data/iris")).unwrap();
        let mut config = Config::default();
        config.app.allowed_data_root = vec![dir.path().join("data")];
        config.execution.images = vec!["other:1".to_owned()];
        Self {
            dir,
            rules: Rules::new(&config, "built:1"),
        }
    }

    fn path(&self, path: &str) -> String {
        self.dir.path().join(path).to_str().unwrap().to_owned()
    }

    fn admit(&self, body: &Value) -> Result<RunRequest, AdmissionError> {
        admit(body, &self.rules)
    }

    /// The problems of a body as `type loc`.
    fn problems(&self, body: &Value) -> Vec<String> {
        match self.admit(body) {
            Err(AdmissionError::Fields(errors)) => errors.iter().map(short).collect(),
            other => panic!("{body}: {other:?}"),
        }
    }

    fn option_problems(&self, options: &Value) -> Vec<String> {
        self.problems(&json!({"code": "x", "options": options}))
    }

    fn limits(&self, options: &Value) -> crate::execution::Limits {
        let body = json!({"code": "x", "options": options});
        self.admit(&body).unwrap().limits
    }
}

fn short(error: &FieldError) -> String {
    let places = error.location.iter().map(|place| match place {
        Place::Name(name) => name.clone(),
        Place::Index(index) => index.to_string(),
    });
    let location = places.collect::<Vec<_>>().join(".");
    format!("{} {location}", error.problem.kind())
}

#[test]
fn a_program_alone_is_enough() {
    let fixture = Fixture::new();
    let run = fixture.admit(&json!({"code": "print(1)"})).unwrap();
    assert_eq!(run.code.as_deref(), Some("print(1)"));
    assert_eq!((run.dataset, run.dataset_path), (None, None));
    assert_eq!(run.image, "built:1");
    assert_eq!(run.limits, Config::default().execution.default_limits());
    assert_eq!((run.max_iterations, run.llm_mode), (10, LlmMode::Mock));
    assert_eq!(run.retries, 0);
}

#[test]
fn everything_that_a_request_says_is_kept() {
    let fixture = Fixture::new();
    let body = json!({
        "dataset_path": fixture.path("data/iris"),
        "user_instruction": "é".repeat(1000),
        "code": "a\u{0}\r\n\u{feff}\u{2028}",
        "input_files": {"./a//b.txt": "text", "c.bin": {"base64": "AP8="}},
        "expected_output_files": ["predictions.csv"],
        "bash_script": "echo",
        "unknown": 1,
        "options": {
            "mock_llm": true, "llm_mode": "real", "max_iterations": 50, "disable_judge": true,
            "timeout_seconds": 0.5, "memory_mb": 512.0, "cpus": 2, "max_processes": 1e2,
            "workspace_mb": 100, "shm_mb": 10, "image": "other:1", "run_id": "x", "unknown": [1],
            "retries": 2,
        },
    });
    let run = fixture.admit(&body).unwrap();
    assert_eq!(run.dataset_name().as_deref(), Some("iris"));
    assert_eq!(run.code.as_deref(), body["code"].as_str());
    assert_eq!(run.input_files["a/b.txt"], b"text");
    assert_eq!(run.input_files["c.bin"], [0, 255]);
    assert_eq!(run.expected_output_files, ["predictions.csv"]);
    assert_eq!(run.bash_script.as_deref(), Some("echo"));
    assert_eq!((run.max_iterations, run.llm_mode), (50, LlmMode::Real));
    assert!(run.disable_judge);
    assert_eq!(run.retries, 2);
    assert_eq!(run.image, "other:1");
    let limits = run.limits;
    assert_eq!((limits.timeout_seconds, limits.cpus), (0.5, 2.0));
    assert_eq!((limits.memory_mb, limits.max_processes), (512, 100));
    assert_eq!((limits.workspace_mb, limits.shm_mb), (100, 10));
}

#[test]
fn every_problem_of_a_body_is_reported_in_the_order_of_the_fields() {
    let fixture = Fixture::new();
    let body = json!({
        "bash_script": 1, "expected_output_files": ["a", 1], "code": 5,
        "input_files": {"a": 1, "b": {}, "c": {"base64": "%"}, "d": {"base64": 1}},
        "options": {"cpus": "1", "mock_llm": "yes"}, "user_instruction": {}, "dataset_path": 1,
    });
    let expected = [
        "string_type body.dataset_path",
        "string_type body.user_instruction",
        "bool_parsing body.options.mock_llm",
        "float_type body.options.cpus",
        "string_type body.code",
        "string_type body.input_files.a",
        "missing body.input_files.b.base64",
        "base64_decode body.input_files.c.base64",
        "string_type body.input_files.d.base64",
        "string_type body.expected_output_files.1",
        "string_type body.bash_script",
    ];
    assert_eq!(fixture.problems(&body), expected);
}

#[test]
fn a_body_of_the_wrong_shape_names_the_field() {
    let fixture = Fixture::new();
    for (body, problem) in [
        (json!({}), "missing body.dataset_path"),
        (json!({"code": null}), "missing body.dataset_path"),
        (
            json!({"dataset_path": null}),
            "string_type body.dataset_path",
        ),
        (
            json!({"dataset_path": "x", "options": null}),
            "dict_type body.options",
        ),
        (
            json!({"dataset_path": "x", "options": []}),
            "dict_type body.options",
        ),
        (
            json!({"code": "x", "input_files": []}),
            "dict_type body.input_files",
        ),
        (
            json!({"code": "x", "expected_output_files": {}}),
            "list_type body.expected_output_files",
        ),
        (json!([]), "model_attributes_type body"),
        (json!("x"), "model_attributes_type body"),
        (json!(null), "missing body"),
    ] {
        assert_eq!(fixture.problems(&body), [problem], "{body}");
    }
}

#[test]
fn no_problem_shows_a_program() {
    let fixture = Fixture::new();
    for body in [
        json!({"code": ["SECRET"]}),
        json!({"code": {"x": "SECRET"}, "bash_script": ["SECRET"]}),
        json!({"dataset_path": 1, "code": "SECRET", "options": {"code": "SECRET", "cpus": []}}),
        json!({"code": null, "bash_script": "SECRET", "input_files": {"a": ["SECRET"]}}),
        json!(["SECRET"]),
        json!("{\"code\": \"SECRET\"}"),
        json!({"options": [{"code": "SECRET"}]}),
    ] {
        let error = fixture.admit(&body).unwrap_err();
        assert!(
            !format!("{error:?}").contains("SECRET"),
            "{body}: {error:?}"
        );
    }
}

#[test]
fn checks_come_in_the_documented_order() {
    let fixture = Fixture::new();
    let mut body = json!({
        "dataset_path": "/etc", "user_instruction": "x".repeat(1001),
        "input_files": {"../x": "", "a": "", "./a": ""}, "options": {"cpus": 0},
    });
    assert_eq!(
        fixture.problems(&body),
        ["greater_than_equal body.options.cpus"]
    );
    body["options"] = json!({});
    assert_eq!(fixture.admit(&body), Err(AdmissionError::Outside));
    for inside in ["data/missing", "data/a\0b"] {
        body["dataset_path"] = json!(fixture.path(inside));
        assert_eq!(fixture.admit(&body), Err(AdmissionError::InvalidDirectory));
    }
    body["dataset_path"] = json!("");
    assert_eq!(fixture.admit(&body), Err(AdmissionError::InvalidDirectory));
    body["dataset_path"] = json!(fixture.path("data"));
    assert_eq!(
        fixture.admit(&body),
        Err(AdmissionError::InstructionTooLong)
    );
    body["user_instruction"] = json!("é".repeat(1000));
    let error = fixture.admit(&body).unwrap_err();
    assert!(matches!(error, AdmissionError::InsecureInputPath(_)));
    let text = "Insecure file path detected: Invalid path ../x escapes workspace.";
    assert_eq!(error.to_string(), text);
    for (first, second) in [("a", "./a"), ("a", "a/b"), ("a/b/c", "x/../a")] {
        body["input_files"] = json!({first: "", second: ""});
        let error = fixture.admit(&body).unwrap_err();
        assert!(
            matches!(error, AdmissionError::CollidingInputPaths { .. }),
            "{error}"
        );
    }
    body["input_files"] = json!({"a": "", "ab": "", "b/a": ""});
    body["options"] = json!({"llm_mode": "real"});
    assert_eq!(fixture.admit(&body), Err(AdmissionError::NoModel));
    body["options"] = json!({});
    assert_eq!(fixture.admit(&body).unwrap().code, None);
    body["options"] = json!({"llm_mode": "real"});
    body["code"] = json!("x");
    assert!(fixture.admit(&body).is_ok());
}

#[test]
fn options_of_a_wrong_type_or_outside_their_bounds_are_refused() {
    let fixture = Fixture::new();
    let huge: Value = serde_json::from_str("1e999").unwrap();
    let big: Value = serde_json::from_str("100000000000000000000000000000").unwrap();
    let negative: Value = serde_json::from_str("-100000000000000000000000000000").unwrap();
    let table = [
        ("mock_llm", json!(1), "bool_parsing"),
        ("mock_llm", json!([]), "bool_type"),
        ("disable_judge", json!("true"), "bool_parsing"),
        ("llm_mode", json!("MOCK"), "literal_error"),
        ("llm_mode", json!(true), "string_type"),
        ("retries", json!(-1), "greater_than_equal"),
        ("retries", json!(6), "less_than_equal"),
        ("retries", json!("1"), "int_type"),
        ("max_iterations", json!(0), "greater_than_equal"),
        ("max_iterations", json!(51), "less_than_equal"),
        ("max_iterations", json!(true), "int_type"),
        ("max_iterations", json!("5"), "int_type"),
        ("max_iterations", json!(1.5), "int_from_float"),
        ("timeout_seconds", json!(0), "greater_than"),
        ("timeout_seconds", json!(-0.0), "greater_than"),
        ("timeout_seconds", json!(-1), "greater_than"),
        ("timeout_seconds", json!(86_400.5), "less_than_equal"),
        ("timeout_seconds", huge.clone(), "finite_number"),
        ("timeout_seconds", json!("NaN"), "float_type"),
        ("timeout_seconds", json!(false), "float_type"),
        ("memory_mb", json!(0), "greater_than_equal"),
        ("memory_mb", json!(63), "greater_than_equal"),
        ("memory_mb", json!(-1), "greater_than_equal"),
        ("memory_mb", negative, "greater_than_equal"),
        ("memory_mb", json!(16_385), "less_than_equal"),
        ("memory_mb", big, "less_than_equal"),
        ("memory_mb", huge, "finite_number"),
        ("memory_mb", json!(100.1), "int_from_float"),
        ("memory_mb", json!({}), "int_type"),
        ("cpus", json!(0), "greater_than_equal"),
        ("cpus", json!(8.1), "less_than_equal"),
        ("max_processes", json!(3), "greater_than_equal"),
        ("max_processes", json!(4097), "less_than_equal"),
        ("workspace_mb", json!(0), "greater_than_equal"),
        ("shm_mb", json!(4097), "less_than_equal"),
        ("image", json!("evil:1"), "literal_error"),
        ("image", json!(1), "string_type"),
        ("runtime", json!("runsc"), "literal_error"),
    ];
    for (key, value, kind) in table {
        let problems = fixture.option_problems(&json!({key: value}));
        assert_eq!(problems, [format!("{kind} body.options.{key}")], "{value}");
    }
}

#[test]
fn a_null_option_counts_as_not_given() {
    let fixture = Fixture::new();
    let options = json!({
        "mock_llm": null, "llm_mode": null, "max_iterations": null, "disable_judge": null,
        "timeout_seconds": null, "memory_mb": null, "cpus": null, "max_processes": null,
        "workspace_mb": null, "shm_mb": null, "image": null, "runtime": null,
    });
    let defaults = Config::default().execution.default_limits();
    assert_eq!(fixture.limits(&options), defaults);
}

#[test]
fn a_runtime_is_a_minimum_and_never_silently_less() {
    let mut fixture = Fixture::new();
    fixture.rules.execution.runtime = Some("runsc".to_owned());
    let run = |fixture: &Fixture, options: Value| {
        let admitted = fixture.admit(&json!({"code": "x", "options": options}));
        admitted.map(|run| run.runtime)
    };
    let runsc = Some("runsc".to_owned());
    for options in [
        json!({}),
        json!({"runtime": "runsc"}),
        json!({"runtime": "runc"}),
    ] {
        assert_eq!(run(&fixture, options).unwrap(), runsc);
    }
    assert!(run(&fixture, json!({"runtime": "kata"})).is_err());

    fixture.rules.execution.runtime = None;
    let asked = json!({"runtime": "runsc"});
    assert!(run(&fixture, asked.clone()).is_err(), "the host lacks it");
    fixture.rules.gate.admit(Offered {
        runtimes: vec!["runc".to_owned(), "runsc".to_owned()],
        default: Some("runc".to_owned()),
    });
    assert_eq!(run(&fixture, asked).unwrap(), runsc);
    assert_eq!(run(&fixture, json!({"runtime": "runc"})).unwrap(), None);
    assert_eq!(run(&fixture, json!({})).unwrap(), None);
}

#[test]
fn file_systems_in_memory_fit_into_the_memory() {
    let fixture = Fixture::new();
    let sizes = |options: Value| {
        let limits = fixture.limits(&options);
        (limits.workspace_mb, limits.shm_mb)
    };
    assert_eq!(sizes(json!({"memory_mb": 1344})), (1024, 256));
    assert_eq!(sizes(json!({"memory_mb": 1343})), (671, 167));
    assert_eq!(sizes(json!({"memory_mb": 256})), (128, 32));
    assert_eq!(sizes(json!({"memory_mb": 64})), (32, 8));
    assert_eq!(
        sizes(json!({"memory_mb": 512, "workspace_mb": 384})),
        (384, 64)
    );
    for (options, keys) in [
        (
            json!({"memory_mb": 512, "workspace_mb": 385}),
            &["workspace_mb"][..],
        ),
        (json!({"memory_mb": 512, "shm_mb": 300}), &["shm_mb"]),
        (
            json!({"workspace_mb": 2048, "shm_mb": 10}),
            &["workspace_mb", "shm_mb"],
        ),
    ] {
        let expected: Vec<_> = keys
            .iter()
            .map(|key| format!("value_error body.options.{key}"))
            .collect();
        assert_eq!(fixture.option_problems(&options), expected);
    }
}
