//! The credential of encrypted data connections: generated for one control connection, and sent to
//! the server over it (DCSC).
//!
//! ```text
//!  DCSC P base64(certificate, key, certificate)   DCAU A   PROT P
//!  data: TLS, the connecting end is the client; each end presents this certificate and accepts no other
//! ```
//!
//! The key crosses the network only over the authenticated and encrypted control connection, and is
//! discarded with it.

use std::fmt::Display;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use longhaul_core::failure::Failure;
use rcgen::{CertificateParams, DistinguishedName, DnType, IsCa, KeyPair};
use rustls::client::Resumption;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, ClientConfig, DistinguishedName as Issuer, ServerConfig};

use super::handshake_failed;

/// TLS settings for both ends of data connections that authenticate by one self-signed certificate.
#[derive(Debug, Clone)]
pub(crate) struct DataCredential {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
    /// The argument of DCSC P.
    pub(crate) dcsc: String,
}

impl DataCredential {
    /// Generates a key (P-256) and its certificate.
    ///
    /// # Errors
    /// [`Failure`] if the system has no random numbers.
    pub(crate) fn generate(host: &str) -> Result<Self, Failure> {
        let fail = |error: &dyn Display| handshake_failed(host, error);
        let key = KeyPair::generate().map_err(|error| fail(&error))?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        // Globus sends the name as the TLS server name, so it must be a valid host name.
        params.distinguished_name.push(DnType::CommonName, "longhaul-data");
        // Globus rejects a CA certificate as the certificate of an endpoint.
        params.is_ca = IsCa::ExplicitNoCa;
        let certificate = params.self_signed(&key).map_err(|error| fail(&error))?;
        let pem = certificate.pem();
        let dcsc = STANDARD.encode(format!("{pem}{}{pem}", key.serialize_pem()));

        let chain = vec![certificate.der().clone()];
        let own_key = || PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(ring::default_provider());
        let pinned =
            Arc::new(Pinned { certificate: certificate.der().clone(), provider: Arc::clone(&provider) });
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| fail(&error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&pinned) as Arc<dyn ServerCertVerifier>)
            .with_client_auth_cert(chain.clone(), own_key())
            .map_err(|error| fail(&error))?;
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| fail(&error))?
            .with_client_cert_verifier(pinned)
            .with_single_cert(chain, own_key())
            .map_err(|error| fail(&error))?;
        // A sender does not read; unread tickets would turn its close into a reset, which loses
        // data.
        server.send_tls13_tickets = 0;
        Ok(Self { client: Arc::new(client), server: Arc::new(server), dcsc })
    }
}

/// Accepts one certificate, and the proof that the peer has its key.
#[derive(Debug)]
struct Pinned {
    certificate: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    fn check(&self, presented: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        let same = presented.as_ref() == self.certificate.as_ref();
        same.then_some(()).ok_or(CertificateError::ApplicationVerificationFailure.into())
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    verify_signatures!();
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[Issuer] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    verify_signatures!();
}
