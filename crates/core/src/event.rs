//! Telemetry: what a transfer tells about itself, and who listens.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::telemetry::{PageCache, Sample, Segments, Sockets};
use crate::units::{Bytes, Rate, Rtt};

/// How a transfer stands; counters run from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// Bytes of the file that are there, those of an earlier run included.
    pub present: Bytes,
    /// Bytes read from sockets in this run; where we send, acknowledged by the peer.
    pub received: Bytes,
    /// Bytes of this run that the writer, or where we send the reader, has handed to the kernel.
    pub written: Bytes,
    /// The size of the file, where known.
    pub size: Option<Bytes>,
    /// The connections: the first buffer.
    pub sockets: Sockets,
    /// The application buffer: the second.
    pub segments: Segments,
    /// The file's pages: the third; `None` where the kernel does not count them.
    pub page_cache: Option<PageCache>,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The file's name and size are known and its space is reserved.
    Opened {
        /// Where the finished file will stand; where we send, the source.
        path: PathBuf,
        /// Its size, where the server tells.
        size: Option<Bytes>,
        /// What an earlier run has left and this one need not move again.
        resumed: Bytes,
        /// The writer in use; where we send, the reader.
        writer: &'static str,
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
        wait: Duration,
    },
    /// The server takes no further stream, which leaves its work to the others.
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
    /// A request was answered, or its answer broken off: what a server tells.
    Replied {
        /// The connection, from 0.
        stream: usize,
        /// The request's method.
        method: String,
        /// What was asked for.
        target: String,
        /// The status code.
        status: u16,
        /// Bytes of the body that were given to the kernel.
        sent: Bytes,
        /// From the request to the last byte.
        took: Duration,
    },
    /// Something the user should know, and the transfer goes on.
    Warning(Warning),
    /// How the transfer stands, several times a second.
    Progress(Snapshot),
    /// A reading of everything that can be measured, as often as was asked for.
    Sample(Sample),
    /// No more samples will come.
    Sampled {
        /// How many were taken.
        samples: u64,
        /// The CPU time that taking them needed, the observer's own while hearing them included.
        cpu: Duration,
    },
    /// The file is there; its digest is being checked.
    Verifying,
}

/// What the user should know although the transfer goes on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
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
    /// A stream has given up, and others do its work.
    #[error("going on without stream {stream}: {reason}")]
    StreamLost {
        /// The stream, from 0.
        stream: usize,
        /// Why.
        reason: String,
    },
}

/// Hears the events of a transfer. Called from its threads, so it must be quick and must not block.
pub trait Observer: Send + Sync {
    /// Hears that `event` happened `at` this time since the transfer's start.
    fn on(&self, at: Duration, event: &Event);
}

/// Hears nothing.
impl Observer for () {
    fn on(&self, _at: Duration, _event: &Event) {}
}

/// Tells several observers, in this order.
impl<O: Observer + ?Sized, const N: usize> Observer for [&O; N] {
    fn on(&self, at: Duration, event: &Event) {
        self.iter().for_each(|observer| observer.on(at, event));
    }
}
