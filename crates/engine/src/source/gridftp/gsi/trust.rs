//! Certificate authorities as grids install them: `HASH.0` certificates, `HASH.signing_policy`, `HASH.r0` revocation lists.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::proto::gridftp::{MAX_POLICY, SigningPolicy, Verdict};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, TrustAnchor};
use webpki::{CertRevocationList, OwnedCertRevocationList};
use x509_parser::prelude::*;

use super::distinguished_name::one_line;
use super::error::GsiError;

/// The authorities that are trusted, and what each may certify.
#[derive(Debug, Clone)]
pub(crate) struct Trust(Arc<Authorities>);

#[derive(Debug)]
struct Authorities {
    directory: PathBuf,
    anchors: Vec<TrustAnchor<'static>>,
    /// The name on one line and the file's stem, by the subject in DER as an anchor holds it.
    names: BTreeMap<Vec<u8>, Authority>,
    policies: BTreeMap<String, Result<SigningPolicy, String>>,
    revoked: Vec<CertRevocationList<'static>>,
    /// Why the list of an authority, by its file's stem, cannot be used.
    unread_lists: BTreeMap<String, String>,
}

/// One trusted authority.
#[derive(Debug, Clone)]
pub(super) struct Authority {
    /// The name on one line.
    pub(super) name: String,
    /// The hash that its files are named by.
    stem: String,
}

/// Whether an authority may certify a subject.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Permission {
    Granted,
    /// The file's path.
    Violated(PathBuf),
    /// The file's path, and what is wrong with it.
    NoPolicy(PathBuf, String),
}

impl Trust {
    /// Reads the first directory that exists: X509_CERT_DIR, `~/.globus/certificates`, `/etc/grid-security/certificates`.
    ///
    /// # Errors
    /// [`GsiError`] where there is none, or it has no authority.
    pub(crate) fn from_env() -> Result<Self, GsiError> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(directory) = variable("X509_CERT_DIR") {
            return Self::load(&directory);
        }
        let mut places = Vec::new();
        places.extend(variable("HOME").map(|home| home.join(".globus/certificates")));
        places.push("/etc/grid-security/certificates".into());
        match places.iter().find(|place| place.is_dir()) {
            Some(directory) => Self::load(directory),
            None => {
                let looked: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
                Err(GsiError::NoTrust { looked: format!("X509_CERT_DIR, {}", looked.join(", ")) })
            }
        }
    }

    /// Reads a directory. Certificates that cannot be read are skipped: their authorities are unknown.
    ///
    /// # Errors
    /// [`GsiError::Trust`] where the directory cannot be read, or has no authority.
    pub(crate) fn load(directory: &Path) -> Result<Self, GsiError> {
        let fail = |why: String| GsiError::Trust { path: directory.to_owned(), why };
        let mut found = Authorities {
            directory: directory.to_owned(),
            anchors: Vec::new(),
            names: BTreeMap::new(),
            policies: BTreeMap::new(),
            revoked: Vec::new(),
            unread_lists: BTreeMap::new(),
        };
        for entry in std::fs::read_dir(directory).map_err(|error| fail(error.to_string()))? {
            let entry = entry.map_err(|error| fail(error.to_string()))?;
            let name = entry.file_name();
            let Some((stem, kind)) = name.to_str().and_then(|name| name.rsplit_once('.')) else { continue };
            found.add(&entry.path(), stem, kind);
        }
        if found.anchors.is_empty() {
            return Err(fail("it has no certificate named HASH.0".to_owned()));
        }
        Ok(Self(Arc::new(found)))
    }

    /// Returns the directory.
    pub(super) fn directory(&self) -> &Path {
        &self.0.directory
    }

    /// Returns the certificates that chains end at.
    pub(super) fn anchors(&self) -> &[TrustAnchor<'static>] {
        &self.0.anchors
    }

    /// Returns the revocation lists.
    pub(super) fn revoked(&self) -> Vec<&CertRevocationList<'static>> {
        self.0.revoked.iter().collect()
    }

    /// Returns the authority of an anchor.
    pub(super) fn authority_of(&self, anchor: &TrustAnchor<'_>) -> Option<&Authority> {
        self.0.names.get(anchor.subject.as_ref())
    }

    /// Returns whether `authority` may certify `subject`, both on one line; `anchor` is its entry where it is an anchor.
    ///
    /// An intermediate authority has no file of its own name where only its root is installed: any policy that names it
    /// counts.
    pub(super) fn permits(&self, authority: &str, anchor: Option<&Authority>, subject: &str) -> Permission {
        let Some(anchor) = anchor else {
            let policies =
                self.0.policies.iter().filter_map(|(stem, policy)| Some((stem, policy.as_ref().ok()?)));
            let mut verdicts = policies.map(|(stem, policy)| (stem, policy.judge(authority, subject)));
            return match verdicts.find(|(_, verdict)| *verdict != Verdict::NotNamed) {
                Some((_, Verdict::Permitted)) => Permission::Granted,
                Some((stem, _)) => Permission::Violated(self.policy_file(stem)),
                None => Permission::NoPolicy(
                    self.0.directory.join("HASH.signing_policy"),
                    "no file names this intermediate authority".to_owned(),
                ),
            };
        };
        let file = self.policy_file(&anchor.stem);
        match self.0.policies.get(&anchor.stem) {
            None => Permission::NoPolicy(file, "the file does not exist".to_owned()),
            Some(Err(why)) => Permission::NoPolicy(file, why.clone()),
            Some(Ok(policy)) => match policy.judge(authority, subject) {
                Verdict::Permitted => Permission::Granted,
                Verdict::Denied => Permission::Violated(file),
                Verdict::NotNamed => Permission::NoPolicy(file, "it does not name the authority".to_owned()),
            },
        }
    }

    /// Warns where the revocation list of an authority whose certificate has been accepted could not be read.
    pub(super) fn warn_of_unread_list(&self, authority: &Authority) {
        if let Some(why) = self.0.unread_lists.get(&authority.stem) {
            tracing::warn!("revoked certificates of {} are not recognised: {why}", authority.name);
        }
    }

    fn policy_file(&self, stem: &str) -> PathBuf {
        self.0.directory.join(format!("{stem}.signing_policy"))
    }
}

impl Authorities {
    fn add(&mut self, path: &Path, stem: &str, kind: &str) {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if kind == "signing_policy" {
            self.policies.insert(stem.to_owned(), read_policy(path));
        } else if is_number(kind) {
            if let Err(why) = self.add_anchors(path, stem) {
                tracing::debug!("the certificate authority in {} is not used: {why}", path.display());
            }
        } else if kind.strip_prefix('r').is_some_and(is_number)
            && let Err(why) = self.add_revoked(path)
        {
            self.unread_lists.insert(stem.to_owned(), format!("{}: {why}", path.display()));
        }
    }

    fn add_anchors(&mut self, path: &Path, stem: &str) -> Result<(), String> {
        let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
        for certificate in CertificateDer::pem_slice_iter(&bytes) {
            let certificate = certificate.map_err(|error| error.to_string())?;
            let anchor = webpki::anchor_from_trusted_cert(&certificate).map_err(|error| error.to_string())?;
            let (_, parsed) = X509Certificate::from_der(&certificate).map_err(|error| error.to_string())?;
            let authority = Authority { name: one_line(parsed.subject()), stem: stem.to_owned() };
            self.names.insert(anchor.subject.as_ref().to_vec(), authority);
            self.anchors.push(anchor.to_owned());
        }
        Ok(())
    }

    fn add_revoked(&mut self, path: &Path) -> Result<(), String> {
        let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
        let list = match CertificateRevocationListDer::pem_slice_iter(&bytes).next() {
            Some(list) => list.map_err(|error| error.to_string())?,
            None => CertificateRevocationListDer::from(bytes),
        };
        let list = OwnedCertRevocationList::from_der(&list).map_err(|error| error.to_string())?;
        self.revoked.push(list.into());
        Ok(())
    }
}

fn read_policy(path: &Path) -> Result<SigningPolicy, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    if bytes.len() > MAX_POLICY {
        return Err(format!("it is longer than {MAX_POLICY} bytes"));
    }
    // Policies are ASCII; old ones have comments in Latin-1.
    SigningPolicy::parse(&String::from_utf8_lossy(&bytes)).map_err(|error| error.to_string())
}
