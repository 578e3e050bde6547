//! Trust in servers: by an authority, by a trusted server certificate, or by a pinned key.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use x509_parser::prelude::*;

use super::key_pin::KeyPin;

/// Verifies a server's certificate.
///
/// A pinned key alone decides, like a known host in SSH; authority, names and dates are ignored. Without pins the chain
/// is verified. A certificate that is itself trusted needs no authority: `openssl req -x509` creates a CA certificate,
/// which webpki refuses for a server.
#[derive(Debug)]
pub(super) struct ServerTrust {
    chains: Arc<WebPkiServerVerifier>,
    /// Every trusted certificate in DER.
    trusted: Vec<CertificateDer<'static>>,
    pins: Vec<KeyPin>,
    /// Whether every server is trusted if no key is pinned.
    insecure: bool,
}

impl ServerTrust {
    pub(super) fn new(
        chains: Arc<WebPkiServerVerifier>,
        trusted: Vec<CertificateDer<'static>>,
        pins: Vec<KeyPin>,
        insecure: bool,
    ) -> Self {
        Self { chains, trusted, pins, insecure }
    }

    fn check_pins(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let parsed = parse(certificate)?;
        let found = KeyPin::of_key(parsed.public_key().raw);
        if self.pins.contains(&found) {
            return Ok(());
        }
        Err(Error::General(format!("the server's key is {found}, which --pin does not name")))
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
        if !self.pins.is_empty() {
            return self.check_pins(end_entity).map(|()| ServerCertVerified::assertion());
        }
        if self.insecure {
            return Ok(ServerCertVerified::assertion());
        }
        if self.trusted.iter().any(|trusted| trusted.as_ref() == end_entity.as_ref()) {
            return check_trusted(end_entity, server_name, now).map(|()| ServerCertVerified::assertion());
        }
        let checked =
            self.chains.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        checked.map_err(|error| match error {
            Error::InvalidCertificate(CertificateError::Other(_)) if is_self_signed(end_entity) => {
                CertificateError::UnknownIssuer.into()
            }
            error => error,
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

/// Checks dates and name of a certificate that is itself trusted.
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
    let has_names = parsed.subject_alternative_name().ok().flatten().is_some();
    if !has_names && is_common_name(&parsed, name) {
        // Without -addext, openssl writes the host only into the subject, where curl also accepts it.
        return Ok(());
    }
    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
}

/// Returns whether the subject's common name equals the host name.
fn is_common_name(certificate: &X509Certificate<'_>, name: &ServerName<'_>) -> bool {
    let name = name.to_str();
    let mut names = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    names.any(|common| common.eq_ignore_ascii_case(&name))
}

/// Returns whether a certificate names itself as its issuer.
fn is_self_signed(certificate: &CertificateDer<'_>) -> bool {
    parse(certificate).is_ok_and(|certificate| certificate.issuer() == certificate.subject())
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, Error> {
    let parsed = X509Certificate::from_der(certificate);
    parsed.map(|(_, parsed)| parsed).map_err(|_| CertificateError::BadEncoding.into())
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};

    use super::*;

    /// A certificate as created by `openssl req -x509`, valid for two days around day 20,000 after 1970-01-01.
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
        for (certificate, host, day, trusted) in [
            (&named, "a.example", 20_000, true),
            (&named, "127.0.0.1", 20_000, true),
            (&named, "b.example", 20_000, false),
            (&named, "a.example", 19_000, false),
            (&named, "a.example", 21_000, false),
            (&common, "B.example", 20_000, true),
            (&common, "a.example", 20_000, false),
        ] {
            assert_eq!(check(certificate, host, day).is_ok(), trusted, "{host} on day {day}");
        }
        let expired = check(&named, "a.example", 21_000).unwrap_err().to_string();
        assert!(expired.contains("expired"), "{expired}");
    }
}
