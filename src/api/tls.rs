//! TLS: the certificates and the key, read once, and the handshake with each client.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;
use zeroize::Zeroizing;

use crate::config::Api;

/// Certificates and keys are not larger.
const MAX_BYTES: u64 = 1 << 20;

/// How long a client may take to agree on a key.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// Why the interface cannot speak TLS. Each names the file and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{key}: {path} cannot be read: make it readable for the daemon's user")]
    Unreadable {
        /// The setting that names it.
        key: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is nothing of the kind in it.
    #[error("{key}: there is nothing that can be used in {path}: it has to be PEM")]
    Empty {
        /// The setting that names it.
        key: &'static str,
        /// Which.
        path: PathBuf,
    },
    /// The key is not the certificate's, or neither can be used.
    #[error("api.tls_cert and api.tls_key cannot be used together")]
    Unusable(#[source] rustls::Error),
}

/// What a server needs to speak TLS.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads what the configuration names; `None` if it names nothing. Blocks.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if the files cannot be used.
    pub fn of(api: &Api) -> Result<Option<Self>, TlsError> {
        let (Some(certificates), Some(key)) = (&api.tls_cert, &api.tls_key) else {
            return Ok(None);
        };
        Self::read(certificates, key).map(Some)
    }

    fn read(certificates: &Path, key: &Path) -> Result<Self, TlsError> {
        const CERT: &str = "api.tls_cert";
        const KEY: &str = "api.tls_key";
        let empty = |key, path: &Path| TlsError::Empty {
            key,
            path: path.to_owned(),
        };
        let text = contents(CERT, certificates)?;
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&text)
            .collect::<Result<_, _>>()
            .map_err(|_| empty(CERT, certificates))?;
        if chain.is_empty() {
            return Err(empty(CERT, certificates));
        }
        let text = contents(KEY, key)?;
        // The parser's words could show what is in the file.
        let secret = PrivateKeyDer::from_pem_slice(&text).map_err(|_| empty(KEY, key))?;
        let provider = Arc::new(ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Unusable)?
            .with_no_client_auth()
            .with_single_cert(chain, secret)
            .map_err(TlsError::Unusable)?;
        // The server speaks nothing else.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// Agrees with a client on a key, within a bound.
    pub(super) async fn handshake<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        match timeout(HANDSHAKE_LIMIT, self.0.accept(stream)).await {
            Ok(agreed) => agreed,
            Err(_elapsed) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

fn contents(key: &'static str, path: &Path) -> Result<Zeroizing<Vec<u8>>, TlsError> {
    let unreadable = |source| TlsError::Unreadable {
        key,
        path: path.to_owned(),
        source,
    };
    // Of its full size from the beginning: growing would leave copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(1 << 20));
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_BYTES)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(directory: &Path, name: &str, text: &str) -> PathBuf {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn a_certificate_and_its_key_are_needed() {
        let directory = tempfile::tempdir().unwrap();
        let made = || rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (one, other) = (made(), made());
        let cert = written(directory.path(), "cert", &one.cert.pem());
        let key = written(directory.path(), "key", &one.signing_key.serialize_pem());
        let foreign = written(
            directory.path(),
            "other",
            &other.signing_key.serialize_pem(),
        );
        let nothing = written(directory.path(), "nothing", "SECRET");
        assert!(Tls::read(&cert, &key).is_ok());
        let error = |cert: &Path, key: &Path| Tls::read(cert, key).unwrap_err();
        assert!(matches!(error(&cert, &foreign), TlsError::Unusable(_)));
        for (cert, key, named) in [
            (&nothing, &key, "api.tls_cert"),
            (&cert, &nothing, "api.tls_key"),
            (&cert, &cert, "api.tls_key"),
            (&directory.path().join("missing"), &key, "api.tls_cert"),
        ] {
            let text = error(cert, key).to_string();
            assert!(text.contains(named) && !text.contains("SECRET"), "{text}");
        }
        assert!(Tls::of(&Api::default()).unwrap().is_none());
    }
}
