//! Every route of the interface's own table for every kind of caller.

use fumehood::api::{RouteEntry, routes};

use super::*;

/// What is not admitted, by name.
async fn strangers(daemon: &Daemon) -> Vec<(&'static str, Option<String>)> {
    let good = token(daemon, "alice", "admin").await;
    let revoked = token(daemon, "alice", "admin").await;
    let called = call(daemon, &["token", "revoke", key_of(&revoked)]);
    assert_eq!(called.code, 0, "{called:?}");
    until_refused(daemon, &revoked).await;
    let arguments = ["--tenant", "alice", "--role", "admin", "--expires", "8s"];
    let expired = fresh_token(daemon, &arguments);
    until_known(daemon, &expired).await;
    until_refused(daemon, &expired).await;
    let unknown = format!("fh_aaaaaaaaaaaa_{}", "0".repeat(64));
    let forged = format!("{}{}", &good[..16], "0".repeat(64));
    vec![
        ("none", None),
        ("malformed", Some("nonsense".to_owned())),
        ("long", Some("x".repeat(8000))),
        ("unknown", Some(unknown)),
        ("forged", Some(forged)),
        ("expired", Some(expired)),
        ("revoked", Some(revoked)),
    ]
}

async fn call_route(daemon: &Daemon, route: RouteEntry, id: &str, token: Option<&str>) -> Seen {
    let path = route.path.replace("{run_id}", id);
    let method = Method::from_bytes(route.method.as_bytes()).unwrap();
    let mut request = daemon.request(method, &path);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    if (route.method, route.path) == ("POST", "/runs") {
        request = request.json(&json!({ "code": QUICK }));
    }
    sent(request).await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_route_is_open_to_the_wrong_caller_and_a_foreign_run_is_no_run() {
    let daemon = daemon_with("").await;
    let strangers = strangers(&daemon).await;
    let mut members = Vec::new();
    for role in ["read", "submit", "admin"] {
        members.push((role, token(&daemon, "alice", role).await));
    }
    let owner = members[1].1.clone();
    let other = token(&daemon, "bob", "admin").await;
    let id = submit(&daemon, &owner, QUICK).await.run_id();
    ended(&daemon, &owner, &id).await;

    let unauthenticated = ask(&daemon, Method::GET, "/runs", None).await;
    assert_eq!(unauthenticated.status, 401);
    assert_eq!(unauthenticated.header("www-authenticate"), Some("Bearer"));
    let random = "/runs/123e4567-e89b-42d3-a456-426614174000";
    let unknown_run = ask(&daemon, Method::GET, random, Some(&owner)).await;
    assert_eq!(unknown_run.status, 404);

    let rank = |role: &str| ["read", "submit", "admin"].iter().position(|r| *r == role);
    for route in routes() {
        let name = format!("{} {}", route.method, route.path);
        for (kind, token) in &strangers {
            let seen = call_route(&daemon, route, &id, token.as_deref()).await;
            match route.needs {
                None => assert_eq!(seen.status, 200, "{name} for {kind}"),
                Some(_) => assert_eq!(seen, unauthenticated, "{name} for {kind}"),
            }
        }
        for (role, token) in &members {
            let seen = call_route(&daemon, route, &id, Some(token)).await;
            let expected = match route.needs {
                Some(needed) if rank(role) < rank(needed.as_str()) => 403,
                Some(_) | None if route.path.ends_with("/cancel") => 409,
                Some(_) | None => 200,
            };
            assert_eq!(seen.status, expected, "{name} for {role}: {}", seen.text);
            if (route.method, route.path) == ("POST", "/runs") && seen.status == 200 {
                ended(&daemon, token, &seen.run_id()).await;
            }
        }
        let seen = call_route(&daemon, route, &id, Some(&other)).await;
        if route.path.contains("{run_id}") {
            assert_eq!(seen, unknown_run, "{name} for another tenant");
        } else {
            assert_eq!(seen.status, 200, "{name} for another tenant");
        }
        if (route.method, route.path) == ("POST", "/runs") {
            ended(&daemon, &other, &seen.run_id()).await;
        }
    }
    // The list has the tenant's own runs, and a foreign cursor or status shows no other.
    let list = ask(&daemon, Method::GET, "/runs?limit=100", Some(&other)).await;
    let list = list.json();
    let runs = list["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1, "{list}");
    assert!(!list.to_string().contains(&id), "{list}");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_one_tenant_are_free_for_another_and_foreign_runs_cannot_be_ended() {
    let daemon = daemon_with("").await;
    let alice = token(&daemon, "alice", "submit").await;
    let bob = token(&daemon, "bob", "submit").await;
    let with_key = async |token: &str| {
        let request = daemon.request(Method::POST, "/runs").bearer_auth(token);
        let request = request.header("Idempotency-Key", "the-same");
        sent(request.json(&json!({ "code": ENDLESS })))
            .await
            .run_id()
    };
    let (hers, his) = (with_key(&alice).await, with_key(&bob).await);
    assert_ne!(hers, his);
    assert_eq!(with_key(&alice).await, hers);
    let foreign = format!("/runs/{hers}/cancel");
    let refused = ask(&daemon, Method::POST, &foreign, Some(&bob)).await;
    assert_eq!(refused.status, 404);
    let run = ask(&daemon, Method::GET, &format!("/runs/{hers}"), Some(&alice)).await;
    assert!(["QUEUED", "RUNNING"].contains(&run.json()["status"].as_str().unwrap()));
    cancelled(&daemon, &alice, &hers).await;
    cancelled(&daemon, &bob, &his).await;
}
