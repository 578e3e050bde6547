//! Verification of a GSI server's certificate: chain, validity, revocation, signing policies, host
//! name.

use std::cell::RefCell;
use std::fmt::Display;
use std::sync::Arc;

use longhaul_core::failure::{Failure, FailureKind};
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, OtherError};
use webpki::{
    EndEntityCert, ExpirationPolicy, KeyUsage, RevocationOptionsBuilder, UnknownStatusPolicy, VerifiedPath,
};
use x509_parser::prelude::*;

use super::distinguished_name::one_line;
use super::trust::{OutdatedAuthority, Permission, Trust};

/// Verifies the certificate of one host.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    pub(super) trust: Trust,
    pub(super) provider: Arc<CryptoProvider>,
    /// The host in the URL, for messages.
    pub(super) host: String,
    /// The time of verification.
    pub(super) now: UnixTime,
}

impl ServerVerifier {
    /// Verifies a certificate for `name`.
    fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
    ) -> Result<(), Failure> {
        let certificate = EndEntityCert::try_from(end_entity).map_err(|error| self.unacceptable(&error))?;
        let lists: Vec<_> = self.trust.revoked.iter().collect();
        // A list applies if its authority publishes one; an expired list cannot show which
        // certificates are revoked.
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|options| {
            options
                .with_status_policy(UnknownStatusPolicy::Allow)
                .with_expiration_policy(ExpirationPolicy::Enforce)
                .build()
        });
        let denied = RefCell::new(None);
        let check_policies = |path: &VerifiedPath<'_>| {
            self.check_policies(path).map_err(|error| {
                // Further paths may be tried; the error of the first, shortest one is the most
                // useful.
                denied.borrow_mut().get_or_insert(error);
                webpki::Error::UnknownIssuer
            })
        };
        let verified = certificate.verify_for_usage(
            self.provider.signature_verification_algorithms.all,
            &self.trust.anchors,
            intermediates,
            self.now,
            KeyUsage::server_auth(),
            revocation,
            Some(&check_policies),
        );
        match verified {
            Ok(path) => {
                if let Some(authority) = self.trust.authority_of(path.anchor()) {
                    self.trust.warn_of_unread_list(authority);
                }
            }
            Err(error) => {
                return Err(denied.take().unwrap_or_else(|| self.refusal(&error, end_entity)));
            }
        }
        if is_for(end_entity, name) {
            return Ok(());
        }
        let (subject, names) = shown_names(end_entity);
        Err(untrusted(format!(
            "the certificate of {} is for {subject}{names}: use a host name that it is for; the server may be an impostor",
            self.host
        )))
    }

    /// Checks that the policy of each authority on the path permits the certificate below it.
    fn check_policies(&self, path: &VerifiedPath<'_>) -> Result<(), Failure> {
        let unreadable = || self.unacceptable(&"a name in its chain cannot be read");
        let anchor = self.trust.authority_of(path.anchor()).ok_or_else(unreadable)?;
        let mut authority = (anchor.name.clone(), Some(anchor));
        // From the anchor down to the end entity.
        let mut below: Vec<_> =
            path.intermediate_certificates().map(|certificate| certificate.der()).collect();
        below.reverse();
        below.push(path.end_entity().der());
        for certificate in below {
            let (_, parsed) = X509Certificate::from_der(&certificate).map_err(|_| unreadable())?;
            let subject = one_line(parsed.subject());
            let (name, entry) = authority;
            // The anchor itself, which some servers include in the chain.
            if subject == name {
                authority = (name, entry);
                continue;
            }
            let host = &self.host;
            match self.trust.permits(&name, entry, &subject) {
                Permission::Granted => {}
                Permission::Violated(file) => {
                    return Err(untrusted(format!(
                        "the signing policy of {name} does not let it certify {subject}, the certificate of {host}: see {}; tell the \
                         authority or the server's operator",
                        file.display()
                    )));
                }
                Permission::NoPolicy(file, why) => {
                    return Err(untrusted(format!(
                        "no signing policy for {name}, which certified {host}: {why}; install it at {}",
                        file.display()
                    )));
                }
            }
            authority = (subject, None);
        }
        Ok(())
    }

    /// Creates the error of a certificate that is rejected for a reason without a remedy.
    fn unacceptable(&self, why: &dyn Display) -> Failure {
        untrusted(format!("the certificate of {} cannot be accepted: {why}", self.host))
    }

    /// Creates the error of a chain rejected by webpki.
    fn refusal(&self, error: &webpki::Error, certificate: &CertificateDer<'_>) -> Failure {
        let (host, directory) = (&self.host, self.trust.directory.display());
        let at = |time: &UnixTime| {
            ASN1Time::from_timestamp(time.as_secs() as i64)
                .map_or_else(|_| String::new(), |time| format!(" ({time})"))
        };
        let invalid = |state: String| {
            untrusted(format!(
                "the certificate of {host} is {state}: tell the server's operator, and check this host's clock"
            ))
        };
        match error {
            webpki::Error::CertExpired { not_after, .. } => invalid(format!("expired{}", at(not_after))),
            webpki::Error::CertNotValidYet { not_before, .. } => {
                invalid(format!("not valid yet{}", at(not_before)))
            }
            webpki::Error::CertRevoked => untrusted(format!(
                "the certificate of {host} is revoked by its authority: do not use this server"
            )),
            webpki::Error::CrlExpired { .. } => untrusted(format!(
                "a revocation list for the certificate of {host} has expired: renew the lists in {directory} with fetch-crl"
            )),
            webpki::Error::UnknownIssuer | webpki::Error::CaUsedAsEndEntity => {
                let issuer = X509Certificate::from_der(certificate)
                    .map_or_else(|_| "unknown".to_owned(), |(_, parsed)| one_line(parsed.issuer()));
                untrusted(match self.trust.outdated(&issuer) {
                    Some(OutdatedAuthority { state, file, .. }) => format!(
                        "{host} has a certificate of {issuer}, whose own certificate in {} is {state}: install its present certificate, \
                         and check this host's clock",
                        file.display()
                    ),
                    None => format!(
                        "{host} has a certificate of an unknown authority, {issuer}: if you trust it, add its certificate and signing \
                         policy to {directory}"
                    ),
                })
            }
            other => self.unacceptable(other),
        }
    }
}

fn untrusted(message: String) -> Failure {
    Failure::new(FailureKind::Protocol, message)
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verify(end_entity, intermediates, server_name).map_err(|error| {
            rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
        })?;
        Ok(ServerCertVerified::assertion())
    }

    verify_signatures!();
}

/// Returns whether a certificate is valid for `host`: by its alternative names, or, only if it has
/// none, by the common name `host/NAME` or `NAME` of old grid certificates.
fn is_for(certificate: &CertificateDer<'_>, host: &ServerName<'_>) -> bool {
    let Ok(end_entity) = EndEntityCert::try_from(certificate) else { return false };
    if end_entity.verify_is_valid_for_subject_name(host).is_ok() {
        return true;
    }
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return false };
    let ServerName::DnsName(name) = host else { return false };
    // Unreadable alternative names do not count as absent ones.
    let named = !matches!(parsed.subject_alternative_name(), Ok(None));
    !named && common_name(&parsed).is_some_and(|found| found.eq_ignore_ascii_case(name.as_ref()))
}

/// Returns the subject and the alternative names, for messages.
fn shown_names(certificate: &CertificateDer<'_>) -> (String, String) {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return ("a name that cannot be read".to_owned(), String::new());
    };
    let mut names = Vec::new();
    if let Ok(Some(alternatives)) = parsed.subject_alternative_name() {
        for name in &alternatives.value.general_names {
            match name {
                GeneralName::DNSName(name) => names.push(name.escape_default().to_string()),
                GeneralName::IPAddress(bytes) => names.extend(shown_address(bytes)),
                _ => {}
            }
        }
    }
    let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    (one_line(parsed.subject()), names)
}

/// Returns the last common name, without the service of `host/NAME`.
fn common_name<'a>(certificate: &'a X509Certificate<'_>) -> Option<&'a str> {
    let last = certificate.subject().iter_common_name().last()?.as_str().ok()?;
    Some(last.strip_prefix("host/").unwrap_or(last))
}

fn shown_address(bytes: &[u8]) -> Option<String> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(std::net::Ipv4Addr::from(four).to_string());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|sixteen| std::net::Ipv6Addr::from(sixteen).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::{Duration, SystemTime};

    use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
    use rustls::crypto::ring;

    const HOUR: Duration = Duration::from_secs(3600);

    fn params(name: &str, hosts: &[&str]) -> CertificateParams {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Grid");
        params.distinguished_name.push(DnType::CommonName, name);
        params
    }

    fn authority(name: &str) -> CertificateParams {
        let mut params = params(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    }

    /// A trusted root with its policies, an authority below it, and a host's certificate.
    struct Chain {
        dir: tempfile::TempDir,
        host: CertificateDer<'static>,
        below: CertificateDer<'static>,
    }

    impl Chain {
        fn new(until: SystemTime, policies: &str) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let [root_key, below_key, host_key] = [(); 3].map(|()| KeyPair::generate().unwrap());
            let root = authority("Root").self_signed(&root_key).unwrap();
            let root_issuer = Issuer::new(authority("Root"), root_key);
            let below = authority("Below").signed_by(&below_key, &root_issuer).unwrap();
            let mut host = params("a.example", &["a.example"]);
            host.not_after = until.into();
            let host = host.signed_by(&host_key, &Issuer::new(authority("Below"), below_key)).unwrap();
            fs::write(dir.path().join("0a.0"), root.pem()).unwrap();
            fs::write(dir.path().join("0a.signing_policy"), policies).unwrap();
            Self { dir, host: host.der().clone(), below: below.der().clone() }
        }

        fn verify(&self, host: &str, now: SystemTime) -> Result<(), String> {
            let verifier = ServerVerifier {
                trust: Trust::load(self.dir.path(), SystemTime::now()).unwrap(),
                provider: Arc::new(ring::default_provider()),
                host: host.to_owned(),
                now: UnixTime::since_unix_epoch(now.duration_since(SystemTime::UNIX_EPOCH).unwrap()),
            };
            let name = ServerName::try_from(host.to_owned()).unwrap();
            verifier
                .verify(&self.host, std::slice::from_ref(&self.below), &name)
                .map_err(|error| error.to_string())
        }
    }

    fn policy(authority: &str, subjects: &str) -> String {
        format!(
            "access_id_CA X509 '{authority}'\npos_rights globus CA:sign\ncond_subjects globus '{subjects}'\n"
        )
    }

    #[test]
    fn every_authority_of_the_chain_requires_a_policy() {
        let now = SystemTime::now();
        let root = policy("/O=Grid/CN=Root", "/O=Grid/*");
        let below = |subjects| policy("/O=Grid/CN=Below", subjects);
        let verify = |policies: &str| Chain::new(now + HOUR, policies).verify("a.example", now);
        verify(&(root.clone() + &below("/O=Grid/CN=a.example"))).unwrap();
        for (policies, why) in [
            (
                root.clone() + &below("/O=Grid/CN=b.example"),
                "/O=Grid/CN=Below does not let it certify /O=Grid/CN=a.example",
            ),
            (root, "no signing policy for /O=Grid/CN=Below"),
            (
                policy("/O=Grid/CN=Root", "/O=Other/*") + &below("/O=Grid/*"),
                "/O=Grid/CN=Root does not let it certify /O=Grid/CN=Below",
            ),
        ] {
            let refused = verify(&policies).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn validity_and_host_errors_have_their_own_messages() {
        let now = SystemTime::now();
        let policies = policy("/O=Grid/CN=Root", "/O=Grid/*") + &policy("/O=Grid/CN=Below", "/O=Grid/*");
        for (until, host, at, why) in [
            (now - HOUR, "a.example", now, "the certificate of a.example is expired"),
            (now + HOUR, "a.example", SystemTime::UNIX_EPOCH, "not valid yet"),
            (now + HOUR, "b.example", now, "b.example is for /O=Grid/CN=a.example (a.example)"),
        ] {
            let refused = Chain::new(until, &policies).verify(host, at).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }
}

#[cfg(test)]
mod host_name_tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn certificate(common_name: &str, alternatives: &[&str]) -> CertificateDer<'static> {
        let alternatives: Vec<String> = alternatives.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(alternatives).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn alternative_names_take_precedence_over_the_common_name_and_are_shown() {
        for (common_name, alternatives, host, accepted) in [
            ("x", &["a.example", "192.0.2.1"][..], "a.example", true),
            ("x", &["a.example", "192.0.2.1"], "192.0.2.1", true),
            ("host/b.example", &["a.example"], "b.example", false),
            ("host/b.example", &[], "B.example", true),
            ("b.example", &[], "b.example", true),
            ("ftp/b.example", &[], "b.example", false),
            ("192.0.2.1", &[], "192.0.2.1", false),
            ("host/b.example", &[], "a.example", false),
        ] {
            let (made, name) = (certificate(common_name, alternatives), ServerName::try_from(host).unwrap());
            assert_eq!(is_for(&made, &name), accepted, "{common_name} {host}");
        }
        let made = certificate("x", &["a.example", "192.0.2.1", "2001:db8::1"]);
        let shown = ["/CN=x", " (a.example, 192.0.2.1, 2001:db8::1)"].map(str::to_owned);
        assert_eq!(shown_names(&made), shown.into());
    }
}
