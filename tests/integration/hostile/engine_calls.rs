//! Which calls of the engine a sandbox with a program never meets: those whose holes led from a
//! container to its host (security.md sections 0 and 7).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use reqwest::Method;
use serde_json::{Value, json};

use crate::command_line::Bench;
use crate::doctor::examined;
use crate::support::proxy::{Fault, Proxy};
use crate::support::{Daemon, Settings};

#[tokio::test(flavor = "multi_thread")]
async fn the_engine_s_archive_calls_are_never_used_on_a_sandbox() {
    let proxy = Proxy::start();
    let daemon = Daemon::start_with(Settings {
        engine: Some(proxy.socket()),
        ..Settings::default()
    })
    .await;
    // The first run may fill the supervisor's volume, in a container that is never started.
    daemon.execute("print('first')").await;
    let calls = [
        ("GET", "/archive"),
        ("HEAD", "/archive"),
        ("PUT", "/archive"),
        ("POST", "/exec"),
        ("POST", "/copy"),
        ("GET", "/export"),
        ("POST", "/commit"),
        ("POST", "/build"),
    ];
    let calls = calls.map(|(method, part)| (method, part, proxy.fault(method, part, Fault::Pass)));
    let creations = proxy.fault("POST", "/containers/create", Fault::Pass);
    let code = "
import os
os.makedirs('out/models')
for name in ('out/models/m.bin', 'out/summary.json', 'top.csv'):
    open(name, 'w').write('{}')
";
    let body = json!({ "code": code, "input_files": { "given.csv": "a\n1\n" } });
    for _ in 0..2 {
        let result = daemon.result(body.clone()).await;
        assert_eq!(result["status"], "SUCCESS", "{result:#}");
        assert_eq!(result["artifacts"].as_array().unwrap().len(), 3);
    }
    assert_ne!(creations.count(), 0, "the count counts");
    for (method, part, hits) in calls {
        assert_eq!(hits.count(), 0, "{method} {part}");
    }
}

/// What a proxy that only lets through what is needed has to let through (row 63). Nothing in it runs
/// a second program in a container, makes or changes an image, or reads a container's files.
const NEEDED: &[&str] = &[
    "GET /_ping",
    "GET /containers/json",
    "GET /containers/{}/json",
    "GET /events",
    "GET /images/{}/json",
    "GET /info",
    "GET /version",
    "GET /volumes/{}",
    "POST /containers/create",
    "POST /containers/{}/kill",
    "POST /containers/{}/start",
    "POST /volumes/create",
    "DELETE /containers/{}",
];

/// Those that carry a stream, and the one that fills the volume of the supervisor, in a container that
/// is never started.
const STREAMS: [(&str, &str); 3] = [("POST", "/attach"), ("POST", "/wait"), ("PUT", "/archive")];

/// The call that the head of a request is, with a place for each name.
fn call(head: &str) -> String {
    let mut words = head.split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let path = target.split('?').next().unwrap();
    let mut parts: Vec<&str> = path.split('/').skip(1).collect();
    if parts[0].starts_with("v1.") {
        parts.remove(0);
    }
    // The name of an image has slashes in it.
    if parts[0] == "images" && parts.len() > 3 {
        parts.drain(2..parts.len() - 1);
    }
    if let Some(name) = parts.get_mut(1)
        && !["create", "json"].contains(name)
    {
        *name = "{}";
    }
    format!("{method} /{}", parts.join("/"))
}

/// Row 63: the engine is asked for no more, whatever is done with it.
#[tokio::test(flavor = "multi_thread")]
async fn the_engine_is_asked_for_nothing_that_is_not_needed() {
    let proxy = Proxy::start();
    for (method, part) in STREAMS {
        proxy.fault(method, part, Fault::Pass);
    }
    let seen: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"] {
        let seen = Arc::clone(&seen);
        let note = move |head: &str, _: &mut Value| {
            seen.lock().unwrap().insert(call(head));
        };
        let note = Fault::Rewrite {
            request: Arc::new(|_: &str, _: &mut Value| {}),
            answer: Arc::new(note),
        };
        proxy.fault(method, "", note);
    }
    let settings = Settings {
        engine: Some(proxy.socket()),
        toml: "[pool]\nsize = 1".to_owned(),
        ..Settings::default()
    };
    let daemon = Daemon::start_with(settings).await;
    std::fs::create_dir(daemon.data().join("set")).unwrap();
    let code = "open('out/a', 'w').write('a')";
    let given = json!({ "code": code, "dataset_path": "data/set" });
    assert_eq!(daemon.run(given).await["status"], "SUCCESS");
    let late = json!({ "code": "while True: pass", "options": { "timeout_seconds": 1 } });
    assert_eq!(daemon.result(late).await["status"], "TIMEOUT");
    let id = daemon.submit(json!({ "code": "while True: pass" })).await;
    let cancel = daemon.request(Method::POST, &format!("/runs/{id}/cancel"));
    assert_eq!(cancel.send().await.unwrap().status(), 200);
    assert_eq!(daemon.ended(&id).await["status"], "CANCELLED");
    let bench = Bench::new();
    assert_eq!(
        examined(&bench, "runc", Some(&proxy.socket())).await.code,
        0
    );
    drop(daemon);
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    let others: Vec<&String> = seen
        .iter()
        .filter(|call| !NEEDED.contains(&call.as_str()))
        .collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(seen.contains("POST /containers/create"), "{seen:?}");
}
