//! Certificate authorities in the directory format of grids: `HASH.0` certificates,
//! `HASH.signing_policy`, `HASH.r0` revocation lists.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::proto::gridftp::{MAX_POLICY, PolicyDecision, SigningPolicy};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, TrustAnchor};
use webpki::{CertRevocationList, OwnedCertRevocationList};
use x509_parser::prelude::*;

use super::distinguished_name::one_line;

/// The trusted authorities, and the names that each may certify.
#[derive(Debug)]
pub(crate) struct Trust {
    pub(super) directory: PathBuf,
    pub(super) anchors: Vec<TrustAnchor<'static>>,
    /// Authorities, keyed by the subject in DER as in an anchor.
    authorities: BTreeMap<Vec<u8>, Authority>,
    /// Certificates that are not used because they are expired or not yet valid.
    outdated: Vec<OutdatedAuthority>,
    policies: BTreeMap<String, Result<SigningPolicy, String>>,
    pub(super) revoked: Vec<CertRevocationList<'static>>,
    /// The error of each unusable revocation list, keyed by the file's stem.
    unread_lists: BTreeMap<String, String>,
}

/// One trusted authority.
#[derive(Debug, Clone)]
pub(super) struct Authority {
    /// The name on one line.
    pub(super) name: String,
    /// The hashes in the names of the authority's files: directories contain files for old and new
    /// OpenSSL.
    stems: BTreeSet<String>,
}

/// An authority's certificate that is expired or not yet valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OutdatedAuthority {
    /// The name on one line.
    name: String,
    pub(super) file: PathBuf,
    /// `expired` or `not valid yet`, with the time.
    pub(super) state: String,
}

/// The permission of an authority to certify a subject.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Permission {
    Granted,
    /// Not permitted by the policy in this file.
    Violated(PathBuf),
    /// No usable policy: the file, and the reason.
    NoPolicy(PathBuf, String),
}

impl Trust {
    /// Reads the first existing directory of X509_CERT_DIR, `~/.globus/certificates`,
    /// `/etc/grid-security/certificates`.
    ///
    /// # Errors
    /// [`Failure`] if none exists, or it contains no authority valid at `now`.
    pub(crate) fn from_env(now: SystemTime) -> Result<Self, Failure> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(directory) = variable("X509_CERT_DIR") {
            return Self::load(&directory, now);
        }
        let mut places = Vec::new();
        places.extend(variable("HOME").map(|home| home.join(".globus/certificates")));
        places.push("/etc/grid-security/certificates".into());
        match places.iter().find(|place| place.is_dir()) {
            Some(directory) => Self::load(directory, now),
            None => {
                let looked: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
                let message = format!(
                    "no certificate authorities for gsiftp://: looked for X509_CERT_DIR, {}; install the CA certificates of your grid, \
                     or set X509_CERT_DIR",
                    looked.join(", ")
                );
                Err(Failure::new(FailureKind::Usage, message))
            }
        }
    }

    /// Reads a directory. Skips certificates that are unreadable or not valid at `now`; their
    /// authorities are unknown.
    ///
    /// # Errors
    /// [`Failure`] if the directory cannot be read, or contains no valid authority.
    pub(crate) fn load(directory: &Path, now: SystemTime) -> Result<Self, Failure> {
        let fail = |why: &dyn Display| {
            let message = format!(
                "cannot use the certificate authorities in {}: {why}; X509_CERT_DIR names another directory",
                directory.display()
            );
            Failure::new(FailureKind::Usage, message)
        };
        let mut found = Self {
            directory: directory.to_owned(),
            anchors: Vec::new(),
            authorities: BTreeMap::new(),
            outdated: Vec::new(),
            policies: BTreeMap::new(),
            revoked: Vec::new(),
            unread_lists: BTreeMap::new(),
        };
        for entry in std::fs::read_dir(directory).map_err(|error| fail(&error))? {
            let entry = entry.map_err(|error| fail(&error))?;
            let name = entry.file_name();
            let Some((stem, kind)) = name.to_str().and_then(|name| name.rsplit_once('.')) else { continue };
            found.add(&entry.path(), stem, kind, now);
        }
        if found.anchors.is_empty() {
            return Err(fail(&match found.outdated.first() {
                Some(one) => format!("the certificate in {} is {}", one.file.display(), one.state),
                None => "it has no certificate named HASH.0".to_owned(),
            }));
        }
        Ok(found)
    }

    /// Returns the authority of an anchor.
    pub(super) fn authority_of(&self, anchor: &TrustAnchor<'_>) -> Option<&Authority> {
        self.authorities.get(anchor.subject.as_ref())
    }

    /// Returns the outdated certificate of the authority `name`, if any.
    pub(super) fn outdated(&self, name: &str) -> Option<&OutdatedAuthority> {
        self.outdated.iter().find(|outdated| outdated.name == name)
    }

    /// Returns whether `authority` may certify `subject`, both on one line; `anchor` is its entry
    /// if it is an anchor.
    ///
    /// If the files of an authority have several hashes, the first policy that names the authority
    /// applies. An intermediate authority has no file of its own if only its root is installed:
    /// then any policy that names it applies.
    pub(super) fn permits(&self, authority: &str, anchor: Option<&Authority>, subject: &str) -> Permission {
        let Some(anchor) = anchor else {
            let policies =
                self.policies.iter().filter_map(|(stem, policy)| Some((stem, policy.as_ref().ok()?)));
            let mut decisions = policies.map(|(stem, policy)| (stem, policy.decide(authority, subject)));
            return match decisions.find(|(_, decision)| *decision != PolicyDecision::NotNamed) {
                Some((_, PolicyDecision::Permitted)) => Permission::Granted,
                Some((stem, _)) => Permission::Violated(self.policy_file(stem)),
                None => Permission::NoPolicy(
                    self.directory.join("HASH.signing_policy"),
                    "no file names this intermediate authority".to_owned(),
                ),
            };
        };
        let policies = anchor.stems.iter().filter_map(|stem| Some((stem, self.policies.get(stem)?)));
        let mut unusable = None;
        for (stem, policy) in policies {
            let file = self.policy_file(stem);
            match policy.as_ref().map(|policy| policy.decide(authority, subject)) {
                Ok(PolicyDecision::Permitted) => return Permission::Granted,
                Ok(PolicyDecision::Denied) => return Permission::Violated(file),
                Ok(PolicyDecision::NotNamed) => {
                    unusable.get_or_insert((file, "it does not name the authority".to_owned()));
                }
                Err(why) => {
                    unusable.get_or_insert((file, why.clone()));
                }
            }
        }
        let (file, why) = unusable.unwrap_or_else(|| {
            let stem = anchor.stems.first().map_or("HASH", String::as_str);
            (self.policy_file(stem), "the file does not exist".to_owned())
        });
        Permission::NoPolicy(file, why)
    }

    /// Warns if the revocation list of an accepted authority could not be read.
    pub(super) fn warn_of_unread_list(&self, authority: &Authority) {
        for why in authority.stems.iter().filter_map(|stem| self.unread_lists.get(stem)) {
            tracing::warn!("revoked certificates of {} are not recognised: {why}", authority.name);
        }
    }

    fn policy_file(&self, stem: &str) -> PathBuf {
        self.directory.join(format!("{stem}.signing_policy"))
    }

    fn add(&mut self, path: &Path, stem: &str, kind: &str, now: SystemTime) {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if kind == "signing_policy" {
            self.policies.insert(stem.to_owned(), read_policy(path));
        } else if is_number(kind) {
            if let Err(why) = self.add_anchors(path, stem, now) {
                tracing::debug!("the certificate authority in {} is not used: {why}", path.display());
            }
        } else if kind.strip_prefix('r').is_some_and(is_number)
            && let Err(why) = self.add_revoked(path)
        {
            self.unread_lists.insert(stem.to_owned(), format!("{}: {why}", path.display()));
        }
    }

    fn add_anchors(&mut self, path: &Path, stem: &str, now: SystemTime) -> Result<(), String> {
        let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
        for certificate in CertificateDer::pem_slice_iter(&bytes) {
            let certificate = certificate.map_err(|error| error.to_string())?;
            let anchor = webpki::anchor_from_trusted_cert(&certificate).map_err(|error| error.to_string())?;
            let (_, parsed) = X509Certificate::from_der(&certificate).map_err(|error| error.to_string())?;
            let name = one_line(parsed.subject());
            if let Some(state) = outside_validity(parsed.validity(), now) {
                tracing::warn!(
                    "the certificate authority {name} in {} is not used: it is {state}",
                    path.display()
                );
                self.outdated.push(OutdatedAuthority { name, file: path.to_owned(), state });
                continue;
            }
            let subject = anchor.subject.as_ref().to_vec();
            let new = || Authority { name, stems: BTreeSet::new() };
            self.authorities.entry(subject).or_insert_with(new).stems.insert(stem.to_owned());
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

/// Returns `expired` or `not valid yet`, with the time, for a certificate outside its validity.
fn outside_validity(validity: &Validity, now: SystemTime) -> Option<String> {
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let now = ASN1Time::from_timestamp(i64::try_from(seconds).ok()?).ok()?;
    if now > validity.not_after {
        return Some(format!("expired ({})", validity.not_after));
    }
    (now < validity.not_before).then(|| format!("not valid yet ({})", validity.not_before))
}

fn read_policy(path: &Path) -> Result<SigningPolicy, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    if bytes.len() > MAX_POLICY {
        return Err(format!("it is longer than {MAX_POLICY} bytes"));
    }
    // Policies are ASCII; old ones have comments in Latin-1.
    SigningPolicy::parse(&String::from_utf8_lossy(&bytes)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyPair};

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);
    const POLICY: &str =
        "access_id_CA X509 '/CN=Root'\npos_rights globus CA:sign\ncond_subjects globus '/CN=*.example'\n";

    /// Returns an authority's certificate in PEM.
    fn authority(name: &str, from: SystemTime, until: SystemTime) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (params.not_before, params.not_after) = (from.into(), until.into());
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn expired_authority_is_not_used() {
        let (dir, now) = (tempfile::tempdir().unwrap(), SystemTime::now());
        for (name, from, until, state) in
            [("Old", now - 2 * DAY, now - DAY, "expired"), ("New", now + DAY, now + 2 * DAY, "not valid yet")]
        {
            std::fs::write(dir.path().join("0a.0"), authority(name, from, until)).unwrap();
            let alone = Trust::load(dir.path(), now).unwrap_err().to_string();
            assert!(alone.contains("0a.0") && alone.contains(state), "{alone}");
            let beside = dir.path().join("0b.0");
            std::fs::write(&beside, authority("Sound", now - DAY, now + DAY)).unwrap();
            let trust = Trust::load(dir.path(), now).unwrap();
            assert_eq!(trust.anchors.len(), 1, "{name}");
            assert!(trust.outdated(&format!("/CN={name}")).unwrap().state.starts_with(state));
            assert!(trust.outdated("/CN=Sound").is_none());
            std::fs::remove_file(beside).unwrap();
        }
    }

    #[test]
    fn policy_applies_with_any_hash_of_an_authority() {
        let now = SystemTime::now();
        let root = authority("Root", now - DAY, now + DAY);
        // The result does not depend on the directory's order.
        for with_policy in ["0a", "0b", "0c"] {
            let dir = tempfile::tempdir().unwrap();
            for stem in ["0b", "0c", "0a"] {
                std::fs::write(dir.path().join(format!("{stem}.0")), &root).unwrap();
            }
            std::fs::write(dir.path().join(format!("{with_policy}.signing_policy")), POLICY).unwrap();
            let trust = Trust::load(dir.path(), now).unwrap();
            let anchor = trust.authority_of(&trust.anchors[0]);
            assert!(anchor.is_some());
            let permission = |subject: &str| trust.permits("/CN=Root", anchor, subject);
            assert_eq!(permission("/CN=a.example"), Permission::Granted, "{with_policy}");
            let file = dir.path().join(format!("{with_policy}.signing_policy"));
            assert_eq!(permission("/CN=a.other"), Permission::Violated(file));
        }
    }
}
