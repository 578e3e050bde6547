//! The results of a probe, as `--json` has them.

use std::time::Duration;

use serde::Serialize;

use crate::units::{Bytes, Rate, Rtt, seconds};

use super::packet_train::LossShare;
use super::rtt::RttSummary;
use super::server_limits::ServerLimit;
use super::verdict::Verdict;

/// All that a probe found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProbeReport {
    /// The target as it was given, without secrets.
    pub target: String,
    /// The address that was measured.
    pub peer: String,
    /// How long the probe took.
    #[serde(with = "seconds")]
    pub seconds: Duration,
    /// What the path carried for it, both ways, at the IP layer.
    pub bytes: Bytes,
    /// Round trips, the preferred method first.
    pub rtt: Vec<RttSummary>,
    /// The path.
    pub path: PathFindings,
    /// UDP by size of message.
    pub udp: Vec<UdpRow>,
    /// TCP by number of connections, size of the socket buffer and congestion control.
    pub tcp: Vec<TcpRow>,
    /// The other direction, from this host to the server, where it was measured.
    pub upload: Option<UploadFindings>,
    /// The server.
    pub server: ServerFindings,
    /// What could not be measured, why, and what it would have told.
    pub missing: Vec<String>,
    /// What follows.
    pub verdict: Verdict,
}

/// What the path holds, from the server to this host.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct PathFindings {
    /// The rate at the IP layer.
    pub rate: Option<MeasuredRate>,
    /// The queue before the bottleneck.
    pub queue: Option<MeasuredQueue>,
    /// The share of packets lost without a queue.
    pub loss: Option<LossShare>,
    /// Packets that arrived after a later one, of those in `loss`.
    pub reordered: Option<u32>,
    /// The largest packet.
    pub mtu: Option<Bytes>,
    /// The largest round-trip time while one TCP connection filled the path.
    pub loaded_rtt: Option<Rtt>,
}

/// A rate, and where it is from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MeasuredRate {
    /// The rate at the IP layer.
    pub rate_bps: Rate,
    /// The evidence.
    pub evidence: RateEvidence,
    /// Whether the path holds more, perhaps: the sender was the limit.
    pub is_lower_bound: bool,
}

/// Where a rate is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RateEvidence {
    /// The dispersion of UDP packet trains.
    UdpTrains,
    /// The rate within bursts of a TCP connection.
    TcpBursts,
    /// The highest rate of several TCP connections.
    TcpSteady,
}

impl RateEvidence {
    /// Returns the words for a table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UdpTrains => "UDP trains",
            Self::TcpBursts => "TCP bursts",
            Self::TcpSteady => "TCP throughput",
        }
    }
}

/// A queue, and whether it may be larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MeasuredQueue {
    /// Bytes at the IP layer.
    pub bytes: Bytes,
    /// The delay that it adds when it is full.
    #[serde(with = "seconds")]
    pub delay: Duration,
    /// Whether it was not seen to overflow.
    pub is_lower_bound: bool,
}

/// UDP with messages of one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct UdpRow {
    /// The size of a message.
    pub message: Bytes,
    /// The rate of payload that arrived.
    pub payload_bps: Rate,
    /// The rate of payload at which it was sent.
    pub sent_bps: Rate,
    /// The share lost.
    pub loss: f64,
    /// Packets that arrived late, after one of a higher number.
    pub reordered: u32,
    /// Whether the path, and not this program's packets per second, set the rate.
    pub is_path_limited: bool,
}

/// TCP with one setting.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TcpRow {
    /// Connections at once.
    pub streams: u32,
    /// The size given to the socket buffers of both sides; `None` for the kernel's.
    pub buffer: Option<Bytes>,
    /// The congestion control of the sender; `None` for its default.
    pub congestion: Option<String>,
    /// The rate of payload over the second half of the time.
    pub payload_bps: Rate,
    /// How long it ran.
    #[serde(with = "seconds")]
    pub seconds: Duration,
    /// Whether the rate had stopped growing.
    pub is_flat: bool,
    /// Packets that arrived out of order: each loss makes some.
    pub out_of_order: u64,
}

/// What the path carries from this host to the server.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct UploadFindings {
    /// TCP by number of connections; packets sent again are counted in place of those out of order.
    pub tcp: Vec<TcpRow>,
    /// The rate at the IP layer.
    pub rate: Option<MeasuredRate>,
}

/// What a server can do, and what it allows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ServerFindings {
    /// "http", "ftp", "iperf3", or empty where nothing answers.
    pub protocol: String,
    /// Its name for itself.
    pub software: Option<String>,
    /// Whether parts of a file can be requested; `None` where that was not to be found.
    pub ranges: Option<bool>,
    /// The size of the file at the URL.
    pub size: Option<Bytes>,
    /// Further abilities, a few words each.
    pub features: Vec<String>,
    /// Whether it has a measurement endpoint.
    pub measures: bool,
    /// How far its kernel lets a send buffer grow, where the endpoint says so.
    pub tcp_wmem_max: Option<Bytes>,
    /// The highest rate at which the endpoint sends.
    pub ceiling_bps: Option<Rate>,
    /// What the endpoint allows this client, the least while it was measured; `None` without a ceiling.
    pub allowed_bps: Option<Rate>,
    /// What its connections showed.
    pub limit: Option<ServerLimit>,
}
