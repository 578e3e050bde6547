//! TLS: trusted certificates, the client's certificate, the handshake, and its errors.

use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::units::Bytes;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection};
use url::Host;

use crate::connect::{Deadline, Transport};
use crate::input_file::read_again;
use crate::pem::{read_certificates, read_private_key};
use crate::source::http::authentication::server_trust::ServerTrust;
use crate::source::http::client::config::{ClientCertificate, TlsConfig};
use crate::source::http::error::{HttpError, check};
use crate::source::http::target::safe_url::UrlAndPeer;

/// The maximum size of a PEM file.
const MAX_PEM: Bytes = Bytes::mib(16);
/// The error of a host that trusts no authority.
const NO_ROOTS: &str = "no root certificates on this host, so no server can be trusted: install ca-certificates; or give --cacert FILE";

/// Reads the root certificates in a PEM file.
pub(crate) fn read_ca_file(path: &Path) -> Result<Vec<CertificateDer<'static>>, HttpError> {
    let fail = |why: String| {
        let message =
            format!("cannot read root certificates from {}: {why}; name a PEM file", path.display());
        HttpError::from(Failure::new(FailureKind::NotFound, message))
    };
    let bytes = read_again(path, MAX_PEM).map_err(|error| fail(error.to_string()))?;
    read_certificates(&bytes).map_err(fail)
}

/// Creates the TLS settings for HTTP/1.1 only: trusts the system's roots and those of `config`.
///
/// # Errors
/// Those of unusable files, and of a host without root certificates.
pub(crate) fn settings(config: &TlsConfig) -> Result<Arc<ClientConfig>, HttpError> {
    let given = config.ca_file.as_deref().map(read_ca_file).transpose()?.unwrap_or_default();
    let native = rustls_native_certs::load_native_certs();
    for error in &native.errors {
        tracing::debug!(%error, "some of the system's root certificates cannot be read");
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = ServerTrust::new(given, native.certs, config.pins.clone(), config.insecure, &provider);
    let no_roots = || Failure::new(FailureKind::Protocol, NO_ROOTS);
    let verifier = verifier.ok_or_else(no_roots)?;
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    // The provider supports the default versions.
    let builder = builder.map_err(|_| no_roots())?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let mut settings = match &config.certificate {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let (chain, key) = read_client_certificate(own)?;
            let unusable = |error: rustls::Error| own.error(&own.cert, &error);
            builder.with_client_auth_cert(chain, key).map_err(unusable)?
        }
    };
    settings.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(settings))
}

/// Reads the client's certificate, its chain and its key.
pub(crate) fn read_client_certificate(
    own: &ClientCertificate,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), HttpError> {
    let read = |path| read_again(path, MAX_PEM).map_err(|error| own.error(path, &error));
    let chain = read_certificates(&read(&own.cert)?).map_err(|why| own.error(&own.cert, &why))?;
    let key = read_private_key(&read(&own.key)?).map_err(|why| own.error(&own.key, &why))?;
    Ok((chain, key))
}

impl ClientCertificate {
    fn error(&self, path: &Path, why: &dyn std::fmt::Display) -> HttpError {
        let path = path.display();
        let message = format!(
            "cannot use the client's certificate in {path}: {why}; name PEM files with --cert and --key"
        );
        Failure::new(FailureKind::NotFound, message).into()
    }
}

/// Returns the name of a server whose certificate is verified; fails for a name that no certificate
/// can have.
pub(crate) fn server_name(host: &Host<String>) -> Result<ServerName<'static>, String> {
    let name = host.to_string().trim_matches(['[', ']']).to_owned();
    ServerName::try_from(name).map_err(|error| error.to_string())
}

/// Sets up TLS over a connected socket.
pub(crate) fn handshake(
    socket: TcpStream,
    settings: Arc<ClientConfig>,
    host: &Host<String>,
    at: &UrlAndPeer,
    deadline: &Deadline<'_>,
) -> Result<Transport, HttpError> {
    let fail = |why: String| HttpError::Tls(at.clone(), why);
    let name = server_name(host).map_err(fail)?;
    let session = ClientConnection::new(settings, name).map_err(|error| fail(error.to_string()))?;
    let mut transport = Transport::tls(session, socket);
    loop {
        check(deadline, at, "the TLS handshake")?;
        match transport.await_handshake() {
            Ok(false) => return Ok(transport),
            Ok(true) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(fail(error.to_string()));
            }
            Err(error) => return Err(handshake_error(error, at)),
        }
    }
}

/// Creates the error of a failed handshake step. An error of TLS itself is explained; a damaged
/// record counts as a broken connection.
fn handshake_error(source: io::Error, at: &UrlAndPeer) -> HttpError {
    let Some(tls) = of_tls(&source).filter(|tls| **tls != rustls::Error::DecryptError) else {
        return HttpError::Receive(at.clone(), source);
    };
    HttpError::Tls(at.clone(), explained(tls, "http://"))
}

/// Explains an error of TLS, with a remedy where there is one; `plain` is the scheme without TLS.
pub(crate) fn explained(error: &rustls::Error, plain: &str) -> String {
    use AlertDescription as Alert;
    match error {
        // Our own words: see `ServerTrust`.
        rustls::Error::General(why) => why.clone(),
        rustls::Error::InvalidMessage(_) => {
            format!("the answer is not TLS; the server may not speak TLS on this port: try {plain}")
        }
        rustls::Error::InvalidCertificate(error) => {
            let what = match error {
                CertificateError::UnknownIssuer => {
                    "the server's certificate is signed by itself, or by an authority that this host does not trust".to_owned()
                }
                CertificateError::Other(_) => "the server's certificate is not one for servers".to_owned(),
                other => format!("the server's certificate cannot be trusted: {other}"),
            };
            format!(
                "{what}; if you trust the server's certificate authority, or the server, give that certificate with --cacert FILE"
            )
        }
        rustls::Error::AlertReceived(Alert::CertificateRequired | Alert::NoCertificate) => {
            "the server requires a client's certificate; give yours with --cert and --key".to_owned()
        }
        rustls::Error::AlertReceived(Alert::UnknownCA | Alert::BadCertificate) => {
            "the server does not accept this client's certificate; give one with --cert of an authority that it trusts".to_owned()
        }
        rustls::Error::AlertReceived(Alert::HandshakeFailure | Alert::ProtocolVersion) => {
            "the server refused: it has no version or cipher of TLS in common with this program (TLS 1.2 and 1.3, keys by ECDHE, \
             AES-GCM or ChaCha20; neither CBC nor keys by RSA), or requires a client's certificate; give yours with --cert and --key"
                .to_owned()
        }
        other => other.to_string(),
    }
}

/// Creates the error of a failed send. A server that refuses the client closes the connection, and
/// its reason arrives before.
pub(crate) fn send_error(source: io::Error, at: &UrlAndPeer) -> HttpError {
    match of_tls(&source) {
        Some(_) => receive_error(source, at),
        None => HttpError::Send(at.clone(), source),
    }
}

/// Creates the error of a failed receive after the handshake.
///
/// A record damaged on the path counts as a broken connection, whichever end detects it. A TLS 1.3
/// server refuses a client only after the client's handshake is complete (RFC 8446, section
/// 4.4.2.4), and that refusal is final.
pub(crate) fn receive_error(source: io::Error, at: &UrlAndPeer) -> HttpError {
    match of_tls(&source) {
        Some(rustls::Error::AlertReceived(alert)) if !reports_damage(*alert) => handshake_error(source, at),
        _ => HttpError::Receive(at.clone(), source),
    }
}

pub(crate) fn of_tls(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>())
}

/// Returns whether an alert reports a damaged record (RFC 8446, section 6.2).
fn reports_damage(alert: AlertDescription) -> bool {
    use AlertDescription as Alert;
    matches!(
        alert,
        Alert::BadRecordMac
            | Alert::DecryptionFailed
            | Alert::RecordOverflow
            | Alert::DecodeError
            | Alert::DecryptError
            | Alert::UnexpectedMessage
            | Alert::InternalError
    )
}
