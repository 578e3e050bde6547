//! The identity of one state of a file, independent of the protocol.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::checksum::Checksum;
use crate::proto::http::{ETag, Validator};

/// Evidence that two answers hold bytes of one state of a file. The size is compared separately.
///
/// Bytes of several answers are combined only if their identities are equal. Serialised as
/// `{"kind": .., "value": ..}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Text", into = "Text")]
pub enum Identity {
    /// A strong entity tag (RFC 9110, section 8.8.3).
    ETag(ETag),
    /// An HTTP date that is a strong validator by RFC 9110, section 8.8.2.2, exactly as the server
    /// sent it.
    LastModified(String),
    /// The modification time of a file on an FTP server (RFC 3659, sections 3 and 7.5.3).
    ModificationTime(String),
    /// A digest of the whole file, from the user or a metalink.
    Digest(Checksum),
    /// The size alone: the user asserts that the file has not changed (`--assume-unchanged`).
    AssumedUnchanged,
}

impl Identity {
    /// Returns the validator for If-Range.
    pub fn if_range(&self) -> Option<Validator> {
        match self {
            Self::ETag(tag) => Some(Validator::ETag(tag.clone())),
            Self::LastModified(date) => Some(Validator::LastModified(date.clone())),
            Self::ModificationTime(_) | Self::Digest(_) | Self::AssumedUnchanged => None,
        }
    }
}

impl From<Validator> for Identity {
    fn from(validator: Validator) -> Self {
        match validator {
            Validator::ETag(tag) => Self::ETag(tag),
            Validator::LastModified(date) => Self::LastModified(date),
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ETag(tag) => tag.fmt(f),
            Self::LastModified(date) | Self::ModificationTime(date) => f.write_str(date),
            Self::Digest(checksum) => checksum.fmt(f),
            Self::AssumedUnchanged => f.write_str("its size alone"),
        }
    }
}

/// The serialised form of an [`Identity`].
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", content = "value", rename_all = "kebab-case", deny_unknown_fields)]
enum Text {
    #[serde(rename = "etag")]
    ETag(String),
    LastModified(String),
    ModificationTime(String),
    Digest(String),
    AssumedUnchanged,
}

impl From<Identity> for Text {
    fn from(identity: Identity) -> Self {
        match identity {
            Identity::ETag(tag) => Self::ETag(tag.to_string()),
            Identity::LastModified(date) => Self::LastModified(date),
            Identity::ModificationTime(time) => Self::ModificationTime(time),
            Identity::Digest(checksum) => Self::Digest(checksum.to_string()),
            Identity::AssumedUnchanged => Self::AssumedUnchanged,
        }
    }
}

impl TryFrom<Text> for Identity {
    type Error = &'static str;

    fn try_from(text: Text) -> Result<Self, Self::Error> {
        Ok(match text {
            Text::ETag(text) | Text::LastModified(text) => {
                Validator::parse(&text).ok_or("neither a strong ETag nor an HTTP date")?.into()
            }
            Text::ModificationTime(time) => Self::ModificationTime(time),
            Text::Digest(text) => Self::Digest(text.parse().map_err(|_| "not a checksum")?),
            Text::AssumedUnchanged => Self::AssumedUnchanged,
        })
    }
}
