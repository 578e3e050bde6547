//! Digests computed in the order of a file's bytes: of the whole file (SHA-256 and others) and of
//! its pieces.

use std::fmt;
use std::io::{self, Read};

use digest::DynDigest;
use digest::consts::{U20, U48};
use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::units::Bytes;

use crate::cancel::Cancel;

/// The digests to compute for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WantedDigests {
    /// The algorithm of the whole file's digest.
    pub whole: Option<Algorithm>,
    /// The algorithm of the pieces' digests, and the length of every piece but the last.
    pub pieces: Option<(Algorithm, Bytes)>,
}

/// Digests of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileDigests {
    /// The digest of the whole file, if requested.
    pub whole: Option<Checksum>,
    /// The digests of the pieces in file order, if requested.
    pub pieces: Vec<Checksum>,
}

/// The digests of a file's first bytes, as far as hashed.
pub struct PrefixDigest {
    whole: Option<InOrder>,
    pieces: Option<PieceHasher>,
    hashed: u64,
}

struct InOrder {
    algorithm: Algorithm,
    hasher: Box<dyn DynDigest + Send>,
}

struct PieceHasher {
    of: InOrder,
    length: u64,
    complete: Vec<Checksum>,
    /// The bytes of the open piece that are not yet hashed.
    open: u64,
}

impl WantedDigests {
    /// Returns whether no digest is wanted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl InOrder {
    fn new(algorithm: Algorithm) -> Self {
        Self { algorithm, hasher: hasher(algorithm) }
    }

    /// Returns the digest of the bytes hashed so far; more bytes may follow.
    fn so_far(&self) -> Option<Checksum> {
        Checksum::new(self.algorithm, &self.hasher.box_clone().finalize())
    }
}

impl PieceHasher {
    fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let left = usize::try_from(self.length - self.open).unwrap_or(usize::MAX);
            let (part, rest) = bytes.split_at(left.min(bytes.len()));
            self.of.hasher.update(part);
            self.open += part.len() as u64;
            bytes = rest;
            if self.open == self.length {
                self.open = 0;
                self.complete.extend(Checksum::new(self.of.algorithm, &self.of.hasher.finalize_reset()));
            }
        }
    }
}

impl PrefixDigest {
    /// Creates digests of zero bytes.
    pub fn new(wanted: WantedDigests) -> Self {
        let pieces = wanted.pieces.map(|(algorithm, length)| PieceHasher {
            of: InOrder::new(algorithm),
            // The piece length of a metalink is never zero.
            length: length.get().max(1),
            complete: Vec::new(),
            open: 0,
        });
        Self { whole: wanted.whole.map(InOrder::new), pieces, hashed: 0 }
    }

    /// Returns the digests that are computed.
    pub fn wanted(&self) -> WantedDigests {
        WantedDigests {
            whole: self.whole.as_ref().map(|whole| whole.algorithm),
            pieces: self.pieces.as_ref().map(|pieces| (pieces.of.algorithm, Bytes::new(pieces.length))),
        }
    }

    /// Returns the number of bytes hashed, which is the offset of the next byte.
    pub fn hashed(&self) -> u64 {
        self.hashed
    }

    /// Hashes the next bytes of the file.
    pub fn update(&mut self, bytes: &[u8]) {
        if let Some(whole) = &mut self.whole {
            whole.hasher.update(bytes);
        }
        if let Some(pieces) = &mut self.pieces {
            pieces.update(bytes);
        }
        self.hashed += bytes.len() as u64;
    }

    /// Returns the digests of the bytes hashed so far; an incomplete piece counts as the last one.
    pub fn digests(&self) -> FileDigests {
        let pieces = self.pieces.as_ref().map(|pieces| {
            let last = (pieces.open > 0).then(|| pieces.of.so_far()).flatten();
            pieces.complete.iter().cloned().chain(last).collect()
        });
        FileDigests {
            whole: self.whole.as_ref().and_then(InOrder::so_far),
            pieces: pieces.unwrap_or_default(),
        }
    }
}

impl fmt::Debug for PrefixDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrefixDigest").field("wanted", &self.wanted()).field("hashed", &self.hashed).finish()
    }
}

/// Reads a file from its current position to the end and returns the digests; `Ok(None)` if
/// cancelled.
///
/// # Errors
/// The kernel's error on a read.
pub fn of_file(
    mut file: impl Read,
    wanted: WantedDigests,
    cancel: &Cancel,
) -> io::Result<Option<FileDigests>> {
    let mut digest = PrefixDigest::new(wanted);
    let mut buf = vec![0; 1 << 20];
    while !cancel.is_cancelled() {
        match file.read(&mut buf)? {
            0 => return Ok(Some(digest.digests())),
            n => digest.update(&buf[..n]),
        }
    }
    Ok(None)
}

fn hasher(algorithm: Algorithm) -> Box<dyn DynDigest + Send> {
    match algorithm {
        Algorithm::Md5 => Box::new(md5::Md5::default()),
        Algorithm::Blake2b128 => Box::new(blake2::Blake2b128::default()),
        Algorithm::Sha1 => Box::new(sha1::Sha1::default()),
        Algorithm::Blake2b160 => Box::new(blake2::Blake2b::<U20>::default()),
        Algorithm::Sha224 => Box::new(sha2::Sha224::default()),
        Algorithm::Sha256 => Box::new(sha2::Sha256::default()),
        Algorithm::Blake2b256 => Box::new(blake2::Blake2b256::default()),
        Algorithm::Sha384 => Box::new(sha2::Sha384::default()),
        Algorithm::Blake2b384 => Box::new(blake2::Blake2b::<U48>::default()),
        Algorithm::Sha512 => Box::new(sha2::Sha512::default()),
        Algorithm::Blake2b => Box::new(blake2::Blake2b512::default()),
        Algorithm::Blake3 => Box::new(blake3::Hasher::new()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hashed(bytes: &[u8], wanted: WantedDigests, cuts: &[usize]) -> FileDigests {
        let mut digest = PrefixDigest::new(wanted);
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        for pair in cuts.windows(2) {
            digest.update(&bytes[pair[0]..pair[1]]);
            // Reading the digests does not change them.
            digest.digests();
        }
        assert_eq!(digest.hashed(), bytes.len() as u64);
        digest.digests()
    }

    fn sha256(bytes: &[u8]) -> Checksum {
        use sha2::Digest as _;
        Checksum::new(Algorithm::Sha256, &sha2::Sha256::digest(bytes)).unwrap()
    }

    #[test]
    fn digests_of_abc() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc").unwrap();
        for text in [
            "md5:900150983cd24fb0d6963f7d28e17f72",
            "sha1:a9993e364706816aba3e25717850c26c9cd0d89d",
            "SHA-256:BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD",
            "blake2b:ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1\
             7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923",
            "blake2b-128:cf4ab791c62b8d2b2109c90275287816",
            "blake2b-160:384264f676f39536840523f284921cdc68b6846b",
            "blake2b-256:bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319",
            "blake2b-384:6f56a82c8e7ef526dfe182eb5212f7db9df1317e57815dbda46083fc30f54ee6c66ba83be64b302d7cba6ce15bb556f4",
            "sha-224:23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7",
            "sha384:cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7",
            "blake3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
        ] {
            let wanted: Checksum = text.parse().unwrap();
            let whole = WantedDigests { whole: Some(wanted.algorithm), pieces: None };
            let found = super::of_file(file.reopen().unwrap(), whole, &Cancel::new()).unwrap().unwrap();
            assert_eq!(found, FileDigests { whole: Some(wanted), pieces: Vec::new() });
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// The result does not depend on how the bytes are split.
        #[test]
        fn digests_of_whole_and_pieces(size in 0usize..5000, length in 1u64..3000, cuts: [usize; 5]) {
            let bytes: Vec<u8> = (0..size).map(|at| (at * 31 % 251) as u8).collect();
            let pieces = Some((Algorithm::Sha256, Bytes::new(length)));
            let found = hashed(&bytes, WantedDigests { whole: Some(Algorithm::Sha256), pieces }, &cuts);
            prop_assert_eq!(found.whole, Some(sha256(&bytes)));
            let plain: Vec<_> = bytes.chunks(length as usize).map(sha256).collect();
            prop_assert_eq!(found.pieces, plain);
        }
    }
}
