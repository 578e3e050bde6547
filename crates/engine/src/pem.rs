//! Certificates and private keys in PEM.

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Reads all certificates of a text in PEM.
///
/// # Errors
/// The reason, without content of the text; also for a text without certificates.
pub fn read_certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>().map_err(damaged)?;
    if found.is_empty() { Err("it holds no certificate in PEM".to_owned()) } else { Ok(found) }
}

/// Reads the first private key of a text in PEM.
///
/// # Errors
/// The reason, without content of the text, and a remedy for an encrypted key.
pub fn read_private_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(text).map_err(|error| match error {
        _ if is_encrypted_key(text) => {
            "the key is encrypted; decrypt it with: openssl pkey -in ENCRYPTED -out KEY".to_owned()
        }
        pem::Error::NoItemsFound => "it holds no private key in PEM".to_owned(),
        other => damaged(other),
    })
}

/// Returns whether a text in PEM holds an encrypted key: PKCS #8, or as OpenSSL wrote before (RFC
/// 1421, section 4.6.1.1).
pub(crate) fn is_encrypted_key(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED")
}

fn damaged(error: pem::Error) -> String {
    format!("its PEM is damaged: {error}")
}
