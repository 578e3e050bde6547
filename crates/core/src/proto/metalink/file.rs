//! Builds and checks the description of one file of a document.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fmt;

use super::document::too_many;
use super::{LOWEST_PRIORITY, MAX_URLS, MetalinkFile, MetalinkName, MetalinkUrl, Pieces};
use crate::checksum::{Algorithm, Checksum};
use crate::proto::{Malformed, number};
use crate::units::Bytes;

/// The file of the open element.
pub(super) struct FileBuilder {
    file: MetalinkFile,
    /// The open pieces; `None` if their algorithm is unknown.
    open_pieces: Option<Pieces>,
}

impl FileBuilder {
    pub(super) fn new(name: &str) -> Result<Self, Malformed> {
        let name = MetalinkName::parse(name)?;
        let (checksums, sources) = (Vec::new(), Vec::new());
        Ok(Self {
            file: MetalinkFile { name, size: None, checksums, pieces: None, sources },
            open_pieces: None,
        })
    }

    fn wrong<T>(&self, element: &'static str, why: impl fmt::Display) -> Result<T, Malformed> {
        let file = &self.file.name;
        Err(Malformed::new(format!("the metalink's <{element}> of '{file}' is wrong: {why}")))
    }

    pub(super) fn size(&mut self, text: &str) -> Result<(), Malformed> {
        // Offsets in a file are signed 64-bit numbers (off_t).
        let Some(size) = number::<u64>(text).filter(|size| i64::try_from(*size).is_ok()) else {
            return self.wrong("size", "it is not a number of bytes below 2^63");
        };
        if self.file.size.is_some_and(|known| known != Bytes::new(size)) {
            return self.wrong("size", "there are two that differ");
        }
        self.file.size = Some(Bytes::new(size));
        Ok(())
    }

    /// Adds a hash, unless its algorithm, the first attribute, is unknown.
    pub(super) fn hash(&mut self, attributes: &[Option<String>; 2], text: &str) -> Result<(), Malformed> {
        let [algorithm, _] = attributes;
        let Some(algorithm) = algorithm.as_deref().and_then(Algorithm::named) else { return Ok(()) };
        let Some(checksum) = Checksum::from_hex(algorithm, text) else {
            return self.wrong("hash", format!("it is not a {algorithm} digest in hexadecimal"));
        };
        match self.file.checksums.iter().find(|known| known.algorithm == algorithm) {
            Some(known) if *known != checksum => {
                self.wrong("hash", format!("there are two of {algorithm} that differ"))
            }
            Some(_) => Ok(()),
            None => {
                self.file.checksums.push(checksum);
                Ok(())
            }
        }
    }

    pub(super) fn begin_pieces(
        &mut self,
        algorithm: Option<String>,
        length: Option<String>,
    ) -> Result<(), Malformed> {
        let length = length.as_deref().and_then(number::<u64>).filter(|length| *length > 0);
        let Some(length) = length.map(Bytes::new) else {
            return self.wrong("pieces", "their length is not a positive number of bytes");
        };
        let algorithm = algorithm.and_then(|name| Algorithm::named(&name));
        self.open_pieces = algorithm.map(|algorithm| Pieces { length, algorithm, digests: Vec::new() });
        Ok(())
    }

    pub(super) fn piece(&mut self, text: &str) -> Result<(), Malformed> {
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
        if self.file.pieces.as_ref().is_none_or(|known| known.algorithm < pieces.algorithm) {
            self.file.pieces = Some(pieces);
        }
    }

    /// Adds a URL, unless it is empty, or holds white space or a control character; others may be
    /// usable.
    pub(super) fn url(
        &mut self,
        [priority, location]: [Option<String>; 2],
        text: &str,
    ) -> Result<(), Malformed> {
        if self.file.sources.len() == MAX_URLS {
            return Err(too_many("URLs of one file", MAX_URLS));
        }
        if text.is_empty() || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Ok(());
        }
        let priority = priority.as_deref().and_then(number::<u32>);
        let in_range = priority.filter(|priority| (1..=LOWEST_PRIORITY).contains(priority));
        let country = |text: &String| text.len() == 2 && text.bytes().all(|b| b.is_ascii_alphabetic());
        self.file.sources.push(MetalinkUrl {
            url: text.to_owned(),
            priority: in_range.unwrap_or(LOWEST_PRIORITY),
            location: location.filter(country).map(|text| text.to_ascii_lowercase()),
        });
        Ok(())
    }

    /// Checks the complete description.
    pub(super) fn finish(self) -> Result<MetalinkFile, Malformed> {
        if let (Some(size), Some(pieces)) = (self.file.size, &self.file.pieces) {
            let (there, expected) = (pieces.digests.len() as u64, size.get().div_ceil(pieces.length.get()));
            if there != expected {
                let why = format!("there are {there}, and the file has {expected} of {}", pieces.length);
                return self.wrong("pieces", why);
            }
        }
        let mut file = self.file;
        file.checksums.sort_by_key(|checksum| Reverse(checksum.algorithm));
        file.sources.sort_by_key(|source| source.priority);
        let mut seen = HashSet::new();
        file.sources.retain(|source| seen.insert(source.url.clone()));
        file.pieces = file.pieces.filter(|pieces| !pieces.digests.is_empty());
        Ok(file)
    }
}
