//! Secrets are planted wherever the daemon keeps or meets some, and everything that leaves it is
//! searched for them, with logs at their most talkative (security.md section 6).

use std::collections::BTreeSet;

use super::*;
use crate::support::engine::inspect;
use crate::support::leaks::{Sink, canary, found};
use crate::support::model::{Answering, Model, completion};
use crate::support::watch::{nothing_left, only_container};

/// Prints whatever a program can find out about its host, and fails with a part of it.
const LOOK: &str = r#"
import os, sys, time
print(CONTROL)
open('out/control.txt', 'w').write(CONTROL)
def show(path):
    try:
        with open(path, 'rb') as file:
            print(path, file.read(20000))
    except OSError as error:
        print(path, error)
for process in ('self', '1'):
    for name in ('environ', 'cmdline', 'mountinfo', 'mounts', 'cgroup', 'status', 'maps'):
        show(f'/proc/{process}/{name}')
for path in ('/proc/cmdline', '/etc/hostname', '/etc/hosts', '/etc/resolv.conf'):
    show(path)
for top in ('/data', '/work', '/tmp', '/run', '/home', '/root', '/mnt', '/srv', '/opt'):
    for directory, _, files in os.walk(top):
        for file in files:
            print(os.path.join(directory, file))
print(dict(os.environ), os.uname())
sys.stdout.flush()
while os.path.exists('/data/wait'):
    time.sleep(0.02)
raise RuntimeError([line for line in open('/proc/self/mountinfo') if ' /data ' in line])
"#;

/// Everything that was planted.
struct Planted {
    daemon: Daemon,
    /// Must be nowhere.
    secrets: Vec<String>,
    /// Must be nowhere where another tenant can look.
    foreign: Vec<String>,
    /// Asked by the daemon, with its key; says all it knows.
    model: Model,
    /// Of `secrets`, the one that travels to the model.
    key: String,
    /// The place of the data on the host: nothing that a client is told.
    path: String,
    /// Printed by the program itself.
    control: String,
    /// Tokens of two tenants.
    alice: String,
    bob: String,
}

async fn plant(redact: bool) -> Planted {
    let toml = format!(
        "[auth]\ntokens_file = 'tokens'\n[tenants.alice]\nweight = 1\n[tenants.bob]\nweight = 1\n\
         [execution]\nredact_host_paths = {redact}\n[llm]\nbase_url = '{{model}}/{{url}}'\n\
         model = 'a-model'\n[store]\nreserve_mb = 1"
    );
    let [url, key, dsn, dotenv, netrc, beside, path, control] = [
        "url", "key", "dsn", "dotenv", "netrc", "beside", "path", "control",
    ]
    .map(canary);
    let model = Model::start(telling(&key, &control));
    let toml = toml.replace("{model}", &model.base_url());
    let mut daemon = Daemon::start_with(Settings {
        toml: toml.replace("{url}", &url),
        files: vec![
            ("tokens", NO_TOKENS.to_owned()),
            (".env", format!("OPENAI_API_KEY={dotenv}")),
            (".netrc", format!("machine x login y password {netrc}")),
            ("beside.txt", beside.clone()),
        ],
        environment: vec![
            ("OPENAI_API_KEY", key.clone()),
            ("FOO_DSN", format!("postgres://u:{dsn}@db.invalid")),
        ],
        log: Some("trace"),
        ..Settings::default()
    })
    .await;
    daemon.stop();
    let real = daemon.path().join(&path);
    std::fs::rename(daemon.data(), &real).unwrap();
    std::os::unix::fs::symlink(&real, daemon.data()).unwrap();
    daemon.launch();
    for name in ["set", "other"] {
        std::fs::create_dir(real.join(name)).unwrap();
    }
    let [foreign_data, foreign_code, foreign_file] = ["data", "code", "file"].map(canary);
    std::fs::write(real.join("other/table.csv"), &foreign_data).unwrap();
    let alice = token(&daemon, "alice", "submit").await;
    let bob = token(&daemon, "bob", "submit").await;
    // The part of a token that is secret.
    let secret_of = |token: &str| token[16..].to_owned();
    let code = format!("open('out/{foreign_file}', 'w').write('{foreign_code}')");
    let body = json!({"code": code, "dataset_path": "data/other"});
    let request = daemon.request(Method::POST, "/runs").bearer_auth(&bob);
    let id = sent(request.json(&body)).await.run_id();
    ended(&daemon, &bob, &id).await;
    nothing_left(&daemon, PATIENCE).await;
    Planted {
        secrets: vec![
            url,
            key.clone(),
            dsn,
            dotenv,
            netrc,
            beside,
            secret_of(&alice),
            secret_of(&bob),
        ],
        model,
        key,
        foreign: vec![foreign_data, foreign_code, foreign_file],
        path,
        control,
        alice,
        bob,
        daemon,
    }
}

/// A model that repeats its key wherever it can: an answer of no known form, a program, a judgement,
/// an explanation, and then a refusal and a redirect.
fn telling(key: &str, control: &str) -> Answering {
    let key = key.to_owned();
    let files = "for name in ('predictions.csv', 'summary.json'):\n    open('out/' + name, 'w').write('{}')";
    let program = format!("# {key}\nCONTROL = '{control}'\n{files}\n{LOOK}");
    Box::new(move |kind, before| {
        let words = format!("Your key is {key}.");
        let answer = match (kind, before) {
            ("program", 0) => json!({"words": words, "key": key}),
            ("program", 1) => json!({"code": program, "explanation": words}),
            ("program", _) => return (401, words),
            ("judgement", _) => json!({"decision": "FIX", "confidence": 0.9,
                "issues": [words.clone()], "reason": words}),
            _ => json!({"error_category": key, "error_summary": words, "suggested_fix": words}),
        };
        (200, completion(&answer.to_string()))
    })
}

/// Runs whose program that model is asked for; their answers.
async fn drive_model(planted: &Planted, add: &mut impl FnMut(&str, &Seen)) {
    let daemon = &planted.daemon;
    let options = json!({"llm_mode": "real", "max_iterations": 1});
    let body = json!({"dataset_path": "data/set", "options": options});
    for (number, (name, iterations)) in [("written", 1), ("refused by the model", 0)]
        .into_iter()
        .enumerate()
    {
        let request = daemon
            .request(Method::POST, "/runs")
            .bearer_auth(&planted.alice);
        let id = sent(request.json(&body)).await.run_id();
        let run = ended(daemon, &planted.alice, &id).await;
        assert_eq!(run["status"], "FAIL", "{run:#}");
        assert_eq!(run["iterations"], iterations, "{number} {run:#}");
        for path in ["", "/episodes", "/events", "/artifacts", "/receipt"] {
            let address = format!("/runs/{id}{path}");
            let seen = ask(daemon, Method::GET, &address, Some(&planted.alice)).await;
            add(&format!("{name}{path}"), &seen);
        }
    }
    let asked = planted.model.kinds();
    let expected = ["program", "program", "judgement", "explanation", "program"];
    assert_eq!(asked, expected);
}

/// Everything that alice can read, and everything that stays on the host.
struct Sinks {
    answers: Vec<Sink>,
    host: Vec<Sink>,
    /// What the model was told; the key is in the heads of those requests, where it belongs.
    prompts: Vec<Sink>,
    heads: Vec<Sink>,
    /// What the kernel shows of the daemon's own environment.
    environment: Vec<Sink>,
}

async fn drive(planted: &Planted) -> Sinks {
    let daemon = &planted.daemon;
    let wait = daemon.data().join("set/wait");
    std::fs::write(&wait, "").unwrap();
    let code = format!("CONTROL = '{}'\n{LOOK}", planted.control);
    let body = json!({"code": code, "dataset_path": "data/set"});
    let request = daemon
        .request(Method::POST, "/runs")
        .bearer_auth(&planted.alice);
    let id = sent(request.json(&body)).await.run_id();
    let container = only_container(daemon).await;
    let inspected = serde_json::to_vec(&inspect(&container).await).unwrap();
    std::fs::remove_file(&wait).unwrap();
    let run = ended(daemon, &planted.alice, &id).await;
    assert_eq!(run["status"], "FAIL", "{run:#}");

    let mut answers = Vec::new();
    let mut add = |name: &str, seen: &Seen| {
        let whole = format!("{:?} {}", seen.headers, seen.text);
        answers.push(Sink::new(name, whole));
    };
    for path in [
        "",
        "/episodes",
        "/events",
        "/artifacts",
        "/receipt",
        "/nothing",
    ] {
        let path = format!("/runs/{id}{path}");
        add(
            &path.replace(&id, "ID"),
            &ask(daemon, Method::GET, &path, Some(&planted.alice)).await,
        );
    }
    for path in [
        "/runs",
        "/settings",
        "/ready",
        "/health",
        "/metrics",
        "/openapi.json",
        "/nothing",
        "/runs/unknown",
    ] {
        for token in [None, Some(planted.alice.as_str())] {
            add(path, &ask(daemon, Method::GET, path, token).await);
            add(path, &ask(daemon, Method::DELETE, path, token).await);
        }
    }
    let sets = [
        "data/none",
        "data/set/../../.env",
        "/etc",
        "data/set/\0",
        "state",
    ];
    let bodies = sets.map(|set| json!({"code": "1", "dataset_path": set}));
    for body in bodies.into_iter().chain([json!({"code": 1}), json!([])]) {
        let request = daemon
            .request(Method::POST, "/runs")
            .bearer_auth(&planted.alice);
        add("refused", &sent(request.json(&body)).await);
    }
    let list = ask(daemon, Method::GET, "/runs", Some(&planted.bob))
        .await
        .json();
    let foreign = list["runs"][0]["run_id"].as_str().unwrap().to_owned();
    for path in ["", "/episodes", "/events", "/artifacts", "/receipt"] {
        let path = format!("/runs/{foreign}{path}");
        let seen = ask(daemon, Method::GET, &path, Some(&planted.alice)).await;
        assert_eq!(seen.status, 404, "{}", seen.text);
        add("another's", &seen);
    }

    drive_model(planted, &mut add).await;

    let path = format!("/runs/{id}/receipt");
    let receipt = ask(daemon, Method::GET, &path, Some(&planted.alice)).await;
    let receipt = receipt.json();
    let name = receipt["statement"]["execution"]["id"].as_str();
    let name = name.unwrap_or_else(|| panic!("{receipt:#}"));
    let artifacts = daemon.artifacts(name);
    for entry in std::fs::read_dir(artifacts).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        answers.push(Sink::new("artifacts", bytes));
    }

    let mut host = vec![
        Sink::new("log", daemon.log()),
        Sink::new("inspected", inspected),
        Sink::new(
            "arguments",
            std::fs::read(format!("/proc/{}/cmdline", daemon.pid())).unwrap(),
        ),
    ];
    for entry in std::fs::read_dir(daemon.path().join("state")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            host.push(Sink::new("state", std::fs::read(path).unwrap()));
        }
    }
    let requests = planted.model.requests();
    let environment = format!("/proc/{}/environ", daemon.pid());
    Sinks {
        answers,
        host,
        prompts: requests
            .iter()
            .map(|request| Sink::new("prompts", request.body.clone()))
            .collect(),
        heads: requests
            .iter()
            .map(|request| Sink::new("heads", request.head.clone()))
            .collect(),
        environment: vec![Sink::new(
            "environment",
            std::fs::read(environment).unwrap(),
        )],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_planted_turns_up_nowhere() {
    let planted = plant(true).await;
    let sinks = drive(&planted).await;
    for secret in &planted.secrets {
        assert_eq!(found(secret, &sinks.answers), BTreeSet::new(), "{secret}");
        assert_eq!(found(secret, &sinks.host), BTreeSet::new(), "{secret}");
        assert_eq!(found(secret, &sinks.prompts), BTreeSet::new(), "{secret}");
    }
    let environment = found(&planted.key, &sinks.environment);
    assert_eq!(environment, BTreeSet::new());
    for hidden in planted.foreign.iter().chain([&planted.path]) {
        assert_eq!(found(hidden, &sinks.prompts), BTreeSet::new(), "{hidden}");
    }
    for hidden in planted.foreign.iter().chain([&planted.path]) {
        assert_eq!(found(hidden, &sinks.answers), BTreeSet::new(), "{hidden}");
    }
    // No answer says where anything is on this host, whatever it is called.
    let place = planted.daemon.path().to_str().unwrap().to_owned();
    for sink in &sinks.answers {
        let text = String::from_utf8_lossy(&sink.bytes);
        assert!(!text.contains(&place), "{}: {text}", sink.name);
    }

    // And the search does look there: what the program itself has said is found, and the key where it
    // belongs; what else is in the environment is there.
    assert_eq!(found(&planted.key, &sinks.heads).len(), 1);
    assert_eq!(found(&planted.control, &sinks.prompts).len(), 1);
    let environment = String::from_utf8_lossy(&sinks.environment[0].bytes);
    assert!(environment.contains("FOO_DSN=postgres://u:CANARY_dsn_"));
    let said = found(&planted.control, &sinks.answers);
    let everywhere = [
        "/runs/ID/episodes",
        "/runs/ID/events",
        "artifacts",
        "written/episodes",
        "written/events",
    ];
    for sink in everywhere {
        assert!(said.contains(sink), "{said:?}");
    }
    assert_eq!(
        found(&planted.control, &sinks.host),
        BTreeSet::from(["state".to_owned()])
    );
    let log = sinks.host.iter().find(|sink| sink.name == "log").unwrap();
    assert!(String::from_utf8_lossy(&log.bytes).contains("TRACE"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redaction_the_place_of_the_data_is_found() {
    let planted = plant(false).await;
    let sinks = drive(&planted).await;
    let said = found(&planted.path, &sinks.answers);
    for sink in ["/runs/ID/episodes", "/runs/ID/events", "written/episodes"] {
        assert!(said.contains(sink), "{said:?}");
    }
    assert_eq!(found(&planted.path, &sinks.prompts).len(), 1);
    for secret in &planted.secrets {
        assert_eq!(found(secret, &sinks.answers), BTreeSet::new(), "{secret}");
    }
}
