//! Builds and checks the description of one file of a document.

use std::cmp::Reverse;
use std::collections::HashSet;

use super::{LOWEST_PRIORITY, MAX_URLS, MetalinkError, MetalinkFile, MetalinkName, MetalinkUrl, Pieces};
use crate::checksum::{Algorithm, Checksum};
use crate::units::Bytes;

/// The file of the open element.
pub(super) struct FileBuilder {
    name: MetalinkName,
    size: Option<Bytes>,
    checksums: Vec<Checksum>,
    pieces: Option<Pieces>,
    sources: Vec<MetalinkUrl>,
    /// The algorithm of the open hash; `None` if unknown.
    hash: Option<Algorithm>,
    /// The open pieces; `None` if their algorithm is unknown.
    open_pieces: Option<Pieces>,
    /// The open URL, without its text.
    url: Option<MetalinkUrl>,
}

impl FileBuilder {
    pub(super) fn new(name: &str) -> Result<Self, MetalinkError> {
        Ok(Self {
            name: MetalinkName::parse(name)?,
            size: None,
            checksums: Vec::new(),
            pieces: None,
            sources: Vec::new(),
            hash: None,
            open_pieces: None,
            url: None,
        })
    }

    fn wrong<T>(&self, element: &'static str, why: impl Into<String>) -> Result<T, MetalinkError> {
        Err(MetalinkError::Value { file: self.name.to_string(), element, why: why.into() })
    }

    pub(super) fn size(&mut self, text: &str) -> Result<(), MetalinkError> {
        // Offsets in a file are signed 64-bit numbers (off_t).
        let Some(size) = number(text).filter(|size| i64::try_from(*size).is_ok()) else {
            return self.wrong("size", "it is not a number of bytes below 2^63");
        };
        if self.size.is_some_and(|known| known != Bytes::new(size)) {
            return self.wrong("size", "there are two that differ");
        }
        self.size = Some(Bytes::new(size));
        Ok(())
    }

    pub(super) fn begin_hash(&mut self, algorithm: Option<String>) {
        self.hash = algorithm.and_then(|name| Algorithm::named(&name));
    }

    pub(super) fn end_hash(&mut self, text: &str) -> Result<(), MetalinkError> {
        let Some(algorithm) = self.hash.take() else { return Ok(()) };
        let Some(checksum) = Checksum::from_hex(algorithm, text) else {
            return self.wrong("hash", format!("it is not a {algorithm} digest in hexadecimal"));
        };
        match self.checksums.iter().find(|known| known.algorithm == algorithm) {
            Some(known) if *known != checksum => {
                self.wrong("hash", format!("there are two of {algorithm} that differ"))
            }
            Some(_) => Ok(()),
            None => {
                self.checksums.push(checksum);
                Ok(())
            }
        }
    }

    pub(super) fn begin_pieces(
        &mut self,
        algorithm: Option<String>,
        length: Option<String>,
    ) -> Result<(), MetalinkError> {
        let length = length.as_deref().and_then(number).filter(|length| *length > 0);
        let Some(length) = length.map(Bytes::new) else {
            return self.wrong("pieces", "their length is not a positive number of bytes");
        };
        let algorithm = algorithm.and_then(|name| Algorithm::named(&name));
        self.open_pieces = algorithm.map(|algorithm| Pieces { length, algorithm, digests: Vec::new() });
        Ok(())
    }

    pub(super) fn piece(&mut self, text: &str) -> Result<(), MetalinkError> {
        let Some(pieces) = &mut self.open_pieces else { return Ok(()) };
        let algorithm = pieces.algorithm;
        match Checksum::from_hex(algorithm, text) {
            Some(digest) => {
                pieces.digests.push(digest);
                Ok(())
            }
            None => self.wrong("pieces", format!("a hash is not a {algorithm} digest in hexadecimal")),
        }
    }

    pub(super) fn end_pieces(&mut self) {
        let Some(pieces) = self.open_pieces.take() else { return };
        if self.pieces.as_ref().is_none_or(|known| known.algorithm < pieces.algorithm) {
            self.pieces = Some(pieces);
        }
    }

    pub(super) fn begin_url(
        &mut self,
        priority: Option<String>,
        location: Option<String>,
    ) -> Result<(), MetalinkError> {
        if self.sources.len() == MAX_URLS {
            return Err(MetalinkError::TooMany { what: "URLs of one file", limit: MAX_URLS });
        }
        let in_range = |priority: &u32| (1..=LOWEST_PRIORITY).contains(priority);
        let priority =
            priority.as_deref().and_then(number).and_then(|p| u32::try_from(p).ok()).filter(in_range);
        let country = |text: &String| text.len() == 2 && text.bytes().all(|b| b.is_ascii_alphabetic());
        self.url = Some(MetalinkUrl {
            url: String::new(),
            priority: priority.unwrap_or(LOWEST_PRIORITY),
            location: location.filter(country).map(|text| text.to_ascii_lowercase()),
        });
        Ok(())
    }

    /// Adds the URL, unless it is empty, or holds white space or a control character; others may be usable.
    pub(super) fn end_url(&mut self, text: &str) {
        let is_url = !text.is_empty() && !text.chars().any(|c| c.is_control() || c.is_whitespace());
        if let Some(source) = self.url.take().filter(|_| is_url) {
            self.sources.push(MetalinkUrl { url: text.to_owned(), ..source });
        }
    }

    /// Checks the complete description.
    pub(super) fn finish(mut self) -> Result<MetalinkFile, MetalinkError> {
        if let (Some(size), Some(pieces)) = (self.size, &self.pieces) {
            let (there, expected) = (pieces.digests.len() as u64, size.get().div_ceil(pieces.length.get()));
            if there != expected {
                let why = format!("there are {there}, and the file has {expected} of {}", pieces.length);
                return self.wrong("pieces", why);
            }
        }
        self.checksums.sort_by_key(|checksum| Reverse(checksum.algorithm));
        self.sources.sort_by_key(|source| source.priority);
        let mut seen = HashSet::new();
        self.sources.retain(|source| seen.insert(source.url.clone()));
        Ok(MetalinkFile {
            name: self.name,
            size: self.size,
            checksums: self.checksums,
            pieces: self.pieces.filter(|pieces| !pieces.digests.is_empty()),
            sources: self.sources,
        })
    }
}

/// Parses digits only; `str::parse` would also accept a sign.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}
