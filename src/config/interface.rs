//! What is wrong with the settings of who may reach the interface, and how.

use super::sections::Config;

/// Adds what is wrong.
pub(super) fn mistakes(config: &Config, mistakes: &mut Vec<String>) {
    let api = &config.api;
    let has_tokens = config.auth.tokens_file.is_some();
    if !api.listen.ip().is_loopback() && !has_tokens {
        mistakes.push(format!(
            "api.listen: {} is not a loopback address, and there are no tokens to tell clients \
             apart: listen on 127.0.0.1 or set auth.tokens_file",
            api.listen
        ));
    }
    if let Some(address) = api.metrics_listen
        && !address.ip().is_loopback()
    {
        mistakes.push(format!(
            "api.metrics_listen: {address} is not a loopback address, and whoever reaches it needs no \
             token: listen on 127.0.0.1, or read /metrics of api.listen with an admin token"
        ));
    }
    if api.tls_cert.is_some() != api.tls_key.is_some() {
        mistakes.push("api.tls_cert and api.tls_key: give both or neither".to_owned());
    }
    for origin in api.cors_origins.iter().filter(|text| !is_origin(text)) {
        mistakes.push(format!(
            "api.cors_origins: {origin:?} is no origin: write scheme, host and port as a browser \
             sends them, such as \"https://example.org\""
        ));
    }
    for host in api.allowed_hosts.iter().filter(|text| !is_host(text)) {
        mistakes.push(format!(
            "api.allowed_hosts: {host:?} is no name of a host: write it in lower case and without \
             scheme and port"
        ));
    }
}

fn is_host(text: &str) -> bool {
    let is_plain = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b'_')
    };
    (1..=253).contains(&text.len()) && text.bytes().all(is_plain)
}

fn is_origin(text: &str) -> bool {
    let Some((scheme, authority)) = text.split_once("://") else {
        return false;
    };
    let is_plain = |byte: u8| {
        byte.is_ascii_lowercase()
            || byte.is_ascii_digit()
            || matches!(byte, b'-' | b'.' | b'_' | b':' | b'[' | b']')
    };
    ["http", "https"].contains(&scheme)
        && (1..=260).contains(&authority.len())
        && authority.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(change: impl FnOnce(&mut Config)) -> String {
        let mut config = Config::default();
        change(&mut config);
        let mut found = Vec::new();
        mistakes(&config, &mut found);
        found.join("\n")
    }

    #[test]
    fn the_open_world_needs_tokens() {
        let open: std::net::SocketAddr = ([0, 0, 0, 0], 8000).into();
        assert!(wrong(|config| config.api.listen = open).contains("api.listen"));
        let with_tokens = wrong(|config| {
            config.api.listen = open;
            config.auth.tokens_file = Some("tokens".into());
        });
        assert_eq!(with_tokens, "");
    }

    #[test]
    fn metrics_without_a_token_are_for_this_host_only() {
        let listening =
            |ip: [u8; 4]| wrong(|config| config.api.metrics_listen = Some((ip, 9100).into()));
        assert!(listening([0, 0, 0, 0]).contains("api.metrics_listen"));
        assert_eq!(listening([127, 0, 0, 1]), "");
    }

    #[test]
    fn each_mistake_names_its_key() {
        assert!(wrong(|c| c.api.tls_key = Some("k".into())).contains("api.tls_cert"));
        for origin in [
            "*",
            "null",
            "example.org",
            "https://a/b",
            "ftp://a",
            "https://",
        ] {
            let text = wrong(|c| c.api.cors_origins = vec![origin.to_owned()]);
            assert!(text.contains("api.cors_origins"), "{origin}");
        }
        for host in ["", "A", "a:1", "http://a", "a/b"] {
            let text = wrong(|c| c.api.allowed_hosts = vec![host.to_owned()]);
            assert!(text.contains("api.allowed_hosts"), "{host}");
        }
        let sound = wrong(|config| {
            config.api.cors_origins = vec!["https://a.org:8443".to_owned()];
            config.api.allowed_hosts = vec!["host.docker.internal".to_owned()];
        });
        assert_eq!(sound, "");
    }
}
