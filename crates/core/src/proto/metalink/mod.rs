//! Metalink 4 (RFC 5854), and 3: the sources, digests and pieces of one or more files.
//!
//! ```
//! use longhaul_core::proto::metalink::Metalink;
//!
//! let text = br#"<metalink xmlns="urn:ietf:params:xml:ns:metalink">
//!   <file name="a/b.iso"><size>5</size><url priority="2">http://h/b.iso</url></file></metalink>"#;
//! let file = &Metalink::parse(text)?.files[0];
//! assert_eq!((file.name.to_string().as_str(), file.sources[0].priority), ("a/b.iso", 2));
//! # Ok::<(), longhaul_core::proto::Malformed>(())
//! ```

mod document;
mod file;
mod name;
mod write;

pub use name::MetalinkName;

use crate::checksum::{Algorithm, Checksum};
use crate::proto::Malformed;
use crate::ranges::ByteRange;
use crate::units::Bytes;

/// The media type of a document (RFC 5854, section 7.1).
pub const MEDIA_TYPE: &str = "application/metalink4+xml";
/// The largest accepted document, which has room for the SHA-256 digests of 200,000 pieces.
pub const MAX_DOCUMENT: Bytes = Bytes::mib(16);
/// The largest accepted number of files in one document.
pub const MAX_FILES: usize = 10_000;
/// The largest accepted number of URLs of one file.
pub const MAX_URLS: usize = 10_000;
/// The priority of a URL without one: the lowest in RFC 5854, section 4.2.16.1.
pub const LOWEST_PRIORITY: u32 = 999_999;

/// A Metalink document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metalink {
    /// The files in the document's order, at least one; their names are unique.
    pub files: Vec<MetalinkFile>,
}

/// A file described in a Metalink. It may have no sources and no checksums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetalinkFile {
    /// The name under which the file is stored.
    pub name: MetalinkName,
    /// The size.
    pub size: Option<Bytes>,
    /// Digests of the whole file by supported algorithms, the preferred algorithm first; one per
    /// algorithm.
    pub checksums: Vec<Checksum>,
    /// Digests of the file's pieces by the preferred algorithm, if present.
    pub pieces: Option<Pieces>,
    /// The distinct URLs of the file, the lowest `priority` first.
    pub sources: Vec<MetalinkUrl>,
}

/// Digests of consecutive pieces of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pieces {
    /// The length of each piece but the last, which may be shorter; at least one byte.
    pub length: Bytes,
    /// The algorithm of all digests.
    pub algorithm: Algorithm,
    /// One digest per piece. Their number matches the file's size if that is known.
    pub digests: Vec<Checksum>,
}

/// A URL of a file, of any scheme.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetalinkUrl {
    /// The URL as written, without surrounding white space; not parsed, but free of control
    /// characters.
    pub url: String,
    /// The priority, from 1 (preferred) to [`LOWEST_PRIORITY`].
    pub priority: u32,
    /// The server's country (ISO 3166-1 alpha-2), in lower case.
    pub location: Option<String>,
}

impl Metalink {
    /// Parses a document in UTF-8, or in Latin-1 if its XML declaration says so.
    ///
    /// Elements of other namespaces, `metaurl`, hashes of unknown algorithms and malformed URLs are
    /// ignored. A document type declaration and references to entities that XML does not predefine
    /// are refused.
    ///
    /// # Errors
    /// [`Malformed`], which names the error in the document.
    pub fn parse(document: &[u8]) -> Result<Self, Malformed> {
        document::parse(document)
    }
}

impl Pieces {
    /// Returns the length of pieces for a file of `size` bytes: a power of two of at least 1 MiB
    /// that gives at most 16,384 pieces.
    pub fn length_for(size: Bytes) -> Bytes {
        const MIN_LENGTH: Bytes = Bytes::mib(1);
        const MAX_PIECES: u64 = 16_384;
        let length = size.get().div_ceil(MAX_PIECES).checked_next_power_of_two();
        length.map_or(Bytes::new(1 << 63), Bytes::new).max(MIN_LENGTH)
    }

    /// Returns the ranges of a file of `size` bytes whose pieces have another digest in `found`;
    /// `None` if either side does not have exactly one digest per piece.
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
    /// Returns the checksum of the preferred algorithm.
    pub fn best_checksum(&self) -> Option<&Checksum> {
        self.checksums.first()
    }
}

#[cfg(test)]
mod tests;
