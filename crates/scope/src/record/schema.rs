//! The lines of a record.
//!
//! Times are seconds, sizes bytes, rates bits a second. A value that is not known is left out. Whoever
//! reads a record must ignore what it does not know: fields and events may be added within a version.

use serde::{Deserialize, Serialize};

use super::tcp_fields::TcpFields;

/// The version that this program writes, and the newest that it reads.
pub const VERSION: u32 = 1;

/// The value of [`Header::record`], by which a record is known.
pub const MAGIC: &str = "longhaul";

/// The first line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Always [`MAGIC`].
    pub record: String,
    /// The version of this schema.
    pub version: u32,
    /// Which side of a transfer was recorded.
    pub side: Side,
    /// What was recorded: a URL without credentials, or a directory.
    pub what: String,
    /// The program and its version.
    pub program: String,
    /// When it began, in seconds since 1970, UTC.
    pub started: f64,
    /// How often samples were asked for, in seconds.
    pub interval: f64,
    /// The host's name, kernel and number of cores.
    pub host: Host,
}

/// Who recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The receiver of a file.
    Get,
    /// The sender of a file.
    Put,
    /// The server of files.
    Serve,
}

/// The host that recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its kernel's release.
    pub kernel: String,
    /// Its processor cores.
    pub cores: usize,
}

/// Every further line: what happened, and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Seconds since the transfer's, or the server's, start.
    pub at: f64,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// The file is known and its space reserved.
    Opened {
        /// Where it will stand.
        path: String,
        /// Its size.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
        /// What an earlier run had left.
        resumed: u64,
        /// The writer.
        writer: String,
    },
    /// A connection was made, or accepted.
    Connected {
        /// Its number.
        stream: usize,
        /// The peer's address.
        peer: String,
        /// The handshake's RTT.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rtt: Option<f64>,
    },
    /// A connection ended.
    Closed {
        /// Its number.
        stream: usize,
    },
    /// A stream failed and tries again.
    Retrying {
        /// Its number.
        stream: usize,
        /// Why.
        reason: String,
        /// After how long.
        wait: f64,
    },
    /// The server took no further stream.
    Refused {
        /// Its number.
        stream: usize,
        /// Why.
        reason: String,
        /// How many others it served.
        open: usize,
    },
    /// A server answered a request.
    Replied {
        /// The connection's number.
        stream: usize,
        /// The method.
        method: String,
        /// What was asked for.
        target: String,
        /// The status code.
        status: u16,
        /// Bytes of the body sent.
        sent: u64,
        /// How long it took.
        took: f64,
    },
    /// Something that the user should know.
    Warning {
        /// What.
        message: String,
    },
    /// The digest is being checked.
    Verifying,
    /// A reading of everything.
    Sample(Box<Sample>),
    /// The last line of a record that was not cut off.
    End(End),
    /// An event that this version does not know.
    #[serde(other, skip_serializing)]
    Unknown,
}

/// One reading of everything; see `longhaul_core::telemetry::Sample`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// How long it took: what the sockets say is of this long before the line's time, or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took: Option<f64>,
    /// Bytes of files read from sockets so far, or acknowledged by the peer.
    pub moved: u64,
    /// All connections together.
    pub sockets: Sockets,
    /// The application buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<Segments>,
    /// Bytes that the writer has handed to the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<u64>,
    /// The output file's pages; only in samples for which they were counted anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_cache: Option<PageCache>,
    /// What waits to reach the devices of the host; only in samples for which it was read anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_pages: Option<HostPages>,
    /// Each open connection.
    pub streams: Vec<Stream>,
}

/// All connections together: sums, and for times means.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Sockets {
    /// Connections open.
    pub open: usize,
    /// Bytes received and not yet read (SIOCINQ).
    pub unread: u64,
    /// Receive windows (`tcpi_rcv_wnd`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rwin: Option<u64>,
    /// Congestion windows in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwnd: Option<u64>,
    /// Smoothed RTT (`tcpi_rtt`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt: Option<f64>,
    /// RTT as the received data saw it (`tcpi_rcv_rtt`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_rtt: Option<f64>,
    /// Least RTT (`tcpi_min_rtt`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rtt: Option<f64>,
    /// Pacing rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pacing_bps: Option<u64>,
    /// Delivery rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_bps: Option<u64>,
    /// Segments that the peers have beyond a gap (`tcpi_sacked`).
    #[serde(default)]
    pub sacked: u64,
    /// Segments sent again so far, closed connections included.
    pub retransmits: u64,
    /// Segments received out of order so far, closed connections included.
    pub out_of_order: u64,
    /// Segments that the peers reported to have got twice so far, closed connections included.
    #[serde(default)]
    pub dsacks: u64,
    /// Segments with data that arrived so far, closed connections included; 0 where it is not known.
    #[serde(default)]
    pub data_segments: u64,
    /// Bytes that arrived in order so far, closed connections included; 0 where it is not known.
    #[serde(default)]
    pub received: u64,
    /// Bytes sent so far, those sent again and closed connections included; 0 where it is not known.
    #[serde(default)]
    pub sent: u64,
    /// Bytes acknowledged by the peers so far, closed connections included.
    pub acked: u64,
}

/// The application buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segments {
    /// Segments in use.
    pub in_use: usize,
    /// Segments that may be in use.
    pub count: usize,
    /// Bytes of one.
    pub size: u64,
}

/// A file's pages in the page cache, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageCache {
    /// In the cache.
    pub cached: u64,
    /// Changed and not yet being written.
    pub dirty: u64,
    /// Being written.
    pub writeback: u64,
    /// No longer in the cache.
    pub evicted: u64,
    /// Of those, lately.
    pub recently_evicted: u64,
}

/// What waits to reach the devices of the host, of whichever file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPages {
    /// Changed and not yet being written.
    pub dirty: u64,
    /// Being written.
    pub writeback: u64,
}

/// One connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// Its number.
    pub stream: usize,
    /// Bytes received and not yet read (SIOCINQ).
    pub unread: u64,
    /// TCP_INFO: every field that the kernel filled, by its name and in its unit there.
    #[serde(default, skip_serializing_if = "TcpFields::is_empty")]
    pub tcp: TcpFields,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// The last line of `--json`: the result, or the error; null where the server was told to stop.
    pub outcome: serde_json::Value,
    /// What recording cost.
    pub telemetry: Telemetry,
}

/// What recording cost.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Telemetry {
    /// Samples taken.
    pub samples: u64,
    /// Lines that were dropped because the disk under the record was too slow.
    pub dropped: u64,
    /// CPU time of sampling and of recording, in seconds.
    pub cpu: f64,
}
