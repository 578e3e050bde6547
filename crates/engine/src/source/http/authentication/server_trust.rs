//! Trust in servers: by an authority, by a trusted server certificate, or by a pinned key.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use webpki::RawPublicKeyEntity;
use x509_parser::prelude::*;
use x509_parser::public_key::PublicKey;

use crate::source::http::authentication::key_pin::KeyPin;
use crate::source::http::authentication::weak_rsa;

/// The refusal of a certificate that states neither names nor purposes.
const OLD_VERSION: &str = "the server's certificate is of X.509 version 1, which states no purpose; give it or its authority with \
                           --cacert FILE, or its key with --pin";

/// Verifies a server's certificate.
///
/// A pinned key alone decides, like a known host in SSH; authority, names and dates are ignored.
/// Without pins the chain is verified. A certificate that is itself trusted needs no authority:
/// `openssl req -x509` creates a CA certificate, which webpki refuses for a server. It is an
/// authority for others only if it says so.
///
/// As with curl, the common name counts where a certificate has no alternative names and its issuer
/// was given: `openssl x509 -req` creates such certificates, and without extensions of X.509
/// version 1, which webpki does not read.
#[derive(Debug)]
pub(crate) struct ServerTrust {
    /// Verifies chains to the authorities; `None` without any.
    chains: Option<Arc<WebPkiServerVerifier>>,
    /// The certificates that the user gave, in DER.
    given: Vec<CertificateDer<'static>>,
    /// Those of the system.
    system: Vec<CertificateDer<'static>>,
    pins: Vec<KeyPin>,
    /// Whether every server is trusted if no key is pinned.
    insecure: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerTrust {
    /// Trusts the certificates; `None` if that is no server.
    pub(crate) fn new(
        given: Vec<CertificateDer<'static>>,
        system: Vec<CertificateDer<'static>>,
        pins: Vec<KeyPin>,
        insecure: bool,
        provider: &Arc<CryptoProvider>,
    ) -> Option<Self> {
        if given.is_empty() && system.is_empty() && pins.is_empty() && !insecure {
            return None;
        }
        let may_issue = |der: &&CertificateDer<'_>| parse(der).is_ok_and(|parsed| is_authority(&parsed));
        let mut roots = RootCertStore::empty();
        // Systems ship old certificates that are no longer well-formed; only the others are used.
        roots.add_parsable_certificates(given.iter().chain(&system).filter(may_issue).cloned());
        let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
        // Fails without roots.
        let chains = chains.build().ok();
        Some(Self {
            chains,
            given,
            system,
            pins,
            insecure,
            algorithms: provider.signature_verification_algorithms,
        })
    }

    fn check_pins(&self, certificate: &X509Certificate<'_>) -> Result<(), Error> {
        KeyPin::check(&self.pins, certificate.public_key().raw).map_err(Error::General)
    }

    /// Returns whether a given authority issued the certificate. One whose names are constrained
    /// does not count.
    fn is_issued_by_given(&self, certificate: &X509Certificate<'_>) -> bool {
        self.given.iter().filter_map(|der| parse(der).ok()).any(|authority| {
            let is_free = matches!(authority.name_constraints(), Ok(None));
            let names_it = authority.subject() == certificate.issuer();
            is_free && names_it && is_authority(&authority) && self.is_signed_by(certificate, &authority)
        })
    }

    fn is_signed_by(&self, certificate: &X509Certificate<'_>, authority: &X509Certificate<'_>) -> bool {
        let key = SubjectPublicKeyInfoDer::from(authority.public_key().raw);
        let (signed, signature) = (certificate.tbs_certificate.as_ref(), &certificate.signature_value.data);
        let key = RawPublicKeyEntity::try_from(&key);
        // An algorithm for another kind of key fails.
        let verifies = |key: &RawPublicKeyEntity<'_>| {
            self.algorithms.all.iter().any(|a| key.verify_signature(*a, signed, signature).is_ok())
        };
        key.is_ok_and(|key| verifies(&key))
    }

    /// Verifies the handshake's signature by the certificate's key.
    fn check_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
        is_tls13: bool,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.insecure && self.pins.is_empty() {
            // Any key is trusted, and so a signature by it proves nothing.
            return Ok(HandshakeSignatureValid::assertion());
        }
        let parsed = parse(certificate)?;
        if let Ok(PublicKey::RSA(key)) = parsed.public_key().parsed()
            && let Some(bits) = weak_rsa::weak_bits(&key)
        {
            if self.pins.is_empty() {
                return Err(Error::General(format!(
                    "the server's RSA key of {bits} bits is too weak to prove anything; --pin or --insecure accepts it"
                )));
            }
            let verifies = weak_rsa::verifies(&key, signed.scheme, is_tls13, message, signed.signature());
            let refused = || CertificateError::BadSignature.into();
            return verifies.then(HandshakeSignatureValid::assertion).ok_or_else(refused);
        }
        let key = SubjectPublicKeyInfoDer::from(parsed.public_key().raw);
        if is_tls13 {
            return verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms);
        }
        let key = RawPublicKeyEntity::try_from(&key).map_err(|_| CertificateError::BadEncoding)?;
        let known = self.algorithms.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme);
        let mut algorithms = known.into_iter().flat_map(|(_, algorithms)| *algorithms);
        let verifies = algorithms.any(|a| key.verify_signature(*a, message, signed.signature()).is_ok());
        verifies.then(HandshakeSignatureValid::assertion).ok_or_else(|| CertificateError::BadSignature.into())
    }
}

impl ServerCertVerifier for ServerTrust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.insecure && self.pins.is_empty() {
            return Ok(ServerCertVerified::assertion());
        }
        let parsed = parse(end_entity)?;
        let is_own = || self.given.iter().chain(&self.system).any(|der| der.as_ref() == end_entity.as_ref());
        let is_issued = || !has_names(&parsed) && is_for_servers(&parsed) && self.is_issued_by_given(&parsed);
        if !self.pins.is_empty() {
            self.check_pins(&parsed)?;
        } else if is_own() || is_issued() {
            check_trusted(end_entity, server_name, now)?;
        } else if parsed.version() != X509Version::V3 {
            return Err(Error::General(OLD_VERSION.to_owned()));
        } else {
            let chains = self.chains.as_ref().ok_or(CertificateError::UnknownIssuer)?;
            let checked =
                chains.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
            checked.map_err(|error| match error {
                Error::InvalidCertificate(CertificateError::Other(_)) if is_self_issued(&parsed) => {
                    CertificateError::UnknownIssuer.into()
                }
                error => error,
            })?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, certificate, signature, false)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, certificate, signature, true)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Returns whether a certificate may issue others. X.509 version 1 does not say: one that names
/// itself as its issuer may, as in OpenSSL.
fn is_authority(certificate: &X509Certificate<'_>) -> bool {
    let (Ok(constraints), Ok(usage)) = (certificate.basic_constraints(), certificate.key_usage()) else {
        return false;
    };
    let may_sign = usage.map(|usage| usage.value.key_cert_sign());
    match constraints {
        Some(constraints) => constraints.value.ca && may_sign != Some(false),
        None if certificate.version() == X509Version::V1 => is_self_issued(certificate),
        None => may_sign == Some(true),
    }
}

/// Returns whether a certificate that states its purposes states servers.
fn is_for_servers(certificate: &X509Certificate<'_>) -> bool {
    match certificate.extended_key_usage() {
        Ok(usage) => usage.is_none_or(|usage| usage.value.server_auth || usage.value.any),
        Err(_) => false,
    }
}

/// Returns whether a certificate has alternative names, or fields in their place that cannot be
/// read.
fn has_names(certificate: &X509Certificate<'_>) -> bool {
    !matches!(certificate.subject_alternative_name(), Ok(None))
}

/// Checks dates and name of a certificate whose issuer is not in question.
fn check_trusted(
    certificate: &CertificateDer<'_>,
    name: &ServerName<'_>,
    now: UnixTime,
) -> Result<(), Error> {
    let parsed = parse(certificate)?;
    let validity = parsed.validity();
    let now_seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let time = |time: &ASN1Time| {
        let seconds = u64::try_from(time.timestamp()).unwrap_or_default();
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    };
    if validity.not_after.timestamp() < now_seconds {
        let not_after = time(&validity.not_after);
        return Err(CertificateError::ExpiredContext { time: now, not_after }.into());
    }
    if validity.not_before.timestamp() > now_seconds {
        let not_before = time(&validity.not_before);
        return Err(CertificateError::NotValidYetContext { time: now, not_before }.into());
    }
    if !has_names(&parsed) {
        // Without -addext, openssl writes the host only into the subject, where curl also accepts
        // it.
        let named = is_common_name(&parsed, name);
        return if named { Ok(()) } else { Err(CertificateError::NotValidForName.into()) };
    }
    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
}

/// Returns whether the subject's common name equals the host name; `*` as its first label stands
/// for any one label.
fn is_common_name(certificate: &X509Certificate<'_>, name: &ServerName<'_>) -> bool {
    let host = name.to_str();
    let parent =
        host.split_once('.').filter(|_| matches!(name, ServerName::DnsName(_))).map(|(_, parent)| parent);
    let mut names = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    names.any(|common| match common.strip_prefix("*.") {
        Some(common) => {
            parent.is_some_and(|parent| parent.contains('.') && common.eq_ignore_ascii_case(parent))
        }
        None => common.eq_ignore_ascii_case(&host),
    })
}

/// Returns whether a certificate names itself as its issuer.
fn is_self_issued(certificate: &X509Certificate<'_>) -> bool {
    certificate.issuer() == certificate.subject()
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, Error> {
    let parsed = X509Certificate::from_der(certificate);
    parsed.map(|(_, parsed)| parsed).map_err(|_| CertificateError::BadEncoding.into())
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};

    use super::*;

    /// A certificate as created by `openssl req -x509`, valid for two days around day 20,000 after
    /// 1970-01-01.
    fn own(names: &[&str], common: &str) -> CertificateDer<'static> {
        let mut params =
            CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, common);
        params.not_before = rcgen::date_time_ymd(2024, 10, 3);
        params.not_after = rcgen::date_time_ymd(2024, 10, 5);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn check(certificate: &CertificateDer<'_>, host: &str, day: u64) -> Result<(), Error> {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(day * 86_400));
        check_trusted(certificate, &ServerName::try_from(host.to_owned()).unwrap(), now)
    }

    #[test]
    fn trusted_certificate_is_limited_to_its_names_and_dates() {
        let (named, common) = (own(&["a.example", "127.0.0.1"], "b.example"), own(&[], "b.example"));
        let any = own(&[], "*.b.example");
        for (certificate, host, day, trusted) in [
            (&named, "a.example", 20_000, true),
            (&named, "127.0.0.1", 20_000, true),
            (&named, "b.example", 20_000, false),
            (&named, "a.example", 19_000, false),
            (&named, "a.example", 21_000, false),
            (&common, "B.example", 20_000, true),
            (&common, "a.example", 20_000, false),
            (&any, "a.B.example", 20_000, true),
            (&any, "b.example", 20_000, false),
            (&any, "a.a.b.example", 20_000, false),
        ] {
            assert_eq!(check(certificate, host, day).is_ok(), trusted, "{host} on day {day}");
        }
        let expired = check(&named, "a.example", 21_000).unwrap_err().to_string();
        assert!(expired.contains("expired"), "{expired}");
    }
}
