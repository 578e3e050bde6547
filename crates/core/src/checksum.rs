//! Checksums of files and of their pieces, named as in `--checksum ALG:HEX`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A digest algorithm, ordered by preference: the least preferred first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// MD5, for old checksum lists; not collision-resistant.
    Md5,
    /// BLAKE2b of 128 bits, as `b2sum -l 128` computes it.
    Blake2b128,
    /// SHA-1, for old checksum lists; not collision-resistant.
    Sha1,
    /// BLAKE2b of 160 bits.
    Blake2b160,
    /// SHA-224.
    Sha224,
    /// SHA-256.
    Sha256,
    /// BLAKE2b of 256 bits.
    Blake2b256,
    /// SHA-384.
    Sha384,
    /// BLAKE2b of 384 bits.
    Blake2b384,
    /// SHA-512.
    Sha512,
    /// BLAKE2b of 512 bits, as b2sum computes it.
    Blake2b,
    /// BLAKE3, the fastest.
    Blake3,
}

const NAMES: [(&str, Algorithm, usize); 12] = [
    ("md5", Algorithm::Md5, 16),
    ("blake2b-128", Algorithm::Blake2b128, 16),
    ("sha1", Algorithm::Sha1, 20),
    ("blake2b-160", Algorithm::Blake2b160, 20),
    ("sha224", Algorithm::Sha224, 28),
    ("sha256", Algorithm::Sha256, 32),
    ("blake2b-256", Algorithm::Blake2b256, 32),
    ("sha384", Algorithm::Sha384, 48),
    ("blake2b-384", Algorithm::Blake2b384, 48),
    ("sha512", Algorithm::Sha512, 64),
    ("blake2b", Algorithm::Blake2b, 64),
    ("blake3", Algorithm::Blake3, 32),
];

impl Algorithm {
    /// Finds an algorithm by its name, case-insensitive, with or without hyphens ("SHA-256",
    /// "sha256").
    pub fn named(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase().replace('-', "");
        NAMES
            .into_iter()
            .find(|(known, ..)| known.replace('-', "") == name)
            .map(|(_, algorithm, _)| algorithm)
    }

    /// Returns whether this is BLAKE2b, of any length.
    pub(crate) fn is_blake2(self) -> bool {
        self.name().starts_with("blake2b")
    }

    /// Returns the algorithm's name.
    pub(crate) fn name(self) -> &'static str {
        self.name_and_length().0
    }

    /// Returns the algorithm's name and the length of its digest in bytes.
    fn name_and_length(self) -> (&'static str, usize) {
        NAMES
            .into_iter()
            .find(|(_, known, _)| *known == self)
            .map_or(("", 0), |(name, _, length)| (name, length))
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A file's actual or expected digest; written and serialised as `ALG:HEX`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Checksum {
    /// The algorithm.
    pub algorithm: Algorithm,
    hex: String,
}

/// The text is not a checksum.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "'{0}' is not a checksum: write ALG:HEX, with ALG one of md5, sha1, sha224 to sha512, blake2b, blake2b-128 to blake2b-384, blake3 and all of its hex digits"
)]
pub struct ParseChecksumError(String);

impl Checksum {
    /// Returns the digest in lower-case hexadecimal.
    pub fn hex(&self) -> &str {
        &self.hex
    }

    /// Returns the digest's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        // `hex` consists of hexadecimal digits, and their number is even.
        hex::decode(&self.hex).unwrap_or_default()
    }

    /// Creates a checksum from a digest's bytes; `None` if their number is not that of the
    /// algorithm.
    pub fn new(algorithm: Algorithm, digest: &[u8]) -> Option<Self> {
        (digest.len() == algorithm.name_and_length().1).then(|| Self { algorithm, hex: hex::encode(digest) })
    }

    /// Creates a checksum from hexadecimal digits in either case; `None` if their number is not
    /// that of the algorithm.
    pub fn from_hex(algorithm: Algorithm, hex: &str) -> Option<Self> {
        let whole =
            hex.len() == 2 * algorithm.name_and_length().1 && hex.bytes().all(|b| b.is_ascii_hexdigit());
        whole.then(|| Self { algorithm, hex: hex.to_ascii_lowercase() })
    }

    /// Sorts checksums of one file, the preferred algorithm first, and keeps one for each
    /// algorithm.
    ///
    /// An algorithm with two different checksums is dropped.
    pub fn consistent(mut all: Vec<Self>) -> Vec<Self> {
        all.sort_by_key(|checksum| std::cmp::Reverse(checksum.algorithm));
        let of_one_algorithm = all.chunk_by(|a, b| a.algorithm == b.algorithm);
        of_one_algorithm
            .filter(|same| same.iter().all(|c| *c == same[0]))
            .map(|same| same[0].clone())
            .collect()
    }
}

impl FromStr for Checksum {
    type Err = ParseChecksumError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let (name, hex) = text.trim().split_once(':')?;
            Self::from_hex(Algorithm::named(name)?, hex)
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
        write!(f, "{}:{}", self.algorithm, self.hex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_checksums_are_refused_and_contradicting_ones_dropped() {
        let texts = "|abc|md5:|crc32:00000000|md5:900150983cd24fb0d6963f7d28e17f7g|sha256:00";
        for text in texts.split('|') {
            assert!(text.parse::<Checksum>().is_err(), "{text}");
        }
        // Names of algorithms ignore case and hyphens.
        for (name, algorithm) in [
            ("sha256", Algorithm::Sha256),
            ("SHA-256", Algorithm::Sha256),
            ("BLAKE2b-256", Algorithm::Blake2b256),
            ("blake2b", Algorithm::Blake2b),
        ] {
            assert_eq!(Algorithm::named(name), Some(algorithm), "{name}");
        }
        assert_eq!(Algorithm::named("sha3-256"), None);
        // Contradicting ones are dropped, and the strongest comes first.
        let of = |algorithm: Algorithm, byte: u8| {
            Checksum::new(algorithm, &vec![byte; algorithm.name_and_length().1]).unwrap()
        };
        let (md5, sha256) = (of(Algorithm::Md5, 1), of(Algorithm::Sha256, 2));
        let all =
            vec![md5.clone(), of(Algorithm::Sha1, 3), sha256.clone(), of(Algorithm::Sha1, 4), md5.clone()];
        assert_eq!(Checksum::consistent(all), [sha256, md5]);
    }
}
