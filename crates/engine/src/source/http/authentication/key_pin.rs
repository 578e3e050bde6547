//! Pins: digests of the public keys that a server may have.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::proto::Malformed;
use sha2::{Digest, Sha256};

/// The SHA-256 digest of a public key in its X.509 form (SubjectPublicKeyInfo, RFC 7469, section
/// 2.4).
///
/// Computed from a certificate by `openssl x509 -pubkey -noout -in FILE | openssl pkey -pubin
/// -outform der | sha256sum`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyPin([u8; 32]);

const NOT_A_PIN: &str = "a pin is sha256//BASE64, as curl writes it, or 64 hexadecimal digits: the SHA-256 of the server's public key";

impl KeyPin {
    /// Computes the pin of a public key in DER.
    pub fn of_key(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// Checks that a public key in DER has one of `pins`.
    ///
    /// # Errors
    /// The reason, with the pin that the key has.
    pub(super) fn check(pins: &[Self], key: &[u8]) -> Result<(), String> {
        let found = Self::of_key(key);
        match pins.contains(&found) {
            true => Ok(()),
            false => Err(format!("the server's key is {found}, which --pin does not name")),
        }
    }
}

impl FromStr for KeyPin {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let digest = match text.strip_prefix("sha256//") {
            Some(text) => STANDARD.decode(text).ok(),
            None => Checksum::from_hex(Algorithm::Sha256, &text.replace(':', "")).map(|key| key.bytes()),
        };
        digest.and_then(|digest| digest.try_into().ok()).map(Self).ok_or_else(|| Malformed::new(NOT_A_PIN))
    }
}

impl fmt::Display for KeyPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256//{}", STANDARD.encode(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pin_is_read_as_curl_and_as_sha256sum_write_it() {
        let pin = KeyPin::of_key(b"key");
        let hex: String = pin.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let colons: Vec<_> = pin.0.iter().map(|byte| format!("{byte:02X}")).collect();
        let whole = pin.to_string();
        for text in [&whole, &hex, &colons.join(":")] {
            assert_eq!(text.parse(), Ok(pin.clone()), "{text}");
        }
        for text in [
            "",
            "sha256//",
            &whole[..whole.len() - 4],
            &whole.replace("sha256//", "sha1//"),
            &whole.replace("sha256//", ""),
            &hex[1..],
            &format!("{hex}00"),
            &"g".repeat(64),
            &"\u{e9}".repeat(64),
        ] {
            assert_eq!(text.parse::<KeyPin>(), Err(Malformed::new(NOT_A_PIN)), "{text}");
        }
    }
}
