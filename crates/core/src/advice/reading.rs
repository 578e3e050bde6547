//! What is read of a transfer at one moment, at whichever end.

use std::time::Duration;

use crate::pace::Pace;
use crate::telemetry::{SenderTimes, Sockets};
use crate::units::{Bytes, Rate, Rtt};

/// Where a transfer is observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// At the receiver of the bytes, or by packets alone.
    Receiver,
    /// At the sender of the bytes, whose kernel counts what limited it.
    Sender,
}

/// What the sender of a transfer paces itself to, as it states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SenderPace {
    /// The capacity of the path, which it measures.
    Path,
    /// A rate of each connection that its operator has set, observed at the receiver.
    Fixed(Rate),
    /// A rate of each connection that an option of this end sets: the receiver has requested it, or
    /// the sender keeps it.
    Requested(Rate),
    /// A rate of all connections together that an option of the sender sets.
    Shared(Rate),
}

impl SenderPace {
    /// Reads the pace that a sending peer states to be in force after a request for `requested`;
    /// `None` if it does not pace.
    pub fn of(stated: Pace, requested: Option<Pace>) -> Option<Self> {
        match (stated, requested) {
            (Pace::Off, _) => None,
            (Pace::Auto, _) => Some(Self::Path),
            (Pace::Rate(rate), Some(Pace::Rate(requested))) if rate >= requested => {
                Some(Self::Requested(rate))
            }
            (Pace::Rate(rate), _) => Some(Self::Fixed(rate)),
        }
    }
}

/// A transfer at one moment; counters run from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reading {
    /// Bytes moved: read from sockets, or acknowledged by the peer.
    pub moved: Bytes,
    /// Connections open.
    pub streams: usize,
    /// What the path shows.
    pub path: PathReading,
    /// What arrives.
    pub packets: PacketReading,
    /// Receive windows of the receiving end, summed.
    pub window: Option<Bytes>,
    /// Bytes received and not yet read, summed.
    pub unread: Bytes,
    /// What a sender's kernel reports.
    pub sender: SenderReading,
    /// What the threads of this program did, where they are known.
    pub threads: Option<ThreadTimes>,
    /// Whether a connection was opened without window scaling (RFC 7323), so that no window exceeds
    /// 64 KiB.
    pub unscaled: bool,
    /// Whether the application buffer is full.
    pub buffer_full: bool,
}

/// Delays of a path, and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathReading {
    /// The least RTT.
    pub min_rtt: Option<Rtt>,
    /// The RTT as the data sees it, queues included: `tcpi_rcv_rtt` of a receiver, `tcpi_rtt` of a
    /// sender.
    pub data_rtt: Option<Rtt>,
    /// Bytes in flight, where they are known; otherwise the rate times the RTT.
    pub in_flight: Option<Bytes>,
}

/// Packets with data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketReading {
    /// Packets that arrived, in order or not.
    pub arrived: u64,
    /// Packets that arrived out of order; of a sender, packets sent again.
    pub lost: u64,
    /// The time since data arrived, the lower median of the connections; zero where it is not
    /// known.
    pub age: Duration,
}

/// The state of a sender's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SenderReading {
    /// What the kernel has counted.
    pub times: Option<SenderTimes>,
    /// Congestion windows, summed.
    pub congestion_window: Option<Bytes>,
    /// The rate at which the kernel paces, summed.
    pub pacing: Option<Rate>,
    /// Whether all connections have sent what their send buffers hold; of a transfer of this
    /// program, although it has more to send.
    pub buffers_empty: bool,
}

/// For how long the threads of a transfer waited or worked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThreadTimes {
    /// Waits for a free segment to receive into, or for bytes of the source; summed over the
    /// streams.
    pub disk: Duration,
    /// Waits to keep to `--limit`, summed over the streams.
    pub limit: Duration,
    /// Time in which the busiest thread ran.
    pub ran: Duration,
    /// Time in which that thread could have run and waited for a core.
    pub starved: Duration,
}

impl Reading {
    /// Reads sockets at one end of a transfer that has moved `moved`.
    pub fn of(end: End, moved: Bytes, sockets: &Sockets) -> Self {
        let Sockets { counters, windows, times, rates, .. } = sockets;
        let unscaled = sockets.unscaled > 0;
        let reading = Self { moved, streams: sockets.open, unscaled, ..Self::default() };
        let min_rtt = times.min_rtt;
        match end {
            End::Receiver => Self {
                path: PathReading { min_rtt, data_rtt: times.data_rtt, in_flight: None },
                packets: PacketReading {
                    arrived: counters.data_segments,
                    lost: counters.out_of_order,
                    age: times.data_age.unwrap_or_default(),
                },
                window: windows.rwin,
                unread: sockets.unread,
                ..reading
            },
            End::Sender => Self {
                path: PathReading { min_rtt, data_rtt: times.rtt, in_flight: None },
                packets: PacketReading {
                    arrived: counters.delivered,
                    lost: counters.retransmits,
                    age: Duration::ZERO,
                },
                window: windows.peer_window,
                sender: SenderReading {
                    // Zero before the first byte, and of a kernel before Linux 4.10.
                    times: (counters.times.busy > Duration::ZERO).then_some(counters.times),
                    congestion_window: windows.cwnd,
                    pacing: rates.pacing,
                    buffers_empty: sockets.are_app_limited(),
                },
                ..reading
            },
        }
    }
}
