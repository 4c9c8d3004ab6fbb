//! Names and pages that are let in, and those that are not.

use super::*;

fn headers(host: Option<&str>, origin: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in [(HOST, host), (ORIGIN, origin)] {
        if let Some(value) = value {
            headers.insert(name, value.parse().unwrap());
        }
    }
    headers
}

fn doorkeeper(change: impl FnOnce(&mut Config)) -> Doorkeeper {
    let mut config = Config::default();
    change(&mut config);
    Doorkeeper::new(&config)
}

fn status(doorkeeper: &Doorkeeper, target: &str, headers: &HeaderMap) -> u16 {
    match doorkeeper.check(&target.parse().unwrap(), headers) {
        Ok(_) => 200,
        Err(error) => error.into_response().status().as_u16(),
    }
}

#[test]
fn without_tokens_the_daemon_is_called_by_the_names_of_loopback() {
    let door = doorkeeper(|config| {
        config.api.allowed_hosts = vec!["host.docker.internal".to_owned()];
    });
    for (host, expected) in [
        (None, 200),
        (Some("127.0.0.1:8000"), 200),
        (Some("127.0.0.1"), 200),
        (Some("127.9.9.9:1"), 200),
        (Some("localhost:9000"), 200),
        (Some("LocalHost."), 200),
        (Some("[::1]:8000"), 200),
        (Some("[::ffff:127.0.0.1]"), 200),
        (Some("host.docker.internal:8000"), 200),
        (Some("evil.example:8000"), 421),
        (Some("evil.example"), 421),
        (Some("localhost.evil.example"), 421),
        (Some("127.0.0.1.evil.example"), 421),
        (Some("notlocalhost"), 421),
        (Some("192.0.2.1:8000"), 421),
        (Some("0.0.0.0:8000"), 421),
        (Some("127.0.0.1:x"), 421),
        (Some("127.0.0.1:99999"), 421),
        (Some("127.0.0.1:8000:9"), 421),
        (Some("user@127.0.0.1"), 421),
        (Some("[::1"), 421),
        (Some(""), 421),
    ] {
        assert_eq!(
            status(&door, "/", &headers(host, None)),
            expected,
            "{host:?}"
        );
    }
    // What the target says counts as well.
    let host = headers(Some("127.0.0.1"), None);
    assert_eq!(status(&door, "http://evil.example/runs", &host), 421);
    assert_eq!(status(&door, "http://localhost/runs", &host), 200);
    let mut twice = headers(Some("127.0.0.1"), None);
    twice.append(HOST, HeaderValue::from_static("127.0.0.1"));
    assert_eq!(status(&door, "/", &twice), 421);
}

#[test]
fn without_tokens_pages_of_other_origins_are_kept_out() {
    let door = doorkeeper(|config| {
        config.api.cors_origins = vec!["https://good.example".to_owned()];
    });
    for (origin, expected) in [
        (None, 200),
        (Some("http://127.0.0.1:8000"), 200),
        (Some("https://good.example"), 200),
        (Some("http://127.0.0.1:3000"), 403),
        (Some("http://127.0.0.1"), 403),
        (Some("http://localhost:8000"), 403),
        (Some("https://good.example.evil"), 403),
        (Some("https://evil.example"), 403),
        (Some("null"), 403),
        (Some("file://"), 403),
        (Some("chrome-extension://abc"), 403),
    ] {
        let headers = headers(Some("127.0.0.1:8000"), origin);
        assert_eq!(status(&door, "/", &headers), expected, "{origin:?}");
    }
    for (host, origin, expected) in [
        ("localhost", "http://localhost", 200),
        ("localhost:80", "http://localhost", 200),
        ("localhost", "https://localhost:443", 200),
        ("localhost", "https://localhost:80", 403),
        ("[::1]:8000", "http://[::1]:8000", 200),
    ] {
        let headers = headers(Some(host), Some(origin));
        assert_eq!(status(&door, "/", &headers), expected, "{host} {origin}");
    }
}

#[test]
fn without_tokens_other_pages_do_not_even_get_to_read_blindly() {
    for (site, mode, with_tokens, expected) in [
        ("cross-site", "no-cors", false, 403),
        ("same-site", "no-cors", false, 403),
        ("cross-site", "", false, 403),
        ("cross-site", "navigate", false, 200),
        ("same-origin", "cors", false, 200),
        ("none", "navigate", false, 200),
        ("cross-site", "no-cors", true, 200),
    ] {
        let door = doorkeeper(|config| {
            config.auth.tokens_file = with_tokens.then(|| "tokens".into());
        });
        let mut headers = headers(Some("127.0.0.1:8000"), None);
        headers.insert("sec-fetch-site", HeaderValue::from_static(site));
        headers.insert("sec-fetch-mode", HeaderValue::from_static(mode));
        assert_eq!(status(&door, "/runs", &headers), expected, "{site} {mode}");
    }
}

#[test]
fn with_tokens_neither_name_nor_page_matters_and_listed_pages_may_read() {
    let door = doorkeeper(|config| {
        config.auth.tokens_file = Some("tokens".into());
        config.api.cors_origins = vec!["https://good.example".to_owned()];
    });
    let uri: Uri = "/".parse().unwrap();
    let asked = headers(Some("runs.example"), Some("https://evil.example"));
    assert_eq!(door.check(&uri, &asked).ok().flatten(), None);
    let asked = headers(Some("runs.example"), Some("https://good.example"));
    let listed = door.check(&uri, &asked).ok().flatten();
    assert_eq!(listed.unwrap(), "https://good.example");
}
