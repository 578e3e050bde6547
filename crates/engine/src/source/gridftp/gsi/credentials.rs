//! The user's credentials: a proxy certificate, or a user certificate and its key.

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_core::failure::{Failure, FailureKind};
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use x509_parser::prelude::*;

use super::distinguished_name::one_line;
use crate::input_file;
use crate::pem::{is_encrypted_key, read_certificates, read_private_key};

/// The maximum size of a file with certificates or a key: 1 MiB.
const MAX_CREDENTIAL_FILE: u64 = 1 << 20;

const RENEW_PROXY: &str = "make a new one with grid-proxy-init or voms-proxy-init";
const RENEW_CERTIFICATE: &str = "ask your certificate authority for a new one";

/// The places to search for credentials, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct CredentialPlaces {
    /// X509_USER_PROXY; if set, no other place is searched.
    proxy_variable: Option<PathBuf>,
    /// `/tmp/x509up_uUID`
    default_proxy: PathBuf,
    /// X509_USER_CERT and X509_USER_KEY.
    pair_variables: Option<(PathBuf, PathBuf)>,
    /// `~/.globus/usercert.pem` and `userkey.pem`
    default_pair: Option<(PathBuf, PathBuf)>,
}

impl CredentialPlaces {
    /// Returns the places named by the environment, and the default places.
    pub(crate) fn from_env() -> Self {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = variable("HOME").map(|home| home.join(".globus"));
        let certificate = variable("X509_USER_CERT");
        Self {
            proxy_variable: variable("X509_USER_PROXY"),
            default_proxy: format!("/tmp/x509up_u{}", rustix::process::getuid().as_raw()).into(),
            // A single file may contain both certificate and key.
            pair_variables: certificate
                .map(|certificate| (certificate.clone(), variable("X509_USER_KEY").unwrap_or(certificate))),
            default_pair: home.map(|home| (home.join("usercert.pem"), home.join("userkey.pem"))),
        }
    }
}

/// A certificate chain and its key, which were valid when read.
#[derive(Debug, Clone)]
pub(crate) struct GsiCredentials {
    /// The key with which rustls signs.
    pub(super) key: Arc<CertifiedKey>,
    /// The subject of the first certificate, on one line.
    pub(super) subject: String,
}

impl GsiCredentials {
    /// Reads the first existing credentials; `now` must lie within their validity.
    ///
    /// # Errors
    /// [`Failure`] if there are none, or a file is unusable, readable by others, or expired.
    pub(crate) fn find(places: &CredentialPlaces, now: SystemTime) -> Result<Self, Failure> {
        if let Some(proxy) = &places.proxy_variable {
            return Self::from_proxy(proxy, now);
        }
        if places.default_proxy.exists() {
            // Any user can write to /tmp: another user's file there must not decide the identity.
            let owner = open(&places.default_proxy)?.1.uid();
            if owner != rustix::process::getuid().as_raw() {
                let why = format!("it belongs to another user ({owner}): remove it, or set X509_USER_PROXY");
                return Err(unusable(&places.default_proxy, why));
            }
            return Self::from_proxy(&places.default_proxy, now);
        }
        if let Some((certificate, key)) = &places.pair_variables {
            return Self::from_pair(certificate, key, now);
        }
        if let Some((certificate, key)) = places.default_pair.as_ref().filter(|(path, _)| path.exists()) {
            return Self::from_pair(certificate, key, now);
        }
        let mut looked = vec!["X509_USER_PROXY".to_owned(), places.default_proxy.display().to_string()];
        looked.push("X509_USER_CERT".to_owned());
        looked.extend(places.default_pair.as_ref().map(|(path, _)| path.display().to_string()));
        let message = format!(
            "no credentials for gsiftp://: looked for {}; run grid-proxy-init or voms-proxy-init, or set X509_USER_PROXY",
            looked.join(", ")
        );
        Err(Failure::new(FailureKind::Denied, message))
    }

    fn from_proxy(path: &Path, now: SystemTime) -> Result<Self, Failure> {
        let text = read_secret(path)?;
        Self::from_pem((path, &text), (path, &text), now)
    }

    fn from_pair(certificate: &Path, key: &Path, now: SystemTime) -> Result<Self, Failure> {
        let certificates = read(open(certificate)?.0, certificate)?;
        let secret = read_secret(key)?;
        Self::from_pem((certificate, &certificates), (key, &secret), now)
    }

    fn from_pem(
        (path, certificates): (&Path, &[u8]),
        (key_path, secret): (&Path, &[u8]),
        now: SystemTime,
    ) -> Result<Self, Failure> {
        let chain = read_certificates(certificates).map_err(|why| unusable(path, why))?;
        // There is one at least.
        let first = &chain[0];
        let subject = subject_of(first).ok_or_else(|| unusable(path, "its certificate is damaged"))?;
        for certificate in &chain {
            check_validity(certificate, path, now)?;
        }
        if is_encrypted_key(secret) {
            let why = "its key is encrypted, and no passphrase is asked for: run grid-proxy-init, which makes a proxy without one";
            return Err(unusable(key_path, why));
        }
        let key = read_private_key(secret).map_err(|why| unusable(key_path, why))?;
        let key = ring::sign::any_supported_type(&key).map_err(|error| {
            unusable(key_path, format!("its key cannot be used: {error}; RSA keys have 2048 bits at least (grid-proxy-init -bits 2048)"))
        })?;
        // CertifiedKey::from_der would refuse proxies, whose critical extension is unknown to
        // rustls.
        let of_certificate =
            X509Certificate::from_der(first).ok().map(|(_, parsed)| parsed.public_key().raw.to_vec());
        if of_certificate.as_deref() != key.public_key().as_deref() {
            let why = format!("its key is not that of the certificate in {}", path.display());
            return Err(unusable(key_path, why));
        }
        let pair = CertifiedKey::new(chain, key);
        Ok(Self { key: Arc::new(pair), subject })
    }
}

/// Opens a file, and reads the metadata of the opened file.
fn open(path: &Path) -> Result<(File, std::fs::Metadata), Failure> {
    let file = input_file::open(path).map_err(|error| unusable(path, error))?;
    let metadata = file.metadata().map_err(|error| unusable(path, error))?;
    if !metadata.is_file() {
        return Err(unusable(path, "it is no regular file"));
    }
    if metadata.len() > MAX_CREDENTIAL_FILE {
        return Err(unusable(path, format!("it is longer than {MAX_CREDENTIAL_FILE} bytes")));
    }
    Ok((file, metadata))
}

fn read(file: File, path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    file.take(MAX_CREDENTIAL_FILE).read_to_end(&mut bytes).map_err(|error| unusable(path, error))?;
    Ok(bytes)
}

/// Reads a file with a key, which other users must not be able to read.
fn read_secret(path: &Path) -> Result<Vec<u8>, Failure> {
    let (file, metadata) = open(path)?;
    if metadata.mode() & 0o077 != 0 {
        let why = format!("other users can read its key: chmod 600 {}", path.display());
        return Err(unusable(path, why));
    }
    read(file, path)
}

fn subject_of(certificate: &CertificateDer<'_>) -> Option<String> {
    X509Certificate::from_der(certificate).ok().map(|(_, parsed)| one_line(parsed.subject()))
}

fn check_validity(certificate: &CertificateDer<'_>, path: &Path, now: SystemTime) -> Result<(), Failure> {
    let (_, parsed) = X509Certificate::from_der(certificate)
        .map_err(|_| unusable(path, "one of its certificates is damaged"))?;
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let validity = parsed.validity();
    if now < validity.not_before.timestamp() {
        return Err(unusable(path, "it is not valid yet: check this host's clock"));
    }
    if now <= validity.not_after.timestamp() {
        return Ok(());
    }
    let (what, remedy) = if is_proxy(&parsed) {
        ("proxy certificate", RENEW_PROXY)
    } else {
        ("certificate", RENEW_CERTIFICATE)
    };
    let ago = Duration::from_secs((now - validity.not_after.timestamp()).unsigned_abs());
    let message = format!("the {what} in {} expired {} ago: {remedy}", path.display(), shown_age(ago));
    Err(Failure::new(FailureKind::Denied, message))
}

/// Creates the error of a file that cannot be used; `why` names the reason and a remedy.
fn unusable(path: &Path, why: impl Display) -> Failure {
    Failure::new(FailureKind::Denied, format!("cannot use the credentials in {}: {why}", path.display()))
}

/// Formats an age in its largest unit.
fn shown_age(ago: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds")];
    let seconds = ago.as_secs();
    let (unit, name) = UNITS.iter().find(|(unit, _)| seconds >= 2 * unit).unwrap_or(&UNITS[3]);
    format!("{} {name}", seconds / unit)
}

/// Returns whether a certificate is a proxy: by the extension of RFC 3820, or for older ones by the
/// last common name.
fn is_proxy(certificate: &X509Certificate<'_>) -> bool {
    const PROXY_CERT_INFO: &str = "1.3.6.1.5.5.7.1.14";
    let extension = certificate.extensions().iter().any(|one| one.oid.to_id_string() == PROXY_CERT_INFO);
    let last = certificate.subject().iter_common_name().last().and_then(|name| name.as_str().ok());
    extension || matches!(last, Some("proxy" | "limited proxy"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    use rcgen::{CertificateParams, CustomExtension, DnType, KeyPair};

    const HOUR: Duration = Duration::from_secs(3600);

    struct CredentialFiles {
        dir: tempfile::TempDir,
    }

    impl CredentialFiles {
        /// Writes credentials that are valid for an hour.
        fn valid() -> Self {
            Self::until(SystemTime::now() + HOUR)
        }

        /// Writes a proxy in one file, and a certificate and key in two, all valid until `until`.
        fn until(until: SystemTime) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::default();
            params.not_after = until.into();
            params.distinguished_name.push(DnType::CommonName, "Ann User");
            let plain = params.self_signed(&key).unwrap().pem();
            params.custom_extensions = vec![CustomExtension::from_oid_content(
                &[1, 3, 6, 1, 5, 5, 7, 1, 14],
                // ProxyCertInfo with the policy language id-ppl-inheritAll.
                vec![0x30, 0x0c, 0x30, 0x0a, 6, 8, 0x2b, 6, 1, 5, 5, 7, 0x15, 1],
            )];
            let proxy = params.self_signed(&key).unwrap().pem();
            let made = Self { dir };
            made.write("proxy.pem", &format!("{proxy}{}{plain}", key.serialize_pem()), 0o600);
            made.write("cert.pem", &plain, 0o644);
            made.write("key.pem", &key.serialize_pem(), 0o400);
            made
        }

        fn write(&self, name: &str, text: &str, mode: u32) {
            let path = self.path(name);
            let _ = std::fs::remove_file(&path);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        fn places(&self) -> CredentialPlaces {
            CredentialPlaces { default_proxy: self.path("none"), ..CredentialPlaces::default() }
        }

        fn proxy(&self) -> CredentialPlaces {
            CredentialPlaces { proxy_variable: Some(self.path("proxy.pem")), ..self.places() }
        }

        fn pair(&self) -> CredentialPlaces {
            let pair = (self.path("cert.pem"), self.path("key.pem"));
            CredentialPlaces { pair_variables: Some(pair), ..self.places() }
        }
    }

    #[test]
    fn ages_are_shown_by_their_largest_unit() {
        let shown = [0, 119, 120, 7200, 864_000].map(|seconds| shown_age(Duration::from_secs(seconds)));
        assert_eq!(shown, ["0 seconds", "119 seconds", "2 minutes", "2 hours", "10 days"]);
    }

    #[test]
    fn proxy_and_pair_of_files_are_read() {
        let made = CredentialFiles::valid();
        let default =
            CredentialPlaces { default_proxy: made.path("proxy.pem"), ..CredentialPlaces::default() };
        for (places, certificates) in [(made.proxy(), 2), (made.pair(), 1), (default, 2)] {
            let found = GsiCredentials::find(&places, SystemTime::now()).unwrap();
            assert!(found.subject.ends_with("/CN=Ann User"), "{}", found.subject);
            assert_eq!(found.key.cert.len(), certificates);
        }
        let early = GsiCredentials::find(&made.pair(), UNIX_EPOCH).unwrap_err().to_string();
        assert!(early.contains("clock"), "{early}");
    }

    #[test]
    fn unusable_credentials_are_refused_with_a_reason_and_the_remedy() {
        let (expired, made) =
            (CredentialFiles::until(SystemTime::now() - 3 * HOUR), CredentialFiles::valid());
        made.write("proxy.pem", "hello", 0o600);
        let text = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n";
        made.write("key.pem", text, 0o600);
        let directory =
            CredentialPlaces { proxy_variable: Some(made.dir.path().to_owned()), ..made.places() };
        for (places, parts) in [
            (expired.proxy(), ["proxy certificate in", "proxy.pem expired 3 hours ago", "grid-proxy-init"]),
            (expired.pair(), ["cert.pem", "expired", "certificate authority"]),
            (made.proxy(), ["proxy.pem", "no certificate", ""]),
            (directory, ["no regular file", "", ""]),
            (made.pair(), ["key.pem", "encrypted", ""]),
        ] {
            let error = GsiCredentials::find(&places, SystemTime::now()).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{parts:?}: {error}");
        }
    }
}
