//! What a client may try that has a token, or has none.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use jiff::Timestamp;
use tokio::time::timeout;

use super::tenants::{bearer, body, with_tokens};
use super::*;
use crate::auth::{Role, update};
use crate::config::Config;

const PATIENCE: Duration = Duration::from_secs(20);

fn hanging() -> Value {
    json!({ "code": "hang SECRET" })
}

async fn submitted(fixture: &Fixture, token: &str, body: &Value) -> String {
    let authorization = bearer(token);
    let seen = fixture.ask_as(("POST", "/runs"), authorization.as_deref(), body);
    seen.await.json()["run_id"].as_str().unwrap().to_owned()
}

async fn cancel(fixture: &Fixture, token: &str, id: &str) {
    let path = format!("/runs/{id}/cancel");
    let asked = ("POST", path.as_str());
    let seen = fixture
        .ask_as(asked, bearer(token).as_deref(), &Value::Null)
        .await;
    assert_eq!(seen.status, 200, "{}", seen.text);
}

#[tokio::test]
async fn a_token_counts_only_where_tokens_are_sent() {
    let fixture = Fixture::with(with_tokens, Vec::new()).await;
    let admin = fixture.token("alice", Role::Admin, |_| {}).await;
    for query in ["access_token", "token", "authorization", "api_key"] {
        let path = format!("/runs?{query}={admin}");
        assert_eq!(fixture.get(&path).await.status, 401, "{query}");
    }
    let header = format!("Bearer {admin}");
    for name in [
        "x-api-key",
        "cookie",
        "proxy-authorization",
        "x-authorization",
    ] {
        let request = Request::get("/runs").header(name, &header);
        let seen = fixture.call(request.body(Body::empty()).unwrap()).await;
        assert_eq!(seen.status, 401, "{name}");
    }
    for both in [
        [header.as_str(), "Bearer x"],
        ["Bearer x", &header],
        [&header, &header],
    ] {
        let request = Request::get("/runs")
            .header("authorization", both[0])
            .header("authorization", both[1]);
        let seen = fixture.call(request.body(Body::empty()).unwrap()).await;
        assert_eq!(seen.status, 401, "two are none");
    }
}

#[tokio::test]
async fn no_spelling_of_a_path_and_no_header_gets_around_a_guard() {
    let fixture = Fixture::with(with_tokens, Vec::new()).await;
    let reader = fixture.token("alice", Role::Read, |_| {}).await;
    let reader = bearer(&reader);
    for path in [
        "//settings",
        "/settings/",
        "/SETTINGS",
        "/%73ettings",
        "/./settings",
        "/health/../settings",
        "/health/%2e%2e/settings",
        "/health%2f..%2fsettings",
        "/settings;a=b",
        "/settings%00",
        "/health//settings",
    ] {
        for authorization in [None, reader.as_deref()] {
            let seen = fixture
                .ask_as(("GET", path), authorization, &Value::Null)
                .await;
            assert!(
                [401, 403, 404].contains(&seen.status),
                "{path}: {}",
                seen.text
            );
        }
    }
    for (name, value) in [
        ("x-original-url", "/settings"),
        ("x-rewrite-url", "/settings"),
        ("x-http-method-override", "POST"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-user", "admin"),
        ("x-tenant", "bob"),
    ] {
        let ask = async |path: &str| {
            let request = Request::get(path)
                .header("authorization", reader.clone().unwrap())
                .header(name, value);
            fixture.call(request.body(Body::empty()).unwrap()).await
        };
        assert_eq!(ask("/settings").await.status, 403, "{name}");
        assert_eq!(ask("/runs").await.json()["runs"], json!([]), "{name}");
        assert_eq!(ask("/health").await.json()["status"], "ok", "{name}");
    }
    // No method but those of the table, and no answer about anybody by another one.
    for method in [
        "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "post",
    ] {
        for path in ["/runs", "/settings"] {
            let seen = fixture.ask_as((method, path), None, &Value::Null).await;
            assert_eq!(seen.status, 405, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn a_cursor_of_one_tenant_shows_another_nothing_but_its_own() {
    let fixture = Fixture::with(with_tokens, Vec::new()).await;
    let alice = fixture.token("alice", Role::Submit, |_| {}).await;
    let bob = fixture.token("bob", Role::Submit, |_| {}).await;
    let his = submitted(&fixture, &bob, &body()).await;
    for _ in 0..3 {
        submitted(&fixture, &alice, &body()).await;
    }
    let list = async |token: &str, query: &str| {
        let path = format!("/runs?{query}");
        let asked = ("GET", path.as_str());
        fixture
            .ask_as(asked, bearer(token).as_deref(), &Value::Null)
            .await
            .json()
    };
    let hers = list(&alice, "limit=1").await;
    let cursor = hers["next_cursor"].as_str().unwrap();
    for query in [
        format!("cursor={cursor}"),
        format!("cursor={cursor}&tenant=alice"),
        "tenant=alice&limit=100".to_owned(),
        "status=SUCCESS&status=QUEUED&client=alice".to_owned(),
    ] {
        let seen = list(&bob, &query).await;
        let runs = seen["runs"].as_array().unwrap();
        assert!(
            runs.iter().all(|run| run["run_id"] == *his),
            "{query}: {seen}"
        );
    }
}

/// Two streams of one run, the token of one of which is taken back.
#[tokio::test]
async fn a_stream_and_a_wait_end_with_their_token() {
    let fixture = Fixture::with(with_tokens, Vec::new()).await;
    let owner = fixture.token("alice", Role::Submit, |_| {}).await;
    let revoked = fixture.token("alice", Role::Submit, |_| {}).await;
    let soon = Timestamp::now() + Duration::from_secs(4);
    let expiring = fixture
        .token("alice", Role::Submit, |token| token.expires_at = Some(soon))
        .await;
    let id = submitted(&fixture, &owner, &hanging()).await;
    let events = format!("/runs/{id}/events");
    let follow = async |token: &str| {
        let asked = ("GET", events.as_str());
        fixture
            .ask_as(asked, bearer(token).as_deref(), &Value::Null)
            .await
    };
    let wait = async |token: &str| {
        let request = Request::post("/runs")
            .header("authorization", bearer(token).unwrap())
            .header("prefer", "wait=600")
            .body(Body::from(hanging().to_string()));
        fixture.call(request.unwrap()).await
    };
    let revoke = async {
        let path = fixture.tokens_file();
        let key = crate::auth::key_of(&revoked).unwrap();
        let change = update(&path, |tokens| {
            let token = tokens.iter_mut().find(|token| token.key == key);
            token.unwrap().revoked_at = Some(Timestamp::now());
            Ok(())
        });
        change.await.unwrap();
        fixture.refresh();
    };
    let ended = async {
        let of_ended =
            async { tokio::join!(follow(&revoked), follow(&expiring), wait(&revoked), revoke) };
        let (first, second, waited, ()) = timeout(PATIENCE, of_ended).await.unwrap();
        cancel(&fixture, &owner, &id).await;
        (first, second, waited)
    };
    let (kept, (first, second, waited)) = tokio::join!(follow(&owner), ended);
    assert_eq!([kept.status, first.status, second.status], [200; 3]);
    assert!(kept.text.contains("CANCELLED"), "{}", kept.text);
    for seen in [first, second] {
        // Begun it had, and what came after the token it did not tell.
        assert!(!seen.text.contains("CANCELLED"), "{}", seen.text);
    }
    assert_eq!(
        (waited.status, waited.json()),
        (401, detail("Not authenticated"))
    );
}

#[tokio::test]
async fn one_tenants_requests_that_take_long_leave_places_for_the_others() {
    let change = |config: &mut Config| {
        with_tokens(config);
        config.api.max_connections = 8;
    };
    let fixture = Fixture::with(change, Vec::new()).await;
    let alice = fixture.token("alice", Role::Submit, |_| {}).await;
    let bob = fixture.token("bob", Role::Submit, |_| {}).await;
    let id = submitted(&fixture, &alice, &hanging()).await;
    let events = format!("/runs/{id}/events");
    let ask = async |token: &str, path: &str| {
        fixture
            .ask_as(("GET", path), bearer(token).as_deref(), &Value::Null)
            .await
    };
    let meanwhile = async {
        let refused = ask(&alice, "/runs").await;
        assert_eq!(refused.status, 429, "{}", refused.text);
        assert_eq!(refused.header("ratelimit-policy"), Some("\"requests\";q=2"));
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert_eq!(ask(&bob, "/runs").await.status, 200);
        fixture.shutdown.cancel();
    };
    let (first, second, ()) = tokio::join!(ask(&alice, &events), ask(&alice, &events), meanwhile);
    assert_eq!([first.status, second.status], [200; 2]);
    assert_eq!(ask(&alice, "/runs").await.status, 200);
}

/// There is one tenant only, whose clients share all connections.
#[tokio::test]
async fn waits_of_many_leave_places_for_what_takes_no_time() {
    let change = |config: &mut Config| config.api.max_connections = 4;
    let fixture = Fixture::with(change, Vec::new()).await;
    let wait = async || {
        let request = Request::post("/runs")
            .header("prefer", "wait=600")
            .body(Body::from(hanging().to_string()));
        fixture.call(request.unwrap()).await
    };
    let mut waits: FuturesUnordered<_> = (0..3).map(|_| wait()).collect();
    let at_once = timeout(PATIENCE, waits.next()).await.unwrap().unwrap();
    assert_eq!(at_once.status, 200, "{}", at_once.text);
    assert_eq!(at_once.json()["status"], "QUEUED");
    assert_eq!(at_once.header("preference-applied"), None);
    fixture.shutdown.cancel();
    while let Some(seen) = waits.next().await {
        assert_eq!(seen.header("preference-applied"), Some("wait=600"));
    }
}

/// Those who wait and those who follow a run have the same half of the connections, not one each.
#[tokio::test]
async fn who_waits_has_no_place_beside_those_who_follow_runs() {
    let change = |config: &mut Config| config.api.max_connections = 4;
    let fixture = Fixture::with(change, Vec::new()).await;
    let post = |wait: &str| {
        let request = Request::post("/runs").header("prefer", wait);
        fixture.call(request.body(Body::from(hanging().to_string())).unwrap())
    };
    let first = post("respond-async").await.json();
    let events = format!("/runs/{}/events", first["run_id"].as_str().unwrap());
    let follow = || fixture.ask("GET", &events);
    let wait = async {
        let seen = timeout(PATIENCE, post("wait=600")).await.unwrap();
        fixture.shutdown.cancel();
        seen
    };
    let (first, second, at_once) = tokio::join!(follow(), follow(), wait);
    assert_eq!([first.status, second.status, at_once.status], [200; 3]);
    assert_eq!(at_once.header("preference-applied"), None);
}

#[tokio::test]
async fn large_bodies_of_one_tenant_that_never_arrive_leave_room_for_the_others() {
    let fixture = Fixture::with(with_tokens, Vec::new()).await;
    let alice = fixture.token("alice", Role::Submit, |_| {}).await;
    let bob = fixture.token("bob", Role::Submit, |_| {}).await;
    let endless = || async {
        let body = Body::from_stream(stream::pending::<Result<bytes::Bytes, std::io::Error>>());
        let request = Request::post("/runs")
            .header("authorization", bearer(&alice).unwrap())
            .header("content-length", "100000")
            .body(body);
        fixture.call(request.unwrap()).await;
    };
    let mut stalled: Vec<_> = (0..20).map(|_| Box::pin(endless())).collect();
    for request in &mut stalled {
        assert!(request.as_mut().now_or_never().is_none());
    }
    let large = json!({ "code": "ok", "user_instruction": null, "padding": "x".repeat(90_000) });
    let authorization = bearer(&bob);
    let asked = fixture.ask_as(("POST", "/runs"), authorization.as_deref(), &large);
    let seen = timeout(PATIENCE, asked).await.unwrap();
    assert_eq!(seen.status, 200, "{}", seen.text);
}
