//! What shows that a limit holds.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::LimitedBy;
use super::attribution::Evidence;
use super::reading::End;
use crate::units::{Bytes, Rate, Rtt, seconds};

/// The rule by which an interval was assigned to its limit: the first one that held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Witness {
    /// Connecting, and the round trips before the first byte.
    Opening,
    /// The rate grew, without a loss.
    Growth,
    /// The receive window was in flight, and no queue stood.
    FullWindow,
    /// The sender's kernel waited for the peer's window (`tcpi_rwnd_limited`), which stayed open.
    WindowLimited,
    /// The sender's kernel waited for its send buffer (`tcpi_sndbuf_limited`).
    BufferLimited,
    /// The send buffer was often empty (`tcpi_delivery_rate_app_limited`).
    EmptyBuffer,
    /// Less was in flight than congestion window, peer and pacing permit.
    BelowWindows,
    /// An even rate, with as much in flight as a stock server's buffer holds.
    StockBuffer,
    /// Packets were lost without a queue, and their recovery lasted.
    Losses,
    /// Nothing arrived after a loss until it was sent again.
    RetransmissionTimeout,
    /// The RTT of the data was above that of the empty path throughout, and arrivals did not pause.
    StandingQueue,
    /// Arrivals came back to one highest rate, at which data were late.
    Capacity,
    /// Packets were lost behind a queue.
    Overflow,
    /// Packets arrived at one rate while others were lost behind a queue.
    CappedOverflow,
    /// The peer paces itself to the path's capacity, and nothing else limited it.
    PacingPeer,
    /// The sender's kernel had data, windows and buffer throughout.
    CongestionControl,
    /// Streams waited for the disk.
    DiskWaits,
    /// The application buffer was full.
    FullApplicationBuffer,
    /// The complete file was made durable.
    Flush,
    /// A thread ran throughout.
    BusyThread,
    /// Data lay in the socket while a thread waited for a core.
    CoreWaits,
    /// Streams waited to keep to a rate.
    LimitWaits,
    /// Data moved at the pace that an option sets.
    RequestedPace,
    /// The first byte was late.
    LateAnswer,
    /// No byte arrived, or was acknowledged.
    Silence,
    /// Bursts alternated with gaps.
    StopAndGo,
    /// Data were late because arrivals had paused.
    Pauses,
    /// An even rate with little in flight.
    EvenRate,
    /// Data arrived at the pace that the peer's operator has set.
    FixedPace,
    /// The rate fell below what the path had carried, without a loss or a queue.
    Slowed,
    /// The peer's window closed because it did not read.
    ClosedWindow,
    /// What lay unread filled the window.
    Unread,
    /// The program had no data to send.
    NothingToSend,
    /// Packets arrived at one rate while others were lost, without a queue.
    CappedArrivals,
    /// Nothing that was observed explains the rate. A name that a later version has written reads
    /// so, too.
    #[default]
    #[serde(other)]
    Unexplained,
}

impl Witness {
    /// Returns the limit that it shows.
    pub const fn limit(self) -> LimitedBy {
        match self {
            Self::Opening | Self::Growth => LimitedBy::SlowStart,
            Self::FullWindow | Self::WindowLimited => LimitedBy::ReceiveWindow,
            Self::BufferLimited | Self::EmptyBuffer | Self::BelowWindows => LimitedBy::SendBuffer,
            Self::StockBuffer => LimitedBy::ServerSendBuffer,
            Self::Losses | Self::RetransmissionTimeout => LimitedBy::Loss,
            Self::StandingQueue
            | Self::Capacity
            | Self::Overflow
            | Self::CappedOverflow
            | Self::PacingPeer
            | Self::CongestionControl => LimitedBy::Path,
            Self::DiskWaits | Self::FullApplicationBuffer | Self::Flush => LimitedBy::Disk,
            Self::BusyThread | Self::CoreWaits => LimitedBy::Cpu,
            Self::LimitWaits | Self::RequestedPace => LimitedBy::Limit,
            Self::LateAnswer
            | Self::Silence
            | Self::StopAndGo
            | Self::Pauses
            | Self::EvenRate
            | Self::FixedPace
            | Self::Slowed
            | Self::ClosedWindow => LimitedBy::Server,
            Self::Unread | Self::NothingToSend => LimitedBy::Application,
            Self::CappedArrivals => LimitedBy::Policer,
            Self::Unexplained => LimitedBy::Unknown,
        }
    }
}

impl Witness {
    /// Returns what it shows where the other end is a client. Of one that sends, its program, its
    /// `--limit` and its send buffer look alike, and a reader that is late is the server; one that
    /// receives and does not read is a program.
    pub(super) const fn of_client(self, observed_at: End) -> Self {
        match self {
            Self::ClosedWindow if matches!(observed_at, End::Sender) => Self::Unread,
            witness if matches!(observed_at, End::Sender) => witness,
            Self::StockBuffer
            | Self::LateAnswer
            | Self::Silence
            | Self::StopAndGo
            | Self::Pauses
            | Self::EvenRate
            | Self::Slowed => Self::Unexplained,
            Self::Unread => Self::ClosedWindow,
            other => other,
        }
    }
}

/// A part of a limit's share, and what was measured meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WitnessedTime {
    /// The limit.
    pub limit: LimitedBy,
    /// What showed it.
    pub witness: Witness,
    /// For how long.
    #[serde(with = "seconds", rename = "seconds")]
    pub time: Duration,
    /// The mean rate.
    #[serde(rename = "rate_bps")]
    pub rate: Rate,
    /// The least RTT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rtt: Option<Rtt>,
    /// The highest RTT of the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_rtt: Option<Rtt>,
    /// The mean of the bytes in flight, where the RTT is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<Bytes>,
    /// The largest receive window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Bytes>,
    /// Packets that were lost or arrived out of order.
    pub lost: u64,
}

impl WitnessedTime {
    pub(super) fn of(witness: Witness, evidence: &Evidence) -> Self {
        Self {
            limit: witness.limit(),
            witness,
            time: evidence.time,
            rate: evidence.rate(),
            min_rtt: evidence.min_rtt,
            data_rtt: evidence.data_rtt,
            in_flight: evidence.min_rtt.map(|_| evidence.in_flight()),
            window: Some(evidence.window.largest).filter(|window| *window > Bytes::ZERO),
            lost: evidence.lost,
        }
    }
}
