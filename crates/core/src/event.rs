//! Events: what a job reports while it runs, and the observers of that.
//!
//! `--json`, records and the API write one serialisation of them: [`JobEvent`], an object with the event's name in
//! `event`. Bytes are integers, times seconds, rates bits per second.

mod done;
mod job;
mod progress;
mod warning;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::advice::LimitedBy;
use crate::telemetry::Sample;
use crate::units::{Bytes, Rtt, seconds};

pub use done::Done;
pub use job::{JobEvent, JobId, JobObserver, JobTag};
pub use progress::Progress;
pub use warning::Warning;

/// What happened. A value that is not known is null, and left out of samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Event {
    /// The file's name and size are known and its space is reserved.
    Opened {
        /// Where the finished file will stand; where we send, the source.
        #[serde(with = "lossy_path")]
        path: PathBuf,
        /// Its size, where the server reports it.
        size: Option<Bytes>,
        /// What an earlier run has left and this one need not move again.
        resumed: Bytes,
        /// Whether a later run can go on from where this one is interrupted.
        #[serde(default)]
        resumable: bool,
        /// The writer in use; where we send, the reader.
        writer: Cow<'static, str>,
    },
    /// A stream has a connection.
    Connected {
        /// The stream, from 0.
        stream: usize,
        /// The server's (or proxy's) address.
        peer: SocketAddr,
        /// The RTT of the handshake.
        rtt: Option<Rtt>,
    },
    /// A stream failed and will try again.
    Retrying {
        /// The stream, from 0.
        stream: usize,
        /// Why.
        reason: String,
        /// After how long.
        #[serde(with = "seconds")]
        wait: Duration,
    },
    /// The server accepts no further stream; the other streams do its work.
    Refused {
        /// The stream, from 0.
        stream: usize,
        /// What the server said or did.
        reason: String,
        /// How many others it serves.
        open: usize,
    },
    /// A connection has ended.
    Closed {
        /// The stream, from 0.
        stream: usize,
    },
    /// A server answered a request, or broke its answer off.
    Replied {
        /// The connection, from 0.
        stream: usize,
        /// The request's method.
        method: String,
        /// What was asked for, without secrets.
        target: String,
        /// The status code.
        status: u16,
        /// Bytes of the body that were given to the kernel.
        sent: Bytes,
        /// From the request to the last byte.
        #[serde(with = "seconds")]
        took: Duration,
    },
    /// Something the user should know, and the transfer goes on.
    Warning(Warning),
    /// How the transfer stands, several times a second.
    Progress(Box<Progress>),
    /// What limits the transfer has changed.
    Limited {
        /// What limits it until the next event of this kind.
        by: LimitedBy,
        /// How long before the event's time that began: an interval is assigned to a limit at its end.
        #[serde(with = "seconds")]
        ago: Duration,
    },
    /// A reading of everything that can be measured, as often as was asked for.
    Sample(Box<Sample>),
    /// No more samples follow.
    Sampled {
        /// How many were taken.
        samples: u64,
        /// The CPU time that taking them needed, that of the observer's calls included.
        #[serde(with = "seconds")]
        cpu: Duration,
    },
    /// The file is there; its digest is being checked.
    Verifying,
    /// Lines of progress or of connections were left out here, because the reader of this output was too slow.
    Dropped {
        /// How many.
        lines: u64,
    },
    /// The job has succeeded. Its last event.
    Done(Box<Done>),
    /// The job has failed. Its last event.
    Error {
        /// Why.
        message: String,
        /// The code that the program exits with, after sysexits(3).
        exit_code: u8,
    },
    /// An event of a later version, where a record is read.
    #[serde(other, skip_serializing)]
    Unknown,
}

impl Event {
    /// Returns whether there are many of its kind, so that it may be dropped where an output is too slow.
    pub fn is_frequent(&self) -> bool {
        matches!(
            self,
            Self::Progress(_)
                | Self::Sample(_)
                | Self::Replied { .. }
                | Self::Connected { .. }
                | Self::Closed { .. }
        )
    }
}

/// Observes the events of jobs. Called from their threads: an implementation must be quick and must not block.
pub trait Observer: Send + Sync {
    /// Is called with an `event` of `job` that happened `at` this time since the job's start.
    fn on(&self, job: &JobTag, at: Duration, event: &Event);
}

/// Observes nothing.
impl Observer for () {
    fn on(&self, _job: &JobTag, _at: Duration, _event: &Event) {}
}

/// Calls several observers, in this order.
impl<O: Observer + ?Sized, const N: usize> Observer for [&O; N] {
    fn on(&self, job: &JobTag, at: Duration, event: &Event) {
        self.iter().for_each(|observer| observer.on(job, at, event));
    }
}

/// A path as text; bytes that are no UTF-8 are replaced, for JSON has none.
mod lossy_path {
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&path.to_string_lossy())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        PathBuf::deserialize(from)
    }
}

#[cfg(test)]
mod tests;
