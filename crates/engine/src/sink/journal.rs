//! The journal of an interrupted transfer, by which the next run can resume.

use std::io;

use longhaul_core::checksum::Checksum;
use longhaul_core::identity::Identity;
use longhaul_core::proto::http::Validator;
use longhaul_core::ranges::RangeSet;
use longhaul_core::units::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The journal of a partial file: the identity of the file, and the ranges on disk.
///
/// Several sources may serve one file, each under its own [`Identity`]. Written as JSON, version 2;
/// version 1, which has one source and its validator, is also read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    version: u32,
    /// The file's size.
    pub size: Bytes,
    /// The sources, the latest last.
    pub sources: Vec<JournalSource>,
    /// The digest of the whole file, if known at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Checksum>,
    /// A checksum that the complete file does not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refuted: Option<Checksum>,
    /// The committed ranges.
    pub committed: RangeSet,
}

/// A source of the file's bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalSource {
    /// The URL without secrets, for messages.
    pub url: String,
    /// The BLAKE3 digest of the complete URL with its query, for comparison.
    url_digest: String,
    /// The identity of the file's version at this source.
    pub identity: Identity,
}

/// The relation of a source to the file of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceMatch {
    /// The source serves the same version of the file: its URL, size and identity are known.
    Same,
    /// The source has an equal size, and an equal ETag or date under another URL, or the same
    /// expected digest. That is no proof, because some servers give two files of equal size and
    /// time the same ETag. A sample of bytes must be compared.
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
/// The maximum number of sources in a journal; the oldest are dropped. Hourly expiring links are
/// refreshed often.
const MAX_SOURCES: usize = 64;

impl Journal {
    /// Creates the journal of a file without bytes on disk; `digest` is that of the whole file, if
    /// known at the start.
    pub fn new(size: Bytes, sources: Vec<JournalSource>, digest: Option<Checksum>) -> Self {
        let (committed, refuted) = (RangeSet::new(), None);
        let mut journal = Self { version: VERSION, size, sources: Vec::new(), digest, refuted, committed };
        sources.into_iter().for_each(|source| journal.add_source(source));
        journal
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

    /// Returns the relation of a source that serves `size` bytes under `identity` to the file.
    ///
    /// `digest` is that of the whole file, as given by the user or a metalink. ETags and dates
    /// distinguish versions under one URL only (RFC 9110, section 8.8.3).
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
        let journal = match version {
            1 => serde_json::from_slice::<Version1>(text).map_err(damaged)?.into_journal()?,
            VERSION => serde_json::from_slice::<Self>(text).map_err(damaged)?,
            later @ 3.. => return Err(DecodeError::Version(later)),
            0 => return Err(DecodeError::Damaged("no journal has version 0".to_owned())),
        };
        let Self { size, sources, committed, .. } = &journal;
        if sources.is_empty() {
            return Err(DecodeError::Damaged("it has no source".to_owned()));
        }
        if committed.end() > size.get() {
            return Err(DecodeError::Damaged(format!(
                "it has {committed} of a file of {} bytes",
                size.get()
            )));
        }
        Ok(journal)
    }

    /// Encodes the journal with these committed ranges.
    ///
    /// # Errors
    /// Serialisation errors; none is expected.
    pub fn encode(&self, committed: &RangeSet) -> io::Result<Vec<u8>> {
        let Self { version, size, sources, digest, refuted, committed: _ } = self;
        let (sources, digest, refuted) = (sources.clone(), digest.clone(), refuted.clone());
        let committed = committed.clone();
        Ok(serde_json::to_vec(&Self { version: *version, size: *size, sources, digest, refuted, committed })?)
    }
}

impl JournalSource {
    /// Creates a source; `shown` is `url` without secrets.
    pub fn new(url: &str, shown: String, identity: Identity) -> Self {
        Self { url: shown, url_digest: url_digest(url), identity }
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

/// The first format.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Version1 {
    #[serde(rename = "version")]
    _version: u32,
    url: String,
    url_digest: String,
    size: Bytes,
    /// The value for If-Range.
    validator: String,
    committed: RangeSet,
}

impl Version1 {
    fn into_journal(self) -> Result<Journal, DecodeError> {
        let Self { url, url_digest, size, validator, committed, .. } = self;
        let validator = Validator::parse(&validator)
            .ok_or_else(|| DecodeError::Damaged(format!("{validator:?} is no validator")))?;
        let source = JournalSource { url, url_digest, identity: validator.into() };
        Ok(Journal { committed, ..Journal::new(size, vec![source], None) })
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
