//! What the user should know although a transfer goes on.

use serde::{Deserialize, Serialize};

use crate::ranges::RangeSet;
use crate::units::Rate;

/// What the user should know although the transfer goes on; serialised as its `message`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(from = "Message", into = "Message")]
#[non_exhaustive]
pub enum Warning {
    /// What an earlier run left is of no use.
    #[error("{reason}: starting over")]
    StartingOver {
        /// Why.
        reason: String,
    },
    /// Several streams were asked for, and the server cannot serve parts.
    #[error("this server answers no ranges: one stream")]
    NoRanges,
    /// Several streams were asked for, and nothing shows that their parts would be of one state of the file.
    #[error(
        "this server sends nothing that identifies the file's state, such as a strong ETag: one stream; \
         use --assume-unchanged if you know that the file does not change"
    )]
    NoIdentity,
    /// A fixed pace was asked for, and the kernel does not keep it.
    #[error(
        "the kernel does not pace at {wanted}{}: the sender's bursts are not held back",
        .found.map_or_else(String::new, |found| format!(" but at {found}"))
    )]
    NotPaced {
        /// What was asked for.
        wanted: Rate,
        /// What the kernel paces at, where it tells.
        found: Option<Rate>,
    },
    /// What is known of paths cannot be read or kept.
    #[error("{reason}: no path is remembered")]
    NoMemory {
        /// Why.
        reason: String,
    },
    /// A source of the file is of no use, and others go on without it.
    #[error("going on without {url}: {reason}")]
    SourceDropped {
        /// The source, without secrets.
        url: String,
        /// Why.
        reason: String,
    },
    /// Ranges of the file have other digests than they should; they are fetched again.
    #[error("{ranges} have other digests than {stated_by} states: they are fetched again")]
    WrongRanges {
        /// The ranges.
        ranges: RangeSet,
        /// What the digests are from: the metalink, or a source without secrets.
        stated_by: String,
    },
    /// Ranges of an upload have other digests on the server; they are sent again.
    #[error("{ranges} have other digests at {server}: they are sent again")]
    WrongOnServer {
        /// The ranges.
        ranges: RangeSet,
        /// The server, without secrets.
        server: String,
    },
    /// The file is complete, and something about it could not be done.
    #[error("{reason}")]
    Finished {
        /// What, and why.
        reason: String,
    },
    /// A stream has given up, and others do its work.
    #[error("going on without stream {stream}: {reason}")]
    StreamLost {
        /// The stream, from 0.
        stream: usize,
        /// Why.
        reason: String,
    },
    /// A warning that was read from a record: only its text is known.
    #[error("{message}")]
    Recorded {
        /// The text.
        message: String,
    },
}

/// A warning as it is written.
#[derive(Serialize, Deserialize)]
struct Message {
    message: String,
}

impl From<Warning> for Message {
    fn from(warning: Warning) -> Self {
        Self { message: warning.to_string() }
    }
}

impl From<Message> for Warning {
    fn from(Message { message }: Message) -> Self {
        Self::Recorded { message }
    }
}
