//! The state of a running transfer, in the few numbers that are displayed.

use serde::{Deserialize, Serialize};

use crate::telemetry::{Snapshot, Sockets};
use crate::units::{Bytes, Rtt};

/// The state of a transfer. Counters start with the run; an unknown value is null.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// The bytes of the file.
    #[serde(flatten)]
    pub bytes: ByteProgress,
    /// Open connections.
    pub streams: usize,
    /// The path and the sockets.
    #[serde(flatten)]
    pub path: PathProgress,
    /// The application buffer and the page cache.
    #[serde(flatten)]
    pub buffers: BufferProgress,
    /// Segments that arrived out of order.
    pub out_of_order: u64,
    /// Segments that this host retransmitted.
    pub retransmits: u64,
}

/// How many bytes of the file have moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ByteProgress {
    /// Bytes of the file that are present, those of earlier runs included.
    pub present: Bytes,
    /// Bytes read from sockets in this run; in an upload, bytes acknowledged by the peer.
    pub received: Bytes,
    /// Bytes of this run passed to the kernel by the writer, or in an upload by the reader.
    pub written: Bytes,
    /// The size of the file.
    pub size: Option<Bytes>,
}

/// The RTTs and windows of the connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PathProgress {
    /// Smoothed RTT, the mean over the connections (`tcpi_rtt`).
    pub rtt: Option<Rtt>,
    /// The receiver's estimate of the RTT, which includes queueing of the data; the mean over the
    /// connections (`tcpi_rcv_rtt`).
    pub data_rtt: Option<Rtt>,
    /// Receive windows, summed (`tcpi_rcv_wnd`).
    pub rwin: Option<Bytes>,
    /// Congestion windows, summed.
    pub cwnd: Option<Bytes>,
    /// Bytes received and not yet read, summed (SIOCINQ).
    pub unread: Bytes,
}

/// The fill levels of the buffers behind the sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BufferProgress {
    /// Bytes of the application buffer in use.
    pub buffered: Bytes,
    /// The capacity of the application buffer in bytes.
    pub app_buffer: Bytes,
    /// Bytes of dirty pages of the output file.
    pub dirty: Option<Bytes>,
    /// Bytes of pages of the output file under writeback.
    pub writeback: Option<Bytes>,
}

impl From<&Snapshot> for Progress {
    fn from(now: &Snapshot) -> Self {
        let Sockets { open, unread, windows, times, counters, .. } = now.sockets;
        Self {
            bytes: ByteProgress {
                present: now.present,
                received: now.received,
                written: now.written,
                size: now.size,
            },
            streams: open,
            path: PathProgress {
                rtt: times.rtt,
                data_rtt: times.data_rtt,
                rwin: windows.rwin,
                cwnd: windows.cwnd,
                unread,
            },
            buffers: BufferProgress {
                buffered: now.segments.bytes(),
                app_buffer: now.segments.capacity(),
                dirty: now.page_cache.map(|pages| pages.dirty),
                writeback: now.page_cache.map(|pages| pages.writeback),
            },
            out_of_order: counters.out_of_order,
            retransmits: counters.retransmits,
        }
    }
}
