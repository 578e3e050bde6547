//! Verification of a GSI server's certificate: chain, validity, revocation, signing policies, host name.

use std::cell::RefCell;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, OtherError, SignatureScheme};
use webpki::{
    EndEntityCert, ExpirationPolicy, KeyUsage, RevocationOptionsBuilder, UnknownStatusPolicy, VerifiedPath,
};
use x509_parser::prelude::*;

use super::distinguished_name::one_line;
use super::error::GsiError;
use super::host_name;
use super::trust::{Permission, Trust};

/// Verifies the certificate of one host.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    pub(super) trust: Trust,
    pub(super) provider: Arc<CryptoProvider>,
    /// The host as the URL names it, for messages.
    pub(super) host: String,
    /// The time at which certificates are to be valid.
    pub(super) now: UnixTime,
}

impl ServerVerifier {
    /// Verifies a certificate for `name`.
    fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
    ) -> Result<(), GsiError> {
        let host = || self.host.clone();
        let certificate = EndEntityCert::try_from(end_entity)
            .map_err(|error| GsiError::ServerCertificate { host: host(), why: error.to_string() })?;
        let lists = self.trust.revoked();
        // A list is used where its authority publishes one; one that has expired cannot tell what is revoked.
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|options| {
            options
                .with_status_policy(UnknownStatusPolicy::Allow)
                .with_expiration_policy(ExpirationPolicy::Enforce)
                .build()
        });
        let denied = RefCell::new(None);
        let check_policies = |path: &VerifiedPath<'_>| {
            self.check_policies(path).map_err(|error| {
                // Other paths may be tried; the first, which is the shortest, says most.
                denied.borrow_mut().get_or_insert(error);
                webpki::Error::UnknownIssuer
            })
        };
        let verified = certificate.verify_for_usage(
            self.provider.signature_verification_algorithms.all,
            self.trust.anchors(),
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
        if host_name::is_for(end_entity, name) {
            return Ok(());
        }
        let (subject, names) = host_name::shown_names(end_entity);
        Err(GsiError::WrongHost { host: host(), subject, names })
    }

    /// Checks that each authority of the path may certify what it has certified.
    fn check_policies(&self, path: &VerifiedPath<'_>) -> Result<(), GsiError> {
        let unreadable = || GsiError::ServerCertificate {
            host: self.host.clone(),
            why: "a name in its chain cannot be read".to_owned(),
        };
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
            // The authority itself, which servers send along.
            if subject == name {
                authority = (name, entry);
                continue;
            }
            let host = self.host.clone();
            match self.trust.permits(&name, entry, &subject) {
                Permission::Granted => {}
                Permission::Violated(file) => {
                    return Err(GsiError::PolicyViolated { host, authority: name, subject, file });
                }
                Permission::NoPolicy(file, why) => {
                    return Err(GsiError::NoPolicy { host, authority: name, why, file });
                }
            }
            authority = (subject, None);
        }
        Ok(())
    }

    /// Makes the error of a chain that webpki refuses.
    fn refusal(&self, error: &webpki::Error, certificate: &CertificateDer<'_>) -> GsiError {
        let host = self.host.clone();
        let at = |time: &UnixTime| {
            ASN1Time::from_timestamp(time.as_secs() as i64)
                .map_or_else(|_| String::new(), |time| format!(" ({time})"))
        };
        match error {
            webpki::Error::CertExpired { not_after, .. } => {
                GsiError::ServerValidity { host, state: format!("expired{}", at(not_after)) }
            }
            webpki::Error::CertNotValidYet { not_before, .. } => {
                GsiError::ServerValidity { host, state: format!("not valid yet{}", at(not_before)) }
            }
            webpki::Error::CertRevoked => GsiError::Revoked { host },
            webpki::Error::CrlExpired { .. } => {
                GsiError::ListExpired { host, directory: self.trust.directory().to_owned() }
            }
            webpki::Error::UnknownIssuer | webpki::Error::CaUsedAsEndEntity => {
                let issuer = X509Certificate::from_der(certificate)
                    .map_or_else(|_| "unknown".to_owned(), |(_, parsed)| one_line(parsed.issuer()));
                GsiError::UnknownAuthority { host, issuer, directory: self.trust.directory().to_owned() }
            }
            other => GsiError::ServerCertificate { host, why: other.to_string() },
        }
    }
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

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
