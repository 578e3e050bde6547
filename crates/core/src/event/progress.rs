//! How a transfer stands, in the few numbers that are shown while it runs.

use serde::{Deserialize, Serialize};

use crate::telemetry::Snapshot;
use crate::units::{Bytes, Rtt};

/// How a transfer stands; counters run from its start, and a value that is not known is null.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// Bytes of the file that are there, those of an earlier run included.
    pub present: Bytes,
    /// Bytes read from sockets in this run; where we send, acknowledged by the peer.
    pub received: Bytes,
    /// Bytes of this run that the writer, or where we send the reader, has handed to the kernel.
    pub written: Bytes,
    /// The size of the file.
    pub size: Option<Bytes>,
    /// Connections open.
    pub streams: usize,
    /// Smoothed RTT, the mean over the connections (`tcpi_rtt`).
    pub rtt: Option<Rtt>,
    /// The receiver's estimate of the RTT, queueing of the data included; the mean (`tcpi_rcv_rtt`).
    pub data_rtt: Option<Rtt>,
    /// Receive windows, summed (`tcpi_rcv_wnd`).
    pub rwin: Option<Bytes>,
    /// Congestion windows, summed.
    pub cwnd: Option<Bytes>,
    /// Bytes received and not yet read, summed (SIOCINQ).
    pub unread: Bytes,
    /// Bytes of the application buffer in use.
    pub buffered: Bytes,
    /// Bytes of the application buffer that may be in use.
    pub app_buffer: Bytes,
    /// The output file's pages: changed and not yet being written.
    pub dirty: Option<Bytes>,
    /// The output file's pages: being written to the device.
    pub writeback: Option<Bytes>,
    /// Segments that arrived out of order.
    pub out_of_order: u64,
    /// Segments that this host sent again.
    pub retransmits: u64,
}

impl From<&Snapshot> for Progress {
    fn from(now: &Snapshot) -> Self {
        let sockets = &now.sockets;
        Self {
            present: now.present,
            received: now.received,
            written: now.written,
            size: now.size,
            streams: sockets.open,
            rtt: sockets.rtt,
            data_rtt: sockets.data_rtt,
            rwin: sockets.rwin,
            cwnd: sockets.cwnd,
            unread: sockets.unread,
            buffered: now.segments.bytes(),
            app_buffer: now.segments.capacity(),
            dirty: now.page_cache.map(|pages| pages.dirty),
            writeback: now.page_cache.map(|pages| pages.writeback),
            out_of_order: sockets.counters.out_of_order,
            retransmits: sockets.counters.retransmits,
        }
    }
}
