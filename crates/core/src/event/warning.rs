//! Problems that do not end a transfer.

use serde::{Deserialize, Serialize};

use crate::ranges::RangeSet;
use crate::units::Rate;

/// A problem that does not end the transfer; serialised as its `message`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(from = "Message", into = "Message")]
#[non_exhaustive]
pub enum Warning {
    /// The data of an earlier run cannot be used.
    #[error("{reason}: starting over")]
    StartingOver {
        /// The reason.
        reason: String,
    },
    /// Several streams were requested, and the server does not support ranges.
    #[error("this server answers no ranges: one stream")]
    NoRanges,
    /// Several streams were requested, and no identity shows that their ranges are of one state of
    /// the file.
    #[error(
        "this server sends nothing that identifies the file's state, such as a strong ETag: one stream; \
         use --assume-unchanged if you know that the file does not change"
    )]
    NoIdentity,
    /// The server coded the body for this client, although no coding was requested.
    #[error(
        "{url} was sent in the content coding '{coding}', which was not asked for: saved as sent, so decode it yourself"
    )]
    Coded {
        /// The URL without secrets.
        url: String,
        /// The coding.
        coding: String,
    },
    /// A fixed pace was requested, and the kernel does not apply it.
    #[error(
        "the kernel does not pace at {wanted}{}: the sender's bursts are not held back",
        .found.map_or_else(String::new, |found| format!(" but at {found}"))
    )]
    NotPaced {
        /// The requested rate.
        wanted: Rate,
        /// The kernel's pacing rate, if it reports one.
        found: Option<Rate>,
    },
    /// The stored properties of paths cannot be read or written.
    #[error("{reason}: no path is remembered")]
    NoMemory {
        /// The reason.
        reason: String,
    },
    /// A source of the file has failed; the transfer continues from the others.
    #[error("going on without {url}: {reason}")]
    SourceDropped {
        /// The URL of the source, without secrets.
        url: String,
        /// The reason.
        reason: String,
    },
    /// Ranges of the file do not match their digests and are fetched again.
    #[error("{ranges} have other digests than {stated_by} states: they are fetched again")]
    WrongRanges {
        /// The ranges.
        ranges: RangeSet,
        /// The origin of the digests: the metalink, or a source without secrets.
        stated_by: String,
    },
    /// Ranges of an upload have other digests on the server and are sent again.
    #[error("{ranges} have other digests at {server}: they are sent again")]
    WrongOnServer {
        /// The ranges.
        ranges: RangeSet,
        /// The server, without secrets.
        server: String,
    },
    /// The file is complete, but a final step has failed.
    #[error("{reason}")]
    Finished {
        /// The step and the reason.
        reason: String,
    },
    /// The server has taken all of the file, and states no size to compare.
    #[error("sent, not verified: {reason}")]
    NotVerified {
        /// The reason, with the URL without secrets.
        reason: String,
    },
    /// A stream has failed for good; the other streams continue.
    #[error("going on without stream {stream}: {reason}")]
    StreamLost {
        /// The number of the stream, from 0.
        stream: usize,
        /// The reason.
        reason: String,
    },
    /// A warning read from a record, of which only the text is recorded.
    #[error("{message}")]
    Recorded {
        /// The text.
        message: String,
    },
}

/// The serialised form of a warning.
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
