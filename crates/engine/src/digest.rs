//! Checksums of finished files, by the names that `--checksum ALG:HEX` knows.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::str::FromStr;

use digest::DynDigest;
use thiserror::Error;

use crate::cancel::Cancel;

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

/// What a file's digest is, or should be; written `ALG:HEX`.
#[derive(Debug, Clone, PartialEq, Eq)]
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

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name =
            NAMES.iter().find(|(_, algorithm, _)| *algorithm == self.algorithm).map_or("", |(name, ..)| name);
        write!(f, "{name}:{}", self.hex)
    }
}

impl Checksum {
    /// Makes one of a BLAKE3 digest.
    pub fn of_blake3(hash: &blake3::Hash) -> Self {
        Self { algorithm: Algorithm::Blake3, hex: hash.to_hex().to_string() }
    }
}

/// Reads a file from where it stands to its end and returns its checksum; `Ok(None)` where cancelled.
///
/// It reads what is on disk, not what went by: a write that was lost is found too.
///
/// # Errors
/// What the kernel says of the file.
pub fn of(mut file: File, algorithm: Algorithm, cancel: &Cancel) -> io::Result<Option<Checksum>> {
    let mut hasher: Box<dyn DynDigest> = match algorithm {
        Algorithm::Md5 => Box::new(md5::Md5::default()),
        Algorithm::Sha1 => Box::new(sha1::Sha1::default()),
        Algorithm::Sha256 => Box::new(sha2::Sha256::default()),
        Algorithm::Sha512 => Box::new(sha2::Sha512::default()),
        Algorithm::Blake3 => Box::new(blake3::Hasher::new()),
    };
    let mut buf = vec![0; 1 << 20];
    while !cancel.is_cancelled() {
        match file.read(&mut buf)? {
            0 => {
                let hex = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
                return Ok(Some(Checksum { algorithm, hex }));
            }
            n => hasher.update(&buf[..n]),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_of_abc() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc").unwrap();
        for text in [
            "md5:900150983cd24fb0d6963f7d28e17f72",
            "sha1:a9993e364706816aba3e25717850c26c9cd0d89d",
            "SHA-256:BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD",
            "blake3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
        ] {
            let wanted: Checksum = text.parse().unwrap();
            let found = of(file.reopen().unwrap(), wanted.algorithm, &Cancel::new()).unwrap();
            assert_eq!(found, Some(wanted));
        }
    }

    #[test]
    fn refuses_what_is_no_checksum() {
        for text in ["", "abc", "md5:", "crc32:00000000", "md5:900150983cd24fb0d6963f7d28e17f7g", "sha256:00"]
        {
            assert!(text.parse::<Checksum>().is_err(), "{text}");
        }
    }
}
