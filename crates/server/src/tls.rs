//! What HTTPS needs: certificate, key, and the authorities of client certificates with their lists
//! of revoked ones; read at the start, and again when their files change.

use std::path::Path;
use std::sync::Arc;

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::units::Bytes;
use longhaul_engine::input_file::read_again;
use longhaul_engine::pem::{read_certificates, read_private_key};
use parking_lot::RwLock;
use rustls::crypto::ring;
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CertificateError, RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{ASN1Time, CertificateRevocationList, FromDer, X509Certificate};

use crate::TlsFiles;
use crate::paths::file_state::{CHECK_INTERVAL, FileState};

/// No chain of certificates, and no list of revoked ones, is longer.
const LONGEST_PEM: Bytes = Bytes::mib(16);

/// The certificate and the verifier of clients in use; connections keep those that they began with.
pub(crate) struct RenewedTls {
    files: TlsFiles,
    current: RwLock<TlsInUse>,
    /// The state of the files when they were last read, whether they were usable or not.
    seen: RwLock<SeenFiles>,
}

struct TlsInUse {
    pair: Arc<CertifiedKey>,
    clients: Arc<dyn ClientCertVerifier>,
    /// Made of both. A new one knows no sessions: one that is resumed would not show its
    /// certificate again.
    config: Arc<ServerConfig>,
}

#[derive(Clone, PartialEq, Eq)]
struct SeenFiles {
    pair: [Option<FileState>; 2],
    clients: Vec<Option<FileState>>,
}

impl SeenFiles {
    fn of(files: &TlsFiles) -> Self {
        let clients = files.client_ca.iter().chain(&files.client_crl);
        Self {
            pair: [&files.cert, &files.key].map(|path| FileState::at(path)),
            clients: clients.map(|path| FileState::at(path)).collect(),
        }
    }
}

impl RenewedTls {
    /// Reads the files; checks that certificate and key match.
    pub(crate) fn read(files: &TlsFiles) -> Result<Self, Failure> {
        let seen = RwLock::new(SeenFiles::of(files));
        let pair = read_pair(files)?;
        if is_expired(&pair) {
            tracing::warn!(path = %files.cert.display(), "the certificate has expired or is not valid yet; clients will refuse it");
        }
        let current = RwLock::new(in_use(files, Arc::new(pair), client_verifier(files)?)?);
        Ok(Self { files: files.clone(), current, seen })
    }

    /// Returns what accepts a new connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.current.read().config))
    }

    /// Reads the files again each time they have changed, until the task is aborted.
    pub(crate) async fn follow(self: Arc<Self>) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let tls = Arc::clone(&self);
            let _ = tokio::task::spawn_blocking(move || tls.renew()).await;
        }
    }

    /// Reads the files that have changed; what cannot be used leaves the old ones in force.
    fn renew(&self) {
        let now = SeenFiles::of(&self.files);
        let seen = std::mem::replace(&mut *self.seen.write(), now.clone());
        if seen.pair != now.pair {
            self.renew_pair();
        }
        if seen.clients != now.clients {
            match client_verifier(&self.files).and_then(|clients| self.replace(None, Some(clients))) {
                Ok(()) => tracing::info!(
                    "the changed authorities and revocations of client certificates are in use"
                ),
                Err(error) => tracing::warn!(%error, "the old authorities and revocations stay in use"),
            }
        }
    }

    fn renew_pair(&self) {
        let path = self.files.cert.display();
        match read_pair(&self.files) {
            Ok(fresh) if is_expired(&fresh) => {
                tracing::warn!(%path, "the new certificate has expired or is not valid yet; the old one stays in use");
            }
            fresh => match fresh.and_then(|fresh| self.replace(Some(Arc::new(fresh)), None)) {
                Ok(()) => tracing::info!(%path, "the renewed certificate is in use"),
                Err(error) => tracing::warn!(%error, "the old certificate stays in use"),
            },
        }
    }

    fn replace(
        &self,
        pair: Option<Arc<CertifiedKey>>,
        clients: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Result<(), Failure> {
        let mut current = self.current.write();
        let pair = pair.unwrap_or_else(|| Arc::clone(&current.pair));
        let clients = clients.unwrap_or_else(|| Arc::clone(&current.clients));
        *current = in_use(&self.files, pair, clients)?;
        Ok(())
    }
}

fn in_use(
    files: &TlsFiles,
    pair: Arc<CertifiedKey>,
    clients: Arc<dyn ClientCertVerifier>,
) -> Result<TlsInUse, Failure> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable_pair(files, &error))?
        .with_client_cert_verifier(Arc::clone(&clients))
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&pair))));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsInUse { pair, clients, config: Arc::new(config) })
}

/// Makes what accepts only clients with a certificate of the given authorities that is not revoked;
/// any client where there are none.
fn client_verifier(files: &TlsFiles) -> Result<Arc<dyn ClientCertVerifier>, Failure> {
    let Some(path) = &files.client_ca else { return Ok(WebPkiClientVerifier::no_client_auth()) };
    let bad = |reason: String| unusable("certificate of a client authority", path, &reason);
    let authorities = read_pem(path).and_then(|text| read_certificates(&text)).map_err(bad)?;
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).map_err(|error| bad(error.to_string()))?;
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    match &files.client_crl {
        None => verifier.build().map_err(|error| bad(error.to_string())),
        Some(path) => {
            let bad = |reason: String| unusable("list of revoked client certificates", path, &reason);
            let lists = read_pem(path).and_then(|text| read_revocations(&text)).map_err(bad)?;
            if lists.iter().any(|list| is_outdated(list)) {
                tracing::warn!(path = %path.display(), "a list of revoked certificates is past its next update: clients are refused until a new one is there");
            }
            let verifier = verifier.with_crls(lists).enforce_revocation_expiration();
            verifier.build().map_err(|error| bad(error.to_string()))
        }
    }
}

fn read_revocations(text: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let lists = CertificateRevocationListDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>();
    let lists = lists.map_err(|error| format!("its PEM is damaged: {error}"))?;
    if lists.is_empty() { Err("it holds no X509 CRL in PEM".to_owned()) } else { Ok(lists) }
}

fn is_outdated(list: &CertificateRevocationListDer<'_>) -> bool {
    let parsed = CertificateRevocationList::from_der(list).ok();
    parsed.and_then(|(_, list)| list.next_update()).is_some_and(|next| next < ASN1Time::now())
}

/// Returns whether a handshake failed for want of a list of revoked certificates: of this
/// authority, or of this day.
pub(crate) fn lacks_revocations(error: &std::io::Error) -> bool {
    use CertificateError::{ExpiredRevocationList, ExpiredRevocationListContext, UnknownRevocationStatus};
    let error = error.get_ref().and_then(|error| error.downcast_ref());
    matches!(
        error,
        Some(rustls::Error::InvalidCertificate(
            ExpiredRevocationList | ExpiredRevocationListContext { .. } | UnknownRevocationStatus
        ))
    )
}

/// Reads a file in PEM, which is read again when it changes, and so is no pipe.
fn read_pem(path: &Path) -> Result<Vec<u8>, String> {
    read_again(path, LONGEST_PEM).map_err(|error| error.to_string())
}

fn unusable(what: &str, path: &Path, reason: &str) -> Failure {
    let message = format!("cannot read a {what} from {}: {reason}", path.display());
    Failure::new(FailureKind::Config, message)
}

fn unusable_pair(files: &TlsFiles, error: &rustls::Error) -> Failure {
    let (cert, key) = (files.cert.display(), files.key.display());
    Failure::new(FailureKind::Config, format!("cannot serve HTTPS with {cert} and {key}: {error}"))
}

/// Reads a certificate and its key; checks that they match.
fn read_pair(files: &TlsFiles) -> Result<CertifiedKey, Failure> {
    let certs = read_pem(&files.cert).and_then(|text| read_certificates(&text));
    let certs = certs.map_err(|reason| unusable("certificate", &files.cert, &reason))?;
    let key = read_pem(&files.key).and_then(|text| read_private_key(&text));
    let key = key.map_err(|reason| unusable("private key", &files.key, &reason))?;
    CertifiedKey::from_der(certs, key, &ring::default_provider())
        .map_err(|error| unusable_pair(files, &error))
}

fn is_expired(key: &CertifiedKey) -> bool {
    let parsed = key.cert.first().and_then(|certificate| X509Certificate::from_der(certificate).ok());
    parsed.is_some_and(|(_, certificate)| !certificate.validity().is_valid())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer, KeyIdMethod,
        KeyPair, RevokedCertParams,
    };
    use rustls::pki_types::{CertificateDer, UnixTime};

    use super::*;

    fn files(dir: &tempfile::TempDir) -> TlsFiles {
        TlsFiles {
            cert: dir.path().join("cert.pem"),
            key: dir.path().join("key.pem"),
            client_ca: None,
            client_crl: None,
        }
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
    fn renewed_certificate_is_used_and_a_broken_or_expired_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(&dir);
        let first = write(&files, 4096);
        let certificate = RenewedTls::read(&files).unwrap();
        let used = || {
            certificate.renew();
            certificate.current.read().pair.cert[0].clone()
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

    #[test]
    fn revoked_client_is_refused_once_the_list_has_changed() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = files(&dir);
        write(&files, 4096);
        let [ca, crl] = ["ca.pem", "crl.pem"].map(|name| dir.path().join(name));
        (files.client_ca, files.client_crl) = (Some(ca.clone()), Some(crl.clone()));
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        fs::write(&ca, params.self_signed(&key).unwrap().pem()).unwrap();
        let issuer = Issuer::new(params, key);
        let certificates = [1u64, 2].map(|serial| {
            let mut params = CertificateParams::default();
            params.serial_number = Some(serial.into());
            params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().der().clone()
        });
        let list = |revoked: &[u64], until: i32| {
            let revoked_certs = revoked.iter().map(|&serial| RevokedCertParams {
                serial_number: serial.into(),
                revocation_time: rcgen::date_time_ymd(2019, 1, 1),
                reason_code: None,
                invalidity_date: None,
            });
            let list = CertificateRevocationListParams {
                this_update: rcgen::date_time_ymd(2019, 1, 1),
                next_update: rcgen::date_time_ymd(until, 1, 1),
                crl_number: 1u64.into(),
                issuing_distribution_point: None,
                revoked_certs: revoked_certs.collect(),
                key_identifier_method: KeyIdMethod::Sha256,
            };
            list.signed_by(&issuer).unwrap().pem().unwrap()
        };
        fs::write(&crl, list(&[], 4096)).unwrap();
        let tls = RenewedTls::read(&files).unwrap();
        let before = Arc::clone(&tls.current.read().config);
        for (what, text, accepted) in [
            ("one is revoked", list(&[2], 4096), [true, false]),
            ("the old list is in force", "broken".to_owned(), [true, false]),
            ("out of date", list(&[], 2020), [false, false]),
            ("none is revoked", list(&[], 4096), [true, true]),
        ] {
            fs::write(&crl, text).unwrap();
            tls.renew();
            let current = tls.current.read();
            let verify = |shown| current.clients.verify_client_cert(shown, &[], UnixTime::now());
            let outcomes = certificates.each_ref().map(verify);
            assert_eq!(outcomes.each_ref().map(Result::is_ok), accepted, "{what}");
            let lacks = |outcome: Result<_, rustls::Error>| {
                outcome.is_err_and(|error| lacks_revocations(&std::io::Error::other(error)))
            };
            assert_eq!(outcomes.map(lacks), [what == "out of date"; 2], "{what}");
            assert!(!Arc::ptr_eq(&before, &current.config), "a session of before cannot be resumed");
        }
        fs::copy(&files.cert, &ca).unwrap();
        tls.renew();
        let clients = Arc::clone(&tls.current.read().clients);
        assert!(
            clients.verify_client_cert(&certificates[0], &[], UnixTime::now()).is_err(),
            "another authority"
        );
    }
}
