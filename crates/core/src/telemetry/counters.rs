//! The cumulative counters of connections.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::tcp_info::TcpInfo;
use crate::units::{Bytes, seconds};

/// Cumulative counters of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Segments that this host retransmitted (`tcpi_total_retrans`).
    pub retransmits: u64,
    /// Segments that arrived out of order (`tcpi_rcv_ooopack`): a receiver's sign of loss. Each is
    /// answered by a duplicate acknowledgement (RFC 5681, section 4.2).
    pub out_of_order: u64,
    /// Segments that the peers reported as duplicates (`tcpi_dsack_dups`, RFC 2883): unnecessary
    /// retransmissions.
    #[serde(default)]
    pub dsacks: u64,
    /// Segments with data that arrived, in order or not (`tcpi_data_segs_in`).
    #[serde(default)]
    pub data_segments: u64,
    /// Segments that the peers have received, in order or not (`tcpi_delivered`).
    #[serde(default)]
    pub delivered: u64,
    /// Bytes received in order, whether read or not (`tcpi_bytes_received`).
    #[serde(default)]
    pub received: Bytes,
    /// Bytes sent, including retransmissions (`tcpi_bytes_sent`).
    #[serde(default)]
    pub sent: Bytes,
    /// Bytes acknowledged by the peers (`tcpi_bytes_acked`).
    pub acked: Bytes,
    /// What limited a sender.
    #[serde(flatten)]
    pub times: SenderTimes,
}

/// For how long a sender's kernel had data to send, and what limited it; summed over the
/// connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SenderTimes {
    /// Time with data to send (`tcpi_busy_time`).
    #[serde(with = "seconds")]
    pub busy: Duration,
    /// The part of `busy` limited by the peer's window (`tcpi_rwnd_limited`).
    #[serde(with = "seconds")]
    pub window_limited: Duration,
    /// The part of `busy` limited by the send buffer (`tcpi_sndbuf_limited`).
    #[serde(with = "seconds")]
    pub buffer_limited: Duration,
}

impl Counters {
    /// Extracts the counters from a reading.
    pub fn of(tcp: &TcpInfo) -> Self {
        Self {
            retransmits: tcp.tcpi_total_retrans().unwrap_or(0),
            out_of_order: tcp.tcpi_rcv_ooopack().unwrap_or(0),
            dsacks: tcp.tcpi_dsack_dups().unwrap_or(0),
            data_segments: tcp.tcpi_data_segs_in().unwrap_or(0),
            delivered: tcp.tcpi_delivered().unwrap_or(0),
            received: Bytes::new(tcp.tcpi_bytes_received().unwrap_or(0)),
            sent: Bytes::new(tcp.tcpi_bytes_sent().unwrap_or(0)),
            acked: tcp.bytes_acked().unwrap_or_default(),
            times: SenderTimes {
                busy: microseconds(tcp.tcpi_busy_time()),
                window_limited: microseconds(tcp.tcpi_rwnd_limited()),
                buffer_limited: microseconds(tcp.tcpi_sndbuf_limited()),
            },
        }
    }

    /// Combines each counter with that of `other`.
    fn with(self, other: Self, count: fn(u64, u64) -> u64, time: fn(Duration, Duration) -> Duration) -> Self {
        let bytes = |one: Bytes, other: Bytes| Bytes::new(count(one.get(), other.get()));
        Self {
            retransmits: count(self.retransmits, other.retransmits),
            out_of_order: count(self.out_of_order, other.out_of_order),
            dsacks: count(self.dsacks, other.dsacks),
            data_segments: count(self.data_segments, other.data_segments),
            delivered: count(self.delivered, other.delivered),
            received: bytes(self.received, other.received),
            sent: bytes(self.sent, other.sent),
            acked: bytes(self.acked, other.acked),
            times: SenderTimes {
                busy: time(self.times.busy, other.times.busy),
                window_limited: time(self.times.window_limited, other.times.window_limited),
                buffer_limited: time(self.times.buffer_limited, other.times.buffer_limited),
            },
        }
    }

    /// Returns the difference of the counters since `before`.
    pub fn since(self, before: Self) -> Self {
        self.with(before, u64::saturating_sub, Duration::saturating_sub)
    }

    /// Returns the later of two readings of one connection, independent of their order.
    pub fn later(self, other: Self) -> Self {
        self.with(other, u64::max, Duration::max)
    }
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        *self = self.with(other, u64::saturating_add, Duration::saturating_add);
    }
}

fn microseconds(value: Option<u64>) -> Duration {
    Duration::from_micros(value.unwrap_or(0))
}
