//! GSI: authentication with X.509 certificates on a GridFTP control connection (RFC 2228, GFD.20),
//! by rustls.
//!
//! ```text
//! GsiCredentials::find   proxy or user certificate     Trust::load   authorities, signing policies, revocation lists
//!          '----------------.   .---------------------------------------'
//!                        authenticate            AUTH GSSAPI, then ADAT: TLS records in base64, then '0': no delegation
//!                              '--> ControlSecurity   ENC <record>  ->   <- 632 <record>
//! ```
//!
//! The tokens of Globus' GSSAPI are the records of a TLS connection, so that no GSS library is
//! needed.

/// The signatures of a verifier of certificates: those of its field `provider`.
macro_rules! verify_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signature: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            let algorithms = &self.provider.signature_verification_algorithms;
            rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signature: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            let algorithms = &self.provider.signature_verification_algorithms;
            rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            self.provider.signature_verification_algorithms.supported_schemes()
        }
    };
}

mod authenticate;
mod credentials;
mod data_credential;
mod distinguished_name;
mod server_verifier;
mod trust;

use longhaul_core::failure::{Failure, FailureKind};

pub(crate) use authenticate::{ControlSecurity, authenticate};
pub(crate) use credentials::{CredentialPlaces, GsiCredentials};
pub(crate) use data_credential::DataCredential;
pub(crate) use trust::Trust;

/// Creates the error of a handshake that failed, or whose messages are invalid.
fn handshake_failed(host: &str, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Protocol, format!("the GSI handshake with {host} failed: {why}"))
}
