//! The journal of an interrupted transfer, by which the next run can resume.

use std::io;

use longhaul_core::checksum::{Checksum, ParseChecksumError};
use longhaul_core::identity::Identity;
use longhaul_core::proto::http::Validator;
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The journal of a partial file: the identity of the file, and the ranges on disk.
///
/// Several sources may serve one file, each under its own [`Identity`]. Written as JSON, version 2; version 1, which
/// has one source and its validator, is also read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    size: Bytes,
    sources: Vec<JournalSource>,
    digest: Option<Checksum>,
    /// A checksum that the complete file does not have.
    refuted: Option<Checksum>,
    committed: RangeSet,
}

/// A source of the file's bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalSource {
    /// The URL without secrets, for messages.
    url: String,
    /// The BLAKE3 digest of the complete URL with its query, for comparison.
    url_digest: String,
    /// The identity of the file's version at this source.
    identity: Identity,
}

/// The relation of a source to the file of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceMatch {
    /// The source serves the same version of the file: its URL, size and identity are known.
    Same,
    /// The source has an equal size, and an equal ETag or date under another URL, or the same expected digest. That is
    /// no proof, because some servers give two files of equal size and time the same ETag. A sample of bytes must be
    /// compared.
    FreshUrl,
    /// The source serves another file, or this cannot be excluded.
    Other,
}

/// The result of reading the journal of a partial file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredJournal {
    /// No journal exists.
    Absent,
    /// The journal is unusable: the transfer starts over with a warning.
    Damaged {
        /// The reason.
        why: String,
    },
    /// The journal is valid.
    Sound(Journal),
}

/// The reason why a text is not a journal.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// A later version wrote it.
    #[error("it is of version {0}")]
    Version(u32),
    /// The text is not a journal, or is inconsistent.
    #[error("{0}")]
    Damaged(String),
}

pub(super) const VERSION: u32 = 2;
/// The maximum number of sources in a journal; the oldest are dropped. Hourly expiring links are refreshed often.
const MAX_SOURCES: usize = 64;

impl Journal {
    /// Creates the journal of a file without bytes on disk; `digest` is that of the whole file, if known at the start.
    pub fn new(size: Bytes, sources: Vec<JournalSource>, digest: Option<Checksum>) -> Self {
        let mut journal =
            Self { size, sources: Vec::new(), digest, refuted: None, committed: RangeSet::new() };
        sources.into_iter().for_each(|source| journal.add_source(source));
        journal
    }

    /// Returns the file's size.
    pub fn size(&self) -> Bytes {
        self.size
    }

    /// Returns the digest of the whole file, if known at the start.
    pub fn digest(&self) -> Option<&Checksum> {
        self.digest.as_ref()
    }

    /// Returns the checksum that the complete file does not have.
    pub fn refuted(&self) -> Option<&Checksum> {
        self.refuted.as_ref()
    }

    /// Records that the complete file does not have this checksum; `None` clears the record.
    pub fn set_refuted(&mut self, refuted: Option<Checksum>) {
        self.refuted = refuted;
    }

    /// Returns the sources, the latest last.
    pub fn sources(&self) -> &[JournalSource] {
        &self.sources
    }

    /// Returns the source with this URL.
    pub fn source(&self, url: &str) -> Option<&JournalSource> {
        let digest = url_digest(url);
        self.sources.iter().find(|source| source.url_digest == digest)
    }

    /// Adds a source; replaces an earlier one with its URL.
    pub fn add_source(&mut self, source: JournalSource) {
        self.sources.retain(|other| other.url_digest != source.url_digest);
        self.sources.push(source);
        let surplus = self.sources.len().saturating_sub(MAX_SOURCES);
        self.sources.drain(..surplus);
    }

    /// Returns the committed ranges.
    pub fn committed(&self) -> &RangeSet {
        &self.committed
    }

    /// Returns the relation of a source that serves `size` bytes under `identity` to the file.
    ///
    /// `digest` is that of the whole file, as given by the user or a metalink. ETags and dates distinguish versions
    /// under one URL only (RFC 9110, section 8.8.3).
    pub fn match_source(
        &self,
        url: &str,
        size: Bytes,
        identity: Option<&Identity>,
        digest: Option<&Checksum>,
    ) -> SourceMatch {
        if size != self.size {
            return SourceMatch::Other;
        }
        let known = self.source(url);
        let digests = || digest.into_iter().chain(identity.and_then(digest_of));
        let same_digest = digests().any(|given| self.digests().any(|ours| ours == given));
        if known.is_some_and(|source| Some(&source.identity) == identity) {
            return SourceMatch::Same;
        }
        // The digest is the expected one; it does not prove the bytes present.
        if same_digest && identity.is_some() {
            return SourceMatch::FreshUrl;
        }
        let other_digest =
            digests().any(|given| self.digests().any(|ours| ours.algorithm == given.algorithm));
        let equal = || self.sources.iter().any(|source| Some(&source.identity) == identity);
        match identity {
            Some(Identity::ETag(_) | Identity::LastModified(_) | Identity::ModificationTime(_))
                if known.is_none() && !other_digest && equal() =>
            {
                SourceMatch::FreshUrl
            }
            _ => SourceMatch::Other,
        }
    }

    fn digests(&self) -> impl Iterator<Item = &Checksum> {
        self.digest.iter().chain(self.sources.iter().filter_map(|source| digest_of(&source.identity)))
    }

    /// Reads a journal of version 1 or 2.
    ///
    /// # Errors
    /// [`DecodeError::Damaged`], also for ranges beyond the end of the file, or without a source.
    pub fn decode(text: &[u8]) -> Result<Self, DecodeError> {
        let damaged = |error: serde_json::Error| DecodeError::Damaged(format!("it is no journal: {error}"));
        let Version { version } = serde_json::from_slice(text).map_err(damaged)?;
        let document = match version {
            1 => serde_json::from_slice::<Version1>(text).map_err(damaged)?.into_version2()?,
            VERSION => serde_json::from_slice::<Version2>(text).map_err(damaged)?,
            later @ 3.. => return Err(DecodeError::Version(later)),
            0 => return Err(DecodeError::Damaged("no journal has version 0".to_owned())),
        };
        document.check()
    }

    /// Encodes the journal with these committed ranges.
    ///
    /// # Errors
    /// Serialisation errors; none is expected.
    pub fn encode(&self, committed: &RangeSet) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec(&Version2 {
            version: VERSION,
            size: self.size.get(),
            sources: self.sources.clone(),
            digest: self.digest.as_ref().map(Checksum::to_string),
            refuted: self.refuted.as_ref().map(Checksum::to_string),
            committed: committed.iter().map(|r| (r.start(), r.end())).collect(),
        })?)
    }
}

impl JournalSource {
    /// Creates a source; `shown` is `url` without secrets.
    pub fn new(url: &str, shown: String, identity: Identity) -> Self {
        Self { url: shown, url_digest: url_digest(url), identity }
    }

    /// Returns the URL without secrets.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the identity of the file's version at this source.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}

impl StoredJournal {
    /// Returns the journal if valid.
    pub fn sound(self) -> Option<Journal> {
        match self {
            Self::Sound(journal) => Some(journal),
            Self::Absent | Self::Damaged { .. } => None,
        }
    }
}

/// The version alone: other versions may have other fields.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// The current format.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Version2 {
    version: u32,
    size: u64,
    sources: Vec<JournalSource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refuted: Option<String>,
    /// Ranges as `[start, end)`.
    committed: Vec<(u64, u64)>,
}

/// The first format.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Version1 {
    #[serde(rename = "version")]
    _version: u32,
    url: String,
    url_digest: String,
    size: u64,
    /// The value for If-Range.
    validator: String,
    committed: Vec<(u64, u64)>,
}

impl Version1 {
    fn into_version2(self) -> Result<Version2, DecodeError> {
        let Self { url, url_digest, size, validator, committed, .. } = self;
        let validator = Validator::parse(&validator)
            .ok_or_else(|| DecodeError::Damaged(format!("{validator:?} is no validator")))?;
        let sources = vec![JournalSource { url, url_digest, identity: validator.into() }];
        Ok(Version2 { version: VERSION, size, sources, digest: None, refuted: None, committed })
    }
}

impl Version2 {
    fn check(self) -> Result<Journal, DecodeError> {
        let Self { size, sources, digest, refuted, committed, .. } = self;
        let damaged = |why: String| Err(DecodeError::Damaged(why));
        if sources.is_empty() {
            return damaged("it has no source".to_owned());
        }
        if let Some((start, end)) = committed.iter().find(|&&(start, end)| start >= end || end > size) {
            return damaged(format!("it has bytes {start}..{end} of a file of {size}"));
        }
        let checksum = |text: Option<String>| {
            let parsed = text.map(|text| text.parse()).transpose();
            parsed.map_err(|error: ParseChecksumError| DecodeError::Damaged(error.to_string()))
        };
        let (digest, refuted) = (checksum(digest)?, checksum(refuted)?);
        let committed = committed.into_iter().map(|(start, end)| ByteRange::new(start, end)).collect();
        Ok(Journal { committed, refuted, ..Journal::new(Bytes::new(size), sources, digest) })
    }
}

fn url_digest(url: &str) -> String {
    blake3::hash(url.as_bytes()).to_hex().to_string()
}

fn digest_of(identity: &Identity) -> Option<&Checksum> {
    match identity {
        Identity::Digest(checksum) => Some(checksum),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
