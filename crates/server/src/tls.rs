//! Reads the certificate and key for HTTPS.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::{ServeError, TlsFiles};

/// Makes a TLS acceptor of a certificate and its key; checks that they match.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, ServeError> {
    let bad = |what, path: &Path, error: pem::Error| ServeError::TlsFile {
        what,
        path: path.to_owned(),
        reason: match error {
            pem::Error::NoItemsFound => "the file holds none in PEM".to_owned(),
            pem::Error::Io(error) => error.to_string(),
            other => other.to_string(),
        },
    };
    let certs: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&files.cert)
        .and_then(Iterator::collect)
        .map_err(|error| bad("certificate", &files.cert, error))?;
    if certs.is_empty() {
        return Err(bad("certificate", &files.cert, pem::Error::NoItemsFound));
    }
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| bad("private key", &files.key, error))?;
    let pair = |source| ServeError::TlsPair { cert: files.cert.clone(), key: files.key.clone(), source };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(pair)?
        .with_no_client_auth()
        .with_single_cert(certs, key)
        .map_err(pair)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
