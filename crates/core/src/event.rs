//! Telemetry: what a transfer tells about itself, and who listens.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::units::{Bytes, Rtt};

/// One moment of a running transfer; counters run from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// Bytes of the file that are there, those of an earlier run included.
    pub present: Bytes,
    /// Bytes read from sockets in this run.
    pub received: Bytes,
    /// Bytes of this run that the writer has handed to the kernel.
    pub written: Bytes,
    /// The size of the file, where known.
    pub size: Option<Bytes>,
    /// Connections open now.
    pub streams: usize,
    /// The smoothed RTT of the connections, the mean of them (`tcpi_rtt`).
    pub rtt: Option<Rtt>,
    /// The receiver's estimate of the RTT, the data's queueing included; the mean (`tcpi_rcv_rtt`).
    pub data_rtt: Option<Rtt>,
    /// The receive windows of the connections, summed (`tcpi_rcv_wnd`, Linux 6.2 and later).
    pub rwin: Option<Bytes>,
    /// Bytes in the sockets that nobody has read yet (SIOCINQ = rcv_nxt - copied_seq), summed.
    pub unread: Bytes,
    /// Application buffer in use.
    pub buffered: Bytes,
    /// Packets that arrived out of order, summed (`tcpi_rcv_ooopack`): a receiver's sign of loss.
    pub out_of_order: u64,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The file's name and size are known and its space is reserved.
    Opened {
        /// Where the finished file will stand.
        path: PathBuf,
        /// Its size, where the server tells.
        size: Option<Bytes>,
        /// What an earlier run has left and this one need not fetch again.
        resumed: Bytes,
        /// The writer in use.
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
    /// Something the user should know, and the transfer goes on.
    Warning(String),
    /// How the transfer stands, several times a second.
    Progress(Snapshot),
    /// The file is there; its digest is being checked.
    Verifying,
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
