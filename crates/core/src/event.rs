//! The events that a job emits, and their observers.
//!
//! `--json`, records and the API share one serialisation, [`JobEvent`]: an object with the event's
//! name in `event`. Bytes are integers, times are in seconds, rates in bits per second.

mod done;
mod job;
mod progress;
mod warning;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use crate::advice::LimitedBy;
use crate::telemetry::Sample;
use crate::units::{Bytes, Rtt, seconds};

pub use done::{Done, LossCounts, RunDone};
pub use job::{JobEvent, JobId, JobObserver, JobTag};
pub use progress::{BufferProgress, ByteProgress, PathProgress, Progress};
pub use warning::Warning;

/// An event of a job. An unknown value is null, and is left out of samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Event {
    /// The file's name and size have been determined and its space is reserved.
    Opened {
        /// The path of the finished file; in an upload, the source.
        #[serde(serialize_with = "lossy_path")]
        path: PathBuf,
        /// The size of the file, if the server reports it.
        size: Option<Bytes>,
        /// Bytes kept from an earlier run, which are not transferred again.
        resumed: Bytes,
        /// Whether a later run can resume this one after an interruption.
        #[serde(default)]
        resumable: bool,
        /// The writer in use; in an upload, the reader.
        writer: Cow<'static, str>,
    },
    /// A stream has connected.
    Connected {
        /// The number of the stream, from 0.
        stream: usize,
        /// The address of the server or of the proxy.
        peer: SocketAddr,
        /// The RTT of the handshake.
        rtt: Option<Rtt>,
    },
    /// A stream has failed and will be retried.
    Retrying {
        /// The number of the stream, from 0.
        stream: usize,
        /// The reason of the failure.
        reason: String,
        /// The time until the retry.
        #[serde(with = "seconds")]
        wait: Duration,
    },
    /// The server accepts no further stream; the other streams continue.
    Refused {
        /// The number of the stream, from 0.
        stream: usize,
        /// The server's answer or behaviour.
        reason: String,
        /// The number of other streams that the server serves.
        open: usize,
    },
    /// A connection has ended.
    Closed {
        /// The number of the stream, from 0.
        stream: usize,
    },
    /// A server has answered a request, or aborted its answer.
    Replied {
        /// The number of the connection, from 0.
        stream: usize,
        /// The request's method.
        method: String,
        /// The request target, without secrets.
        target: String,
        /// The status code.
        status: u16,
        /// Bytes of the body that were passed to the kernel.
        sent: Bytes,
        /// The time from the request to the last byte.
        #[serde(with = "seconds")]
        took: Duration,
    },
    /// A problem that does not end the transfer.
    Warning(Warning),
    /// The state of the transfer, several times a second.
    Progress(Box<Progress>),
    /// The limit of the transfer has changed.
    Limited {
        /// The limit until the next event of this kind.
        by: LimitedBy,
        /// The time from the change to this event: an interval is assigned to a limit at its end.
        #[serde(with = "seconds")]
        ago: Duration,
    },
    /// A reading of all telemetry, at the requested interval; records are read by a type of their
    /// own.
    #[serde(skip_deserializing)]
    Sample(Box<Sample>),
    /// The last sample has been taken.
    Sampled {
        /// The number of samples taken.
        samples: u64,
        /// The CPU time used by sampling, the observer's calls included.
        #[serde(with = "seconds")]
        cpu: Duration,
    },
    /// The file is complete; its digest is being verified.
    Verifying,
    /// Frequent lines were dropped at this point because the reader of the output was too slow.
    Dropped {
        /// The number of dropped lines.
        lines: u64,
    },
    /// The job has succeeded. Its last event.
    Done(Box<Done>),
    /// What limited the files of a command together; of no job.
    Run(Box<RunDone>),
    /// The job has failed. Its last event.
    Error {
        /// The error message.
        message: String,
        /// The program's exit code, after sysexits(3).
        exit_code: u8,
    },
    /// An event of a later version, read from a record.
    #[serde(other, skip_serializing)]
    Unknown,
}

impl Event {
    /// Returns whether events of this kind are frequent and may be dropped if an output is too
    /// slow.
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

/// Observes the events of jobs. Called from the jobs' threads: an implementation must return
/// quickly and must not block.
pub trait Observer: Send + Sync {
    /// Handles `event` of `job`, which happened `at` this time since the job's start.
    fn on(&self, job: &JobTag, at: Duration, event: &Event);
}

/// Observes nothing.
impl Observer for () {
    fn on(&self, _job: &JobTag, _at: Duration, _event: &Event) {}
}

/// Calls several observers in their order.
impl<O: Observer + ?Sized, const N: usize> Observer for [&O; N] {
    fn on(&self, job: &JobTag, at: Duration, event: &Event) {
        self.iter().for_each(|observer| observer.on(job, at, event));
    }
}

/// Serialises a path as text; bytes that are not UTF-8 are replaced, because JSON cannot represent
/// them.
fn lossy_path<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&path.to_string_lossy())
}

#[cfg(test)]
mod tests;
