//! What an operator's Prometheus reads.

use super::*;

async fn text(request: RequestBuilder) -> Seen {
    let seen = sent(request).await;
    assert_eq!(seen.status, 200, "{}", seen.text);
    seen
}

fn value(text: &str, series: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(series));
    line.and_then(|rest| rest.trim().parse().ok())
}

#[tokio::test(flavor = "multi_thread")]
async fn they_follow_what_goes_on_and_are_in_the_form_that_prometheus_reads() {
    let daemon = Daemon::start_with(Settings {
        toml: "[app]\nmax_concurrent_runs = 1\n".to_owned(),
        ..Settings::default()
    })
    .await;
    let seen = text(daemon.request(Method::GET, "/metrics")).await;
    let kind = seen.headers["content-type"].to_str().unwrap();
    assert!(
        kind.starts_with("application/openmetrics-text; version=1.0.0"),
        "{kind}"
    );
    assert!(seen.text.ends_with("# EOF\n"), "{}", seen.text);
    for (series, expected) in [
        ("fumehood_runs_queued", 0),
        ("fumehood_runs_running", 0),
        ("fumehood_runs_capacity", 1),
        ("fumehood_accepting_runs", 1),
        ("fumehood_engine_available", 1),
        ("fumehood_sandboxes_set_aside", 0),
        ("fumehood_engine_call_available{call=\"create\"}", 1),
        ("fumehood_engine_call_failures_total{call=\"ping\"}", 0),
    ] {
        assert_eq!(
            value(&seen.text, series),
            Some(expected),
            "{series}\n{}",
            seen.text
        );
    }
    let running = daemon.submit(json!({ "code": ENDLESS })).await;
    let waiting = daemon.submit(json!({ "code": QUICK })).await;
    let ask = async || text(daemon.request(Method::GET, "/metrics")).await.text;
    until(PATIENCE, ask, |text| {
        value(text, "fumehood_runs_running") == Some(1)
            && value(text, "fumehood_runs_queued") == Some(1)
    })
    .await;
    for id in [waiting, running] {
        daemon.post(&format!("/runs/{id}/cancel"), &json!({})).await;
        daemon.ended(&id).await;
    }
}

/// Row 78: on this host only, without a token, and nothing else of the interface.
#[tokio::test(flavor = "multi_thread")]
async fn the_listener_of_their_own_has_nothing_but_them_and_answers_no_page() {
    let daemon = Daemon::start_with(Settings {
        toml: "[api]\nmetrics_listen = \"127.0.0.1:0\"\n".to_owned(),
        ..Settings::default()
    })
    .await;
    let tells = |log: &String| log.contains("metrics can be read address=");
    let log = until(PATIENCE, async || daemon.log(), tells).await;
    let (_, told) = log.split_once("metrics can be read address=").unwrap();
    let address = told.lines().next().unwrap();
    let client = reqwest::Client::new();
    let at = |method: Method, path: &str| client.request(method, format!("http://{address}{path}"));
    let seen = text(at(Method::GET, "/metrics")).await;
    assert_eq!(value(&seen.text, "fumehood_engine_available"), Some(1));
    text(at(Method::GET, "/live")).await;
    for path in ["/runs", "/settings", "/ready", "/", "/metrics/x"] {
        assert_eq!(sent(at(Method::GET, path)).await.status, 404, "{path}");
    }
    for method in [Method::HEAD, Method::POST] {
        let seen = sent(at(method, "/metrics")).await;
        assert_eq!(
            (seen.status, &seen.headers["allow"]),
            (405, &"GET".parse().unwrap())
        );
    }
    for (header, by, status) in [
        ("host", "attacker.example", 421),
        ("origin", "http://attacker.example", 403),
        ("sec-fetch-site", "cross-site", 403),
    ] {
        let seen = sent(at(Method::GET, "/metrics").header(header, by)).await;
        assert_eq!(seen.status, status, "{header}: {}", seen.text);
    }
}
