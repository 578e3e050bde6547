//! What an interrupted transfer leaves behind so that the next run can resume.

use std::io;
use std::path::PathBuf;

use longhaul_core::checksum::{Checksum, ParseChecksumError};
use longhaul_core::identity::Identity;
use longhaul_core::proto::http::Validator;
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The journal of a partial file: which file it is a part of, and which of its bytes are on disk.
///
/// Several sources may serve one file, each under an [`Identity`] of its own. Written as JSON, version 2; a journal of
/// version 1, which knows one source and its validator, is read too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    size: Bytes,
    sources: Vec<JournalSource>,
    digest: Option<Checksum>,
    /// A checksum that the complete file was found not to have.
    refuted: Option<Checksum>,
    committed: RangeSet,
}

/// A place that the file's bytes came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalSource {
    /// The URL without secrets: for people.
    url: String,
    /// The whole URL's BLAKE3 digest, query and all: for the program.
    url_digest: String,
    /// What identified the file's state there.
    identity: Identity,
}

/// How a source relates to the file of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceMatch {
    /// It serves the file in the same state: a known URL with its size and identity.
    Same,
    /// It has the same size, and an equal ETag or date under another URL, or is asked for by the same digest. That is no
    /// proof: some servers give two files of one size and time the same ETag. A sample of bytes must be compared.
    FreshUrl,
    /// It serves another file, or cannot show that it does not.
    Other,
}

/// A journal as it was found beside a partial file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredJournal {
    /// There is none.
    Absent,
    /// It cannot be used: the transfer starts over, and the user is told why.
    Damaged {
        /// What is wrong.
        why: String,
    },
    /// It can be resumed from.
    Sound(Journal),
}

/// Why a journal that is there cannot be read by this program, though another may be able to.
#[derive(Debug, Error)]
pub enum JournalError {
    /// It was written by a later version.
    #[error(
        "{path} is a journal of version {version}, and this longhaul knows versions 1 to {VERSION}: resume with the \
        longhaul that wrote it, or start over with --no-resume"
    )]
    Version {
        /// The journal.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// The system does not let it be read.
    #[error("cannot read the journal {path}: {source}; make it readable, or start over with --no-resume")]
    Read {
        /// The journal.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
}

/// Why a text is no journal.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// It is of a later version.
    #[error("it is of version {0}")]
    Version(u32),
    /// It is no journal, or contradicts itself.
    #[error("{0}")]
    Damaged(String),
}

const VERSION: u32 = 2;
/// The most sources that a journal holds; the oldest leave first. A link that expires hourly is refreshed often.
const MOST_SOURCES: usize = 64;

impl Journal {
    /// Makes the journal of a file of which nothing is on the disk yet; `digest` is that of the whole file, where it
    /// was known at the beginning.
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

    /// Returns the digest of the whole file, where the transfer began with one.
    pub fn digest(&self) -> Option<&Checksum> {
        self.digest.as_ref()
    }

    /// Returns the checksum that the complete file was found not to have.
    pub fn refuted(&self) -> Option<&Checksum> {
        self.refuted.as_ref()
    }

    /// Notes that the complete file does not have this checksum, or forgets that it has not.
    pub fn set_refuted(&mut self, refuted: Option<Checksum>) {
        self.refuted = refuted;
    }

    /// Returns the sources, the latest last.
    pub fn sources(&self) -> &[JournalSource] {
        &self.sources
    }

    /// Returns the source of this URL.
    pub fn source(&self, url: &str) -> Option<&JournalSource> {
        let digest = url_digest(url);
        self.sources.iter().find(|source| source.url_digest == digest)
    }

    /// Adds a source, in place of an earlier one of its URL.
    pub fn add_source(&mut self, source: JournalSource) {
        self.sources.retain(|other| other.url_digest != source.url_digest);
        self.sources.push(source);
        let surplus = self.sources.len().saturating_sub(MOST_SOURCES);
        self.sources.drain(..surplus);
    }

    /// Returns the committed ranges.
    pub fn committed(&self) -> &RangeSet {
        &self.committed
    }

    /// Returns how a source that serves `size` bytes under `identity` relates to the file.
    ///
    /// `digest` is that of the whole file as the user or a metalink gives it. ETags and dates tell states of one URL
    /// apart, and nothing more (RFC 9110, section 8.8.3).
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
        // The digest is what was asked for, not what the bytes that are there have been proved to be.
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
    /// [`DecodeError::Damaged`] also where it claims bytes past the file's end, or names no source.
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

    /// Writes the journal as text, with these committed ranges.
    ///
    /// # Errors
    /// None that is known: every journal can be written.
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
    /// Describes a source; `shown` is `url` without secrets.
    pub fn new(url: &str, shown: String, identity: Identity) -> Self {
        Self { url: shown, url_digest: url_digest(url), identity }
    }

    /// Returns the URL without secrets.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns what identified the file's state at this source.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}

impl StoredJournal {
    /// Returns the journal where it is sound.
    pub fn sound(self) -> Option<Journal> {
        match self {
            Self::Sound(journal) => Some(journal),
            Self::Absent | Self::Damaged { .. } => None,
        }
    }
}

/// The version alone: a later journal may have other fields.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// How a journal is written.
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
    /// `[start, end)`.
    committed: Vec<(u64, u64)>,
}

/// How it was written first.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Version1 {
    #[serde(rename = "version")]
    _version: u32,
    url: String,
    url_digest: String,
    size: u64,
    /// As in If-Range.
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
            return damaged("it names no source".to_owned());
        }
        if let Some((start, end)) = committed.iter().find(|&&(start, end)| start >= end || end > size) {
            return damaged(format!("it claims bytes {start}..{end} of a file of {size}"));
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
