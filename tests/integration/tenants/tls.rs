//! TLS, with a certificate made here.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::*;

/// A client that trusts these certificates, and speaks these protocols.
fn connector(roots: RootCertStore, protocols: &[&str]) -> TlsConnector {
    let provider = Arc::new(ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    TlsConnector::from(Arc::new(config))
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_certificate_the_daemon_speaks_tls_and_nothing_else() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let daemon = Daemon::start_with(Settings {
        toml: "[api]\ntls_cert = 'cert.pem'\ntls_key = 'key.pem'".to_owned(),
        files: vec![
            ("cert.pem", made.cert.pem()),
            ("key.pem", made.signing_key.serialize_pem()),
        ],
        ..Settings::default()
    })
    .await;
    let address = daemon
        .address()
        .strip_prefix("https://")
        .unwrap()
        .to_owned();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let name = ServerName::try_from("localhost").unwrap();

    let stream = TcpStream::connect(&address).await.unwrap();
    let trusting = connector(roots.clone(), &["h2", "http/1.1"]);
    let mut stream = trusting.connect(name.clone(), stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let request = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _unclean = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains(r#""status":"ok""#), "{answer}");

    // Who does not know the certificate, or does not speak TLS, gets nothing.
    let stream = TcpStream::connect(&address).await.unwrap();
    let distrusting = connector(RootCertStore::empty(), &[]);
    assert!(distrusting.connect(name, stream).await.is_err());
    let mut plain = TcpStream::connect(&address).await.unwrap();
    plain.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _reset = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP/"), "{answer:?}");

    // Who begins and never goes on is not waited for.
    let mut silent = TcpStream::connect(&address).await.unwrap();
    let mut answer = Vec::new();
    let read = silent.read_to_end(&mut answer);
    let ended = timeout(Duration::from_secs(30), read).await;
    assert!(ended.is_ok(), "the handshake has no bound");
}
