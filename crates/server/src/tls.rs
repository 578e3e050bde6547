//! The certificate and key for HTTPS: read at the start, and again when their files change.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use longhaul_core::units::Bytes;
use longhaul_engine::input_file::read_again;
use longhaul_engine::pem::{read_certificates, read_private_key};
use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::file_state::{CHECK_INTERVAL, FileState};
use crate::{ServeError, TlsFiles};

/// No chain of certificates is longer.
const LONGEST_PEM: Bytes = Bytes::mib(16);

/// Makes a TLS acceptor of a certificate and its key, and what reads them again; checks that they match.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<(TlsAcceptor, Arc<RenewedCertificate>), ServeError> {
    let certificate = Arc::new(RenewedCertificate::read(files)?);
    let pair = |source| ServeError::TlsPair { cert: files.cert.clone(), key: files.key.clone(), source };
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(pair)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => builder.with_client_cert_verifier(client_verifier(path)?),
    };
    let mut config = builder.with_cert_resolver(Arc::clone(&certificate) as Arc<dyn ResolvesServerCert>);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((TlsAcceptor::from(Arc::new(config)), certificate))
}

/// Makes what accepts only clients with a certificate of one of the file's authorities.
fn client_verifier(path: &Path) -> Result<Arc<dyn ClientCertVerifier>, ServeError> {
    let bad = |reason: String| ServeError::TlsFile {
        what: "certificate of a client authority",
        path: path.to_owned(),
        reason,
    };
    let authorities = read_pem(path).and_then(|text| read_certificates(&text));
    let mut roots = RootCertStore::empty();
    for authority in authorities.map_err(bad)? {
        roots.add(authority).map_err(|error| bad(error.to_string()))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(ring::default_provider()))
        .build()
        .map_err(|error| bad(error.to_string()))
}

/// The certificate in use; connections keep the one that they began with.
pub(crate) struct RenewedCertificate {
    files: TlsFiles,
    current: RwLock<Arc<CertifiedKey>>,
    /// The state of the files when they were last read, whether they were usable or not.
    seen: RwLock<[FileState; 2]>,
}

impl RenewedCertificate {
    fn read(files: &TlsFiles) -> Result<Self, ServeError> {
        let seen = RwLock::new(state(files));
        let current = read_pair(files)?;
        if is_expired(&current) {
            tracing::warn!(path = %files.cert.display(), "the certificate has expired or is not valid yet; clients will refuse it");
        }
        Ok(Self { files: files.clone(), current: RwLock::new(Arc::new(current)), seen })
    }

    /// Reads the files again each time they have changed, until the task is aborted.
    pub(crate) async fn follow(self: Arc<Self>) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let certificate = Arc::clone(&self);
            let _ = tokio::task::spawn_blocking(move || certificate.renew()).await;
        }
    }

    /// Reads the files where they have changed; what cannot be used leaves the certificate in force.
    fn renew(&self) {
        let now = state(&self.files);
        if *self.seen.read().unwrap_or_else(PoisonError::into_inner) == now {
            return;
        }
        *self.seen.write().unwrap_or_else(PoisonError::into_inner) = now;
        let path = self.files.cert.display();
        match read_pair(&self.files) {
            Ok(fresh) if is_expired(&fresh) => {
                tracing::warn!(%path, "the new certificate has expired or is not valid yet; the old one stays in use");
            }
            Ok(fresh) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh);
                tracing::info!(%path, "the renewed certificate is in use");
            }
            Err(error) => tracing::warn!(%error, "the old certificate stays in use"),
        }
    }
}

impl ResolvesServerCert for RenewedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl fmt::Debug for RenewedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RenewedCertificate").field("files", &self.files).finish_non_exhaustive()
    }
}

fn state(files: &TlsFiles) -> [FileState; 2] {
    [&files.cert, &files.key].map(|path| FileState::of(path))
}

/// Reads a file in PEM, which is read again when it changes, and so is no pipe.
fn read_pem(path: &Path) -> Result<Vec<u8>, String> {
    read_again(path, LONGEST_PEM).map_err(|error| error.to_string())
}

/// Reads a certificate and its key; checks that they match.
fn read_pair(files: &TlsFiles) -> Result<CertifiedKey, ServeError> {
    let bad = |what, path: &Path, reason| ServeError::TlsFile { what, path: path.to_owned(), reason };
    let certs = read_pem(&files.cert).and_then(|text| read_certificates(&text));
    let certs = certs.map_err(|reason| bad("certificate", &files.cert, reason))?;
    let key = read_pem(&files.key).and_then(|text| read_private_key(&text));
    let key = key.map_err(|reason| bad("private key", &files.key, reason))?;
    CertifiedKey::from_der(certs, key, &ring::default_provider()).map_err(|source| ServeError::TlsPair {
        cert: files.cert.clone(),
        key: files.key.clone(),
        source,
    })
}

fn is_expired(key: &CertifiedKey) -> bool {
    let parsed = key.cert.first().and_then(|certificate| X509Certificate::from_der(certificate).ok());
    parsed.is_some_and(|(_, certificate)| !certificate.validity().is_valid())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{CertificateParams, KeyPair};
    use rustls::pki_types::CertificateDer;

    use super::*;

    fn files(dir: &tempfile::TempDir) -> TlsFiles {
        TlsFiles { cert: dir.path().join("cert.pem"), key: dir.path().join("key.pem"), client_ca: None }
    }

    fn write(files: &TlsFiles, until: i32) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        let made = params.self_signed(&key).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        fs::write(&files.cert, made.pem()).unwrap();
        made.der().clone()
    }

    #[test]
    fn encrypted_key_is_named_as_such() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(&dir);
        write(&files, 4096);
        for head in [
            "EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,F46A\n\n",
            "ENCRYPTED PRIVATE KEY-----\n",
        ] {
            let label = head.split('\n').next().unwrap();
            fs::write(&files.key, format!("-----BEGIN {head}MIHs\n-----END {label}\n")).unwrap();
            let error = RenewedCertificate::read(&files).err().unwrap().to_string();
            assert!(error.contains("key.pem") && error.contains("encrypted; decrypt it"), "{error}");
        }
    }

    #[test]
    fn renewed_certificate_is_used_and_a_broken_or_expired_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(&dir);
        let first = write(&files, 4096);
        let certificate = RenewedCertificate::read(&files).unwrap();
        let used = || {
            certificate.renew();
            certificate.current.read().unwrap().cert[0].clone()
        };
        assert_eq!(used(), first);
        let second = write(&files, 4096);
        assert_eq!(used(), second);
        write(&files, 2020);
        assert_eq!(used(), second, "expired");
        fs::write(&files.cert, "-----BEGIN CERTIFICATE-----\nbroken").unwrap();
        assert_eq!(used(), second, "broken");
        fs::remove_file(&files.cert).unwrap();
        assert_eq!(used(), second, "missing");
        let third = write(&files, 4096);
        fs::write(&files.key, KeyPair::generate().unwrap().serialize_pem()).unwrap();
        assert_eq!(used(), second, "of another key than {third:?}");
        let fourth = write(&files, 4096);
        assert_eq!(used(), fourth);
    }
}
