//! Stored requests are sealed, so that a copy of the database alone reveals no password, cookie or
//! signed URL.
//!
//! The key is a file beside the database, readable by the user only. This protects backups, bug
//! reports and synchronised copies of the database, but not against programs of the user.

use std::io;
use std::path::Path;

use chacha20poly1305::aead::{Aead, AeadCore, KeyInit, OsRng, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use thiserror::Error;

use crate::paths::kept_secret;

/// The purpose of the sealed text: a text sealed for another purpose is refused.
const PURPOSE: &[u8] = b"longhaul queue request 1";
/// Bytes of the nonce of XChaCha20 (draft-irtf-cfrg-xchacha, 2.1).
const NONCE: usize = 24;
/// Bytes of a key.
const KEY: usize = 32;

/// Seals and opens requests.
pub(crate) struct SecretBox(XChaCha20Poly1305);

/// A request cannot be unsealed.
#[derive(Debug, Error)]
#[error("its request was sealed with another key than the one in the state directory: add it again")]
pub(crate) struct UnsealError;

impl SecretBox {
    /// Reads or creates the key.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let key = kept_secret(path, || XChaCha20Poly1305::generate_key(&mut OsRng).to_vec())?;
        if key.len() != KEY {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it holds no key: remove it, and add again what is queued",
            ));
        }
        Ok(Self(XChaCha20Poly1305::new(key.as_slice().into())))
    }

    /// Seals a text.
    pub(crate) fn seal(&self, text: &[u8]) -> Vec<u8> {
        let nonce = XChaCha20Poly1305::generate_nonce(&mut OsRng);
        let mut sealed = nonce.to_vec();
        // Fails only for texts of more than 256 GiB.
        sealed.extend(self.0.encrypt(&nonce, Payload { msg: text, aad: PURPOSE }).unwrap_or_default());
        sealed
    }

    /// Unseals a text of [`seal`](Self::seal).
    pub(crate) fn unseal(&self, sealed: &[u8]) -> Result<Vec<u8>, UnsealError> {
        let (nonce, text) = sealed.split_at_checked(NONCE).ok_or(UnsealError)?;
        self.0
            .decrypt(XNonce::from_slice(nonce), Payload { msg: text, aad: PURPOSE })
            .map_err(|_| UnsealError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_text_is_unreadable_and_opens_only_with_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let one = SecretBox::open(&dir.path().join("one")).unwrap();
        let other = SecretBox::open(&dir.path().join("other")).unwrap();
        let sealed = one.seal(b"Cookie: secret");
        assert!(!sealed.windows(6).any(|window| window == b"secret"));
        assert_ne!(sealed, one.seal(b"Cookie: secret"));
        let again = SecretBox::open(&dir.path().join("one")).unwrap();
        assert_eq!(again.unseal(&sealed).unwrap(), b"Cookie: secret");
        assert!(other.unseal(&sealed).is_err() && one.unseal(b"short").is_err());
        let mut damaged = sealed;
        *damaged.last_mut().unwrap() ^= 1;
        assert!(one.unseal(&damaged).is_err());
    }
}
