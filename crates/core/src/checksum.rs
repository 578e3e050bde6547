//! Checksums of whole files, by the names that `--checksum ALG:HEX` knows.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A digest algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// MD5, for old checksum lists; proves nothing against malice.
    Md5,
    /// SHA-1, for old checksum lists; proves nothing against malice.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
    /// BLAKE3, the fastest.
    Blake3,
}

const NAMES: [(&str, Algorithm, usize); 5] = [
    ("md5", Algorithm::Md5, 16),
    ("sha1", Algorithm::Sha1, 20),
    ("sha256", Algorithm::Sha256, 32),
    ("sha512", Algorithm::Sha512, 64),
    ("blake3", Algorithm::Blake3, 32),
];

/// What a file's digest is, or should be; written and serialised as `ALG:HEX`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Checksum {
    /// The algorithm.
    pub algorithm: Algorithm,
    hex: String,
}

/// A checksum that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "'{0}' is not a checksum: write ALG:HEX, with ALG one of md5, sha1, sha256, sha512, blake3 and all of its hex digits"
)]
pub struct ParseChecksumError(String);

impl Checksum {
    /// Returns the digest in lower-case hexadecimal.
    pub fn hex(&self) -> &str {
        &self.hex
    }

    /// Makes one of a digest's bytes; `None` where the algorithm's has another length.
    pub fn new(algorithm: Algorithm, digest: &[u8]) -> Option<Self> {
        let (_, _, length) = NAMES.into_iter().find(|(_, known, _)| *known == algorithm)?;
        let hex = || digest.iter().map(|byte| format!("{byte:02x}")).collect();
        (digest.len() == length).then(|| Self { algorithm, hex: hex() })
    }
}

impl FromStr for Checksum {
    type Err = ParseChecksumError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let (name, hex) = text.trim().split_once(':')?;
            let name = name.to_ascii_lowercase().replace('-', "");
            let (_, algorithm, len) = NAMES.into_iter().find(|(known, ..)| *known == name)?;
            let hex = hex.to_ascii_lowercase();
            let whole = hex.len() == 2 * len && hex.bytes().all(|b| b.is_ascii_hexdigit());
            whole.then_some(Self { algorithm, hex })
        };
        read().ok_or_else(|| ParseChecksumError(text.to_owned()))
    }
}

impl TryFrom<String> for Checksum {
    type Error = ParseChecksumError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Checksum> for String {
    fn from(checksum: Checksum) -> Self {
        checksum.to_string()
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name =
            NAMES.iter().find(|(_, algorithm, _)| *algorithm == self.algorithm).map_or("", |(name, ..)| name);
        write!(f, "{name}:{}", self.hex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_is_no_checksum() {
        for text in ["", "abc", "md5:", "crc32:00000000", "md5:900150983cd24fb0d6963f7d28e17f7g", "sha256:00"]
        {
            assert!(text.parse::<Checksum>().is_err(), "{text}");
        }
    }
}
