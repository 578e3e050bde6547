//! Metalink 4 (RFC 5854): the sources, digests and pieces of one or more files.
//!
//! ```
//! use longhaul_core::proto::metalink::Metalink;
//!
//! let text = br#"<metalink xmlns="urn:ietf:params:xml:ns:metalink">
//!   <file name="a/b.iso"><size>5</size><url priority="2">http://h/b.iso</url></file></metalink>"#;
//! let file = &Metalink::parse(text)?.files[0];
//! assert_eq!((file.name.to_string().as_str(), file.sources[0].priority), ("a/b.iso", 2));
//! # Ok::<(), longhaul_core::proto::metalink::MetalinkError>(())
//! ```

mod document;
mod error;
mod file;
mod name;
mod write;

pub use error::MetalinkError;
pub use name::MetalinkName;

use crate::checksum::{Algorithm, Checksum};
use crate::ranges::ByteRange;
use crate::units::Bytes;

/// The media type of a document (RFC 5854, section 7.1).
pub const MEDIA_TYPE: &str = "application/metalink4+xml";
/// The largest document that is read: room for the SHA-256 digests of 200,000 pieces.
pub const MAX_DOCUMENT: Bytes = Bytes::mib(16);
/// The most files in one document.
pub const MAX_FILES: usize = 10_000;
/// The most URLs of one file.
pub const MAX_URLS: usize = 10_000;
/// The priority of a URL without one: the lowest that RFC 5854, section 4.2.16.1, allows.
pub const LOWEST_PRIORITY: u32 = 999_999;

/// A Metalink document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metalink {
    /// The files, in the document's order; at least one, and no two of one name.
    pub files: Vec<MetalinkFile>,
}

/// A file that a Metalink describes. Sources and checksums may be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetalinkFile {
    /// The name under which to store the file.
    pub name: MetalinkName,
    /// The size.
    pub size: Option<Bytes>,
    /// Digests of the whole file by known algorithms, the preferred one first; one an algorithm.
    pub checksums: Vec<Checksum>,
    /// Digests of the file's pieces by the preferred algorithm, where there are any.
    pub pieces: Option<Pieces>,
    /// URLs of the file, the lowest `priority` first, each once.
    pub sources: Vec<MetalinkUrl>,
}

/// Digests of consecutive pieces of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pieces {
    /// The length of each piece but the last, which may be shorter; at least one byte.
    pub length: Bytes,
    /// The algorithm of all digests.
    pub algorithm: Algorithm,
    /// One digest a piece. Their number agrees with the file's size where that is known.
    pub digests: Vec<Checksum>,
}

/// A URL of a file, of any scheme.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetalinkUrl {
    /// The URL as written: not parsed, but without white space around it and control characters in it.
    pub url: String,
    /// Which URL to prefer: the lowest, from 1 to [`LOWEST_PRIORITY`].
    pub priority: u32,
    /// The server's country (ISO 3166-1 alpha-2), in lower case.
    pub location: Option<String>,
}

impl Metalink {
    /// Parses a document in UTF-8.
    ///
    /// Elements of other namespaces, `metaurl` and hashes of unknown algorithms are ignored. Neither a document
    /// type declaration nor a reference to an entity that XML does not predefine is accepted.
    ///
    /// # Errors
    /// [`MetalinkError`], which names what in the document is wrong.
    pub fn parse(document: &[u8]) -> Result<Self, MetalinkError> {
        document::parse(document)
    }
}

impl Pieces {
    /// Returns the length of pieces for a file of `size` bytes: a power of two from 1 MiB on, for at most 16,384 pieces.
    pub fn length_for(size: Bytes) -> Bytes {
        const LEAST: Bytes = Bytes::mib(1);
        const MOST_PIECES: u64 = 16_384;
        let length = size.get().div_ceil(MOST_PIECES).checked_next_power_of_two();
        length.map_or(Bytes::new(1 << 63), Bytes::new).max(LEAST)
    }

    /// Returns which pieces of a file of `size` bytes have another digest in `found`; `None` where one of the two has not
    /// exactly one digest for each piece.
    pub fn differing(&self, found: &[Checksum], size: Bytes) -> Option<Vec<ByteRange>> {
        let pieces = size.get().div_ceil(self.length.get().max(1));
        let covers = |digests: &[Checksum]| digests.len() as u64 == pieces;
        if !covers(&self.digests) || !covers(found) {
            return None;
        }
        let piece = |index: u64| {
            let start = index * self.length.get();
            ByteRange::new(start, start.saturating_add(self.length.get()).min(size.get()))
        };
        let both = self.digests.iter().zip(found);
        Some((0..).zip(both).filter(|(_, (ours, theirs))| ours != theirs).map(|(at, _)| piece(at)).collect())
    }
}

impl MetalinkFile {
    /// Returns the checksum by the preferred algorithm.
    pub fn best_checksum(&self) -> Option<&Checksum> {
        self.checksums.first()
    }
}

#[cfg(test)]
mod tests;
