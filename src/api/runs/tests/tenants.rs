//! Every route for every kind of caller, and what tenants see of each other.

use jiff::Timestamp;

use super::*;
use crate::api::routes;
use crate::auth::Role;
use crate::config::{Config, Tenant};

const OK: &str = r#"{"code":"ok"}"#;

pub(super) fn with_tokens(config: &mut Config) {
    config.auth.tokens_file = Some("tokens".into());
    for name in ["alice", "bob"] {
        config.tenants.insert(name.to_owned(), Tenant::default());
    }
}

pub(super) fn body() -> Value {
    serde_json::from_str(OK).unwrap()
}

pub(super) fn bearer(token: &str) -> Option<String> {
    Some(format!("Bearer {token}"))
}

/// What is not admitted, by name: nothing, nonsense, and tokens that are not good.
async fn strangers(fixture: &Fixture) -> Vec<(&'static str, Option<String>)> {
    let past = Some(Timestamp::UNIX_EPOCH);
    let expired = fixture
        .token("alice", Role::Admin, |token| token.expires_at = past)
        .await;
    let revoked = fixture
        .token("alice", Role::Admin, |token| token.revoked_at = past)
        .await;
    let homeless = fixture.token("carol", Role::Admin, |_| {}).await;
    let good = fixture.token("alice", Role::Admin, |_| {}).await;
    let unknown = crate::auth::NewToken::generate().unwrap();
    let unknown = unknown.text.expose();
    let forged = format!("{}{}", &good[..16], &unknown[16..]);
    vec![
        ("none", None),
        ("empty", Some(String::new())),
        ("scheme", Some("Basic YTpi".to_owned())),
        ("malformed", bearer("fh_nonsense")),
        ("long", bearer(&"x".repeat(5000))),
        ("bare", Some(good)),
        ("unknown", bearer(unknown)),
        ("forged", bearer(&forged)),
        ("expired", bearer(&expired)),
        ("revoked", bearer(&revoked)),
        ("of no tenant", bearer(&homeless)),
    ]
}

#[tokio::test]
async fn no_route_is_open_to_the_wrong_caller() {
    let fixture = Fixture::with(with_tokens, Vec::new()).await;
    let strangers = strangers(&fixture).await;
    let mut members = Vec::new();
    for role in [Role::Read, Role::Submit, Role::Admin] {
        let token = fixture.token("alice", role, |_| {}).await;
        members.push((role, bearer(&token)));
    }
    let submit = members[1].1.clone();
    let other = fixture.token("bob", Role::Admin, |_| {}).await;
    let other = bearer(&other);
    // A run that has ended, so that its events end as well.
    let run = fixture
        .ask_as(("POST", "/runs"), submit.as_deref(), &body())
        .await;
    let id = run.json()["run_id"].as_str().unwrap().to_owned();
    let events = format!("/runs/{id}/events");
    fixture
        .ask_as(("GET", &events), submit.as_deref(), &Value::Null)
        .await;

    let unauthenticated = fixture
        .ask_as(("GET", "/runs"), None, &Value::Null)
        .await
        .whole();
    assert!(unauthenticated.starts_with("401 "), "{unauthenticated}");
    assert!(unauthenticated.contains(r#""www-authenticate": "Bearer""#));
    let unknown_id = crate::ids::RunId::random().to_string();
    let unknown_run = fixture
        .ask_as(
            ("GET", &format!("/runs/{unknown_id}")),
            submit.as_deref(),
            &Value::Null,
        )
        .await
        .whole();
    assert!(unknown_run.starts_with("404 "), "{unknown_run}");

    for route in routes() {
        let path = route.path.replace("{run_id}", &id);
        let is_of_a_run = path != route.path;
        let asked = (route.method, path.as_str());
        let name = format!("{} {}", route.method, route.path);
        for (kind, authorization) in &strangers {
            let seen = fixture
                .ask_as(asked, authorization.as_deref(), &body())
                .await;
            match route.needs {
                None => assert_eq!(seen.status, 200, "{name} for {kind}"),
                Some(_) => assert_eq!(seen.whole(), unauthenticated, "{name} for {kind}"),
            }
        }
        for (role, authorization) in &members {
            let seen = fixture
                .ask_as(asked, authorization.as_deref(), &body())
                .await;
            let expected = match route.needs {
                Some(needed) if *role < needed => 403,
                Some(_) | None if route.path.ends_with("/cancel") => 409,
                Some(_) | None => 200,
            };
            assert_eq!(seen.status, expected, "{name} for {role:?}: {}", seen.text);
        }
        let seen = fixture.ask_as(asked, other.as_deref(), &body()).await;
        if is_of_a_run {
            assert_eq!(seen.whole(), unknown_run, "{name} for another tenant");
        } else {
            assert_eq!(seen.status, 200, "{name} for another tenant");
        }
    }
    // Neither a path that is not there nor a method that is not is an answer about anybody.
    for (kind, authorization) in &strangers {
        let seen = fixture
            .ask_as(("GET", "/nothing"), authorization.as_deref(), &body())
            .await;
        assert_eq!(seen.status, 404, "{kind}");
    }
}

#[tokio::test]
async fn tenants_see_their_own_runs_and_keys() {
    let fixture = Fixture::with(with_tokens, Vec::new()).await;
    let mut ids = Vec::new();
    let mut callers = Vec::new();
    for name in ["alice", "bob"] {
        let token = fixture.token(name, Role::Submit, |_| {}).await;
        let authorization = format!("Bearer {token}");
        let headers = [
            ("authorization", authorization.as_str()),
            ("idempotency-key", "the-same"),
        ];
        let first = fixture.post(&body(), &headers).await.json();
        let again = fixture.post(&body(), &headers).await.json();
        assert_eq!(first["run_id"], again["run_id"]);
        // Another token of the tenant shares its keys.
        let second = fixture.token(name, Role::Submit, |_| {}).await;
        let second = format!("Bearer {second}");
        let headers = [
            ("authorization", second.as_str()),
            ("idempotency-key", "the-same"),
        ];
        let shared = fixture.post(&body(), &headers).await.json();
        assert_eq!(first["run_id"], shared["run_id"]);
        ids.push(first["run_id"].clone());
        callers.push(authorization);
    }
    assert_ne!(ids[0], ids[1]);
    for (caller, id) in callers.iter().zip(&ids) {
        let list = fixture
            .ask_as(("GET", "/runs?limit=100"), Some(caller), &Value::Null)
            .await
            .json();
        let runs = list["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 1, "{list}");
        assert_eq!(runs[0]["run_id"], *id);
    }
}

#[tokio::test]
async fn one_run_too_many_is_refused_and_nobody_else_notices() {
    let change = |config: &mut Config| {
        with_tokens(config);
        config.tenants.get_mut("alice").unwrap().runs_per_minute = Some(3);
    };
    let fixture = Fixture::with(change, Vec::new()).await;
    let alice = fixture.token("alice", Role::Submit, |_| {}).await;
    let bob = fixture.token("bob", Role::Submit, |_| {}).await;
    let (alice, bob) = (format!("Bearer {alice}"), format!("Bearer {bob}"));
    let submit = async |who: &str| {
        let asked = ("POST", "/runs");
        fixture.ask_as(asked, Some(who), &body()).await
    };
    let mut refused = Vec::new();
    for left in [2, 1, 0, -1] {
        let seen = submit(&alice).await;
        assert_eq!(
            seen.header("ratelimit-policy"),
            Some("\"default\";q=3;w=60")
        );
        let standing = format!("\"default\";r={};t=", left.max(0));
        assert!(seen.header("ratelimit").unwrap().starts_with(&standing));
        match seen.status {
            200 => assert_eq!(seen.header("retry-after"), None),
            _ => refused.push(seen),
        }
        let other = submit(&bob).await;
        assert_eq!((other.status, other.header("ratelimit")), (200, None));
    }
    assert_eq!(refused.len(), 1);
    assert_eq!(
        (refused[0].status, refused[0].json()),
        (429, detail("Too many runs per minute"))
    );
    let seconds: u64 = refused[0].header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds));
    // What never becomes a run does not count, and is not refused for the pace.
    let asked = ("POST", "/runs");
    let wrong = json!({ "code": 5 });
    let seen = fixture.ask_as(asked, Some(&alice), &wrong).await;
    assert_eq!(seen.status, 422);
}

#[tokio::test]
async fn requests_that_become_no_new_run_do_not_count() {
    let change = |config: &mut Config| {
        with_tokens(config);
        config.tenants.get_mut("alice").unwrap().runs_per_minute = Some(2);
    };
    let fixture = Fixture::with(change, Vec::new()).await;
    let alice = fixture.token("alice", Role::Submit, |_| {}).await;
    let alice = format!("Bearer {alice}");
    let headers = [("authorization", alice.as_str()), ("idempotency-key", "k")];
    for _ in 0..5 {
        assert_eq!(fixture.post(&body(), &headers).await.status, 200);
    }
    let reused = fixture.post(&json!({ "code": "other" }), &headers).await;
    assert_eq!(reused.status, 409);
    let headers = [("authorization", alice.as_str())];
    for expected in [200, 429] {
        let seen = fixture.post(&body(), &headers).await;
        assert_eq!(seen.status, expected, "{}", seen.text);
    }
}

#[tokio::test]
async fn a_tenants_roots_and_ceilings_are_its_own() {
    let change = |config: &mut Config| {
        with_tokens(config);
        let root = config.app.allowed_data_root[0].clone();
        let alice = config.tenants.get_mut("alice").unwrap();
        alice.allowed_data_root = Some(vec![root.join("iris")]);
        alice.max_memory_mb = Some(256);
    };
    let fixture = Fixture::with(change, Vec::new()).await;
    std::fs::create_dir(fixture.dir.path().join("data/wine")).unwrap();
    let data = |name: &str| fixture.dir.path().join("data").join(name);
    for (name, set, memory, expected) in [
        ("alice", "iris", 256, 200),
        ("alice", "wine", 256, 400),
        ("alice", "iris", 257, 422),
        ("bob", "wine", 4096, 200),
    ] {
        let token = fixture.token(name, Role::Submit, |_| {}).await;
        let body = json!({
            "code": "ok", "dataset_path": data(set), "options": { "memory_mb": memory },
        });
        let seen = fixture
            .ask_as(("POST", "/runs"), bearer(&token).as_deref(), &body)
            .await;
        assert_eq!(
            seen.status, expected,
            "{name} {set} {memory}: {}",
            seen.text
        );
    }
}

#[tokio::test]
async fn a_tokens_file_that_cannot_be_used_is_our_failure_whatever_was_sent() {
    let fixture = Fixture::with(with_tokens, Vec::new()).await;
    let good = fixture.token("alice", Role::Admin, |_| {}).await;
    let good = bearer(&good);
    let asked = ("GET", "/runs");
    let seen = fixture.ask_as(asked, good.as_deref(), &Value::Null).await;
    assert_eq!(seen.status, 200);
    std::fs::remove_file(fixture.tokens_file()).unwrap();
    fixture.refresh();
    let mut answers = Vec::new();
    for authorization in [good.as_deref(), None, Some("Bearer x")] {
        let seen = fixture.ask_as(asked, authorization, &Value::Null).await;
        assert_eq!(seen.status, 503);
        answers.push(seen.whole());
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert_eq!(fixture.get("/health").await.status, 200);
}

#[tokio::test]
async fn pages_and_names_are_checked_where_there_are_no_tokens() {
    let fixture = Fixture::new().await;
    for (name, value, expected) in [
        ("host", "127.0.0.1:8000", 200),
        ("host", "evil.example", 421),
        ("origin", "https://evil.example", 403),
    ] {
        let headers = [(name, value)];
        let seen = fixture.post(&body(), &headers).await;
        assert_eq!(seen.status, expected, "{name}: {value}");
        assert_eq!(seen.header("access-control-allow-origin"), None);
    }
}

#[tokio::test]
async fn pages_of_configured_origins_may_ask_and_read() {
    let change = |config: &mut Config| {
        with_tokens(config);
        config.api.cors_origins = vec!["https://good.example".to_owned()];
    };
    let fixture = Fixture::with(change, Vec::new()).await;
    let ask = async |origin: &str| {
        let request = Request::builder()
            .method("OPTIONS")
            .uri("/runs")
            .header("origin", origin)
            .header("access-control-request-method", "POST");
        fixture.call(request.body(Body::empty()).unwrap()).await
    };
    let good = ask("https://good.example").await;
    assert_eq!(good.status, 204);
    let allowed = good.header("access-control-allow-origin");
    assert_eq!(allowed, Some("https://good.example"));
    assert_eq!(good.header("access-control-allow-credentials"), None);
    assert_eq!(good.header("vary"), Some("origin"));
    let evil = ask("https://evil.example").await;
    assert_eq!(evil.status, 405);
    assert_eq!(evil.header("access-control-allow-origin"), None);
}
