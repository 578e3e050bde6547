//! The results of a probe, as `--json` has them.

use std::time::Duration;

use serde::Serialize;

use crate::units::{Bytes, Rate, Rtt, seconds};

use super::flow_rate::RateRange;
use super::packet_train::LossShare;
use super::rtt::RttSummary;
use super::server_limits::ServerLimit;
use super::verdict::Verdict;

/// All results of a probe.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ProbeReport {
    /// What was probed, and at which cost.
    #[serde(flatten)]
    pub probe: ProbeFacts,
    /// RTTs, the preferred method first.
    pub rtt: Vec<RttSummary>,
    /// Properties of the path.
    pub path: PathFindings,
    /// The highest rate of datagrams; `None` if UDP was not measured.
    pub udp_ceiling: Option<UdpCeiling>,
    /// UDP results by size of message.
    pub udp: Vec<UdpRow>,
    /// TCP results by number of connections, size of the socket buffer and congestion control.
    pub tcp: Vec<TcpRow>,
    /// The direction from this host to the server, if measured.
    pub upload: Option<UploadFindings>,
    /// Properties of the server.
    pub server: ServerFindings,
    /// The measurements that failed: the reason, and the missing result.
    pub missing: Vec<String>,
    /// The conclusions.
    pub verdict: Verdict,
}

/// The target of a probe, and its cost.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ProbeFacts {
    /// The target as given, without secrets.
    pub target: String,
    /// The address that was measured.
    pub peer: String,
    /// The duration of the probe.
    #[serde(with = "seconds")]
    pub seconds: Duration,
    /// The bytes that the probe used, both directions, at the IP layer.
    pub bytes: Bytes,
}

impl ProbeReport {
    /// Returns the least RTT of all methods, which is nearest to the RTT without queues.
    pub fn min_rtt(&self) -> Option<Rtt> {
        self.rtt.iter().map(|rtt| rtt.min).min()
    }

    /// Returns the size of the largest packet; Ethernet's if no measurement shows another.
    pub fn mtu(&self) -> Bytes {
        self.path.mtu.unwrap_or(Bytes::new(1500))
    }
}

/// Properties of the path from the server to this host.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct PathFindings {
    /// The rate at the IP layer.
    pub rate: Option<MeasuredRate>,
    /// The queue before the bottleneck.
    pub queue: Option<MeasuredQueue>,
    /// The share of packets lost without queueing.
    pub loss: Option<LossShare>,
    /// Packets that arrived after a later one, out of the packets of `loss`.
    pub reordered: Option<u32>,
    /// The size of the largest packet.
    pub mtu: Option<Bytes>,
    /// The largest RTT while one TCP connection filled the path.
    pub loaded_rtt: Option<Rtt>,
}

/// A rate and its evidence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MeasuredRate {
    /// The rate at the IP layer.
    pub rate_bps: Rate,
    /// The evidence.
    pub evidence: RateEvidence,
    /// Whether the path may carry more, because the sender was the limit.
    pub is_lower_bound: bool,
    /// The bounds of the rate if no connection was steady; `rate_bps` is then the lower one.
    pub range: Option<RateRange>,
}

impl MeasuredRate {
    /// Creates a rate without bounds.
    pub fn new(rate_bps: Rate, evidence: RateEvidence, is_lower_bound: bool) -> Self {
        Self { rate_bps, evidence, is_lower_bound, range: None }
    }
}

/// The method that gave a rate.
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
    /// Returns the method's name for a table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UdpTrains => "UDP trains",
            Self::TcpBursts => "TCP bursts",
            Self::TcpSteady => "TCP throughput",
        }
    }
}

/// The highest rate at which a probe requests datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct UdpCeiling {
    /// The rate at the IP layer.
    pub rate_bps: Rate,
    /// What set it.
    pub set_by: CeilingSource,
    /// Whether the trains that measure the path's rate reached it, so that the path may carry more.
    pub is_reached: bool,
}

/// What sets the ceiling of UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CeilingSource {
    /// The user.
    Option,
    /// The measurement endpoint.
    Server,
    /// The rate of TCP, somewhat exceeded.
    Tcp,
}

impl UdpCeiling {
    /// Returns the ceiling that the user's `option` sets if it is lower than `rate_bps`, which
    /// `other` sets.
    pub fn lower(option: Option<Rate>, rate_bps: Rate, other: CeilingSource) -> Self {
        match option.filter(|option| *option < rate_bps) {
            Some(rate_bps) => Self { rate_bps, set_by: CeilingSource::Option, is_reached: false },
            None => Self { rate_bps, set_by: other, is_reached: false },
        }
    }

    /// Returns whether a measured rate is so near that the ceiling limits it.
    pub fn limits(&self, rate: Rate) -> bool {
        rate >= self.rate_bps.scaled(NEAR_CEILING)
    }
}

/// The share of an allowed rate from which on it counts as the limit: measurements reach it only
/// nearly.
pub const NEAR_CEILING: f64 = 0.85;

/// The size of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MeasuredQueue {
    /// The size in bytes at the IP layer.
    pub bytes: Bytes,
    /// The delay of the full queue.
    #[serde(with = "seconds")]
    pub delay: Duration,
    /// Whether the queue did not overflow, so that it may be larger.
    pub is_lower_bound: bool,
}

/// UDP results with messages of one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct UdpRow {
    /// The size of a message.
    pub message: Bytes,
    /// The rate of received payload.
    pub payload_bps: Rate,
    /// The rate of sent payload.
    pub sent_bps: Rate,
    /// The share of lost packets, 0 to 1.
    pub loss: f64,
    /// Packets that arrived after one with a higher number.
    pub reordered: u32,
    /// Whether the path limited the rate, and not the packets per second of this program.
    pub is_path_limited: bool,
}

/// TCP results with one setting.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct TcpRow {
    /// Concurrent connections.
    pub streams: u32,
    /// The size of the socket buffers of both sides; `None` for the kernel's default.
    pub buffer: Option<Bytes>,
    /// The congestion control of the sender; `None` for its default.
    pub congestion: Option<String>,
    /// The rate of payload over the second half of the time.
    pub payload_bps: Rate,
    /// The duration of the measurement.
    #[serde(with = "seconds")]
    pub seconds: Duration,
    /// Whether the rate had stopped growing.
    pub is_flat: bool,
    /// The bounds of the rate if it had not.
    pub range: Option<RateRange>,
    /// Packets that arrived out of order: each loss causes some.
    pub out_of_order: u64,
}

impl TcpRow {
    /// Returns whether both ends used the kernel's defaults.
    pub fn is_plain(&self) -> bool {
        self.buffer.is_none() && self.congestion.is_none()
    }
}

/// Properties of the path from this host to the server.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct UploadFindings {
    /// TCP results by number of connections; retransmitted packets take the place of packets out of
    /// order.
    pub tcp: Vec<TcpRow>,
    /// The rate at the IP layer.
    pub rate: Option<MeasuredRate>,
}

/// Capabilities and limits of a server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ServerFindings {
    /// "http", "ftp", "iperf3", or empty if no server answers.
    pub protocol: String,
    /// The name of the server software, as the server sent it.
    pub software: Option<String>,
    /// Whether parts of a file can be requested; `None` if undetermined.
    pub ranges: Option<bool>,
    /// The size of the file at the URL.
    pub size: Option<Bytes>,
    /// Further capabilities, a few words each.
    pub features: Vec<String>,
    /// Whether the server has a measurement endpoint.
    pub measures: bool,
    /// The largest send buffer of the server's kernel, if the endpoint reports it.
    pub tcp_wmem_max: Option<Bytes>,
    /// The highest rate at which the endpoint sends.
    pub ceiling_bps: Option<Rate>,
    /// The least rate that the endpoint allowed this client during the probe; `None` without a
    /// ceiling.
    pub allowed_bps: Option<Rate>,
    /// The limit of the server's connections.
    pub limit: Option<ServerLimit>,
}
