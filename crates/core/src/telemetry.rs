//! Telemetry of a running transfer: sockets, application buffer, page cache.

mod counters;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::tcp_info::TcpInfo;
use crate::units::{Bytes, Rate, Rtt, seconds};

pub use counters::{Counters, SenderTimes};

/// One reading of all telemetry.
///
/// `T` is the kernel's report of a connection: all of it in a measurement, a part of it when a long
/// record is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample<T = TcpInfo> {
    /// The duration of the reading: the sockets were read within this time before the event; `None`
    /// in old records.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "seconds::optional")]
    pub took: Option<Duration>,
    /// Bytes of files transferred so far: read from sockets in a download, acknowledged by the peer
    /// in an upload.
    pub moved: Bytes,
    /// The totals of all connections.
    pub sockets: Sockets,
    /// The application buffer; `None` if the transfer uses none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<Segments>,
    /// Bytes that the writer has passed to the kernel; `None` without a writer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<Bytes>,
    /// The output file's pages, if counted since the last sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_cache: Option<PageCache>,
    /// The pages of all files of this host, if read since the last sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_pages: Option<HostPages>,
    /// The open connections.
    pub streams: Vec<StreamSample<T>>,
}

impl<T> Default for Sample<T> {
    fn default() -> Self {
        Self {
            took: None,
            moved: Bytes::ZERO,
            sockets: Sockets::default(),
            segments: None,
            written: None,
            page_cache: None,
            host_pages: None,
            streams: Vec::new(),
        }
    }
}

/// A reading of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSample<T = TcpInfo> {
    /// The number of the connection, from 0.
    pub stream: usize,
    /// Bytes received and not yet read (SIOCINQ = rcv_nxt - copied_seq).
    pub unread: Bytes,
    /// The kernel's report of the connection.
    #[serde(default = "Option::default", skip_serializing_if = "Option::is_none")]
    pub tcp: Option<T>,
}

/// A reading of the buffers that a transfer's bytes pass; counters run from the transfer's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// Bytes of the file that are present, those of earlier runs included.
    pub present: Bytes,
    /// Bytes read from sockets in this run; in an upload, bytes acknowledged by the peer.
    pub received: Bytes,
    /// Bytes of this run passed to the kernel by the writer, or in an upload by the reader.
    pub written: Bytes,
    /// The size of the file, if known.
    pub size: Option<Bytes>,
    /// The first buffer: the connections.
    pub sockets: Sockets,
    /// The second buffer: the application buffer.
    pub segments: Segments,
    /// The third buffer: the file's pages; `None` if the kernel does not count them.
    pub page_cache: Option<PageCache>,
}

/// Use of the application buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Segments {
    /// Segments in use.
    pub in_use: usize,
    /// The largest number of segments in use.
    pub count: usize,
    /// The size of a segment in bytes.
    pub size: Bytes,
}

impl Segments {
    /// Returns the bytes in use, counting whole segments.
    pub fn bytes(&self) -> Bytes {
        self.size * self.in_use as u64
    }

    /// Returns the largest number of bytes in use.
    pub fn capacity(&self) -> Bytes {
        self.size * self.count as u64
    }
}

/// A file's pages in the page cache, as cachestat(2) counts them, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PageCache {
    /// Bytes in the cache.
    pub cached: Bytes,
    /// Dirty bytes in the cache, not under writeback.
    pub dirty: Bytes,
    /// Bytes in the cache under writeback.
    pub writeback: Bytes,
    /// Bytes evicted from the cache.
    pub evicted: Bytes,
    /// Bytes evicted so recently that it indicates memory pressure.
    pub recently_evicted: Bytes,
}

/// Pages of all files of this host that are not yet on their devices, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostPages {
    /// Dirty bytes, not under writeback.
    pub dirty: Bytes,
    /// Bytes under writeback.
    pub writeback: Bytes,
}

/// Totals of all connections: sums, and for times the means over the connections that report them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sockets {
    /// Open connections.
    pub open: usize,
    /// Bytes received and not yet read (SIOCINQ), summed.
    pub unread: Bytes,
    /// The windows.
    #[serde(flatten)]
    pub windows: WindowSums,
    /// The RTTs, and the age of the data.
    #[serde(flatten)]
    pub times: PathTimes,
    /// The rates of senders.
    #[serde(flatten)]
    pub rates: SenderRates,
    /// Connections opened without window scaling (`tcpi_options`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unscaled: usize,
    /// Segments that the peers have received beyond a gap, summed (`tcpi_sacked`): while there are
    /// any, every acknowledgement is a duplicate.
    #[serde(default)]
    pub sacked: u64,
    /// Cumulative counters, closed connections included.
    #[serde(flatten)]
    pub counters: Counters,
}

/// The windows of all connections, summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WindowSums {
    /// Receive windows (`tcpi_rcv_wnd`, Linux 6.2 and later).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rwin: Option<Bytes>,
    /// Windows advertised by the peers (`tcpi_snd_wnd`, Linux 5.4 and later).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_window: Option<Bytes>,
    /// Congestion windows (`tcpi_snd_cwnd` segments of `tcpi_snd_mss`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwnd: Option<Bytes>,
}

/// The RTTs of all connections, and how old their latest data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PathTimes {
    /// Smoothed RTT, the mean (`tcpi_rtt`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt: Option<Rtt>,
    /// The receiver's estimate of the RTT, including queueing of the data; the mean
    /// (`tcpi_rcv_rtt`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_rtt: Option<Rtt>,
    /// The time since data arrived (`tcpi_last_data_recv`): the lower median of the connections.
    #[serde(skip_serializing_if = "Option::is_none", with = "seconds::optional")]
    pub data_age: Option<Duration>,
    /// The least RTT of all connections (`tcpi_min_rtt`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_rtt: Option<Rtt>,
}

/// The rates of all sending connections, summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SenderRates {
    /// Pacing rates (`tcpi_pacing_rate`).
    #[serde(skip_serializing_if = "Option::is_none", rename = "pacing_bps")]
    pub pacing: Option<Rate>,
    /// Delivery rates (`tcpi_delivery_rate`).
    #[serde(skip_serializing_if = "Option::is_none", rename = "delivery_bps")]
    pub delivery: Option<Rate>,
    /// Connections whose send buffer was empty when the delivery rate was measured
    /// (`tcpi_delivery_rate_app_limited`).
    #[serde(skip_serializing_if = "is_zero")]
    pub app_limited: usize,
}

impl Sockets {
    /// Sums the open connections and the counters of closed ones.
    pub fn of(streams: &[StreamSample], closed: Counters) -> Self {
        let known = || streams.iter().filter_map(|stream| stream.tcp.as_ref());
        let ages = known().filter_map(TcpInfo::tcpi_last_data_recv);
        let rate = |of: fn(&TcpInfo) -> Option<Rate>| {
            sum(known().filter_map(of).map(Rate::as_bytes_per_sec)).map(Rate::bytes_per_sec)
        };
        let mut counters = closed;
        known().for_each(|tcp| counters += Counters::of(tcp));
        Self {
            open: streams.len(),
            unread: streams.iter().fold(Bytes::ZERO, |sum, stream| sum + stream.unread),
            windows: WindowSums {
                rwin: sum(known().filter_map(TcpInfo::rcv_wnd).map(Bytes::get)).map(Bytes::new),
                peer_window: sum(known().filter_map(TcpInfo::tcpi_snd_wnd)).map(Bytes::new),
                cwnd: sum(known().filter_map(TcpInfo::cwnd).map(Bytes::get)).map(Bytes::new),
            },
            times: PathTimes {
                rtt: mean(known().filter_map(TcpInfo::rtt)),
                data_rtt: mean(known().filter_map(TcpInfo::rcv_rtt)),
                data_age: lower_median(ages.map(Duration::from_millis).collect()),
                min_rtt: known().filter_map(TcpInfo::min_rtt).min(),
            },
            rates: SenderRates {
                pacing: rate(TcpInfo::pacing_rate),
                delivery: rate(TcpInfo::delivery_rate),
                app_limited: known().filter(|tcp| tcp.tcpi_delivery_rate_app_limited() == Some(1)).count(),
            },
            unscaled: known().filter(|tcp| is_unscaled(tcp)).count(),
            sacked: known().filter_map(TcpInfo::tcpi_sacked).sum(),
            counters,
        }
    }

    /// Returns whether every open connection has an empty send buffer.
    pub fn are_app_limited(&self) -> bool {
        self.rates.app_limited > 0 && self.rates.app_limited == self.open
    }
}

/// Returns the middle one of some times, the earlier of two; `None` if there are none.
pub fn lower_median(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort_unstable();
    times.get(times.len().saturating_sub(1) / 2).copied()
}

/// Returns whether an established connection lacks the option of window scaling.
fn is_unscaled(tcp: &TcpInfo) -> bool {
    const ESTABLISHED: u64 = 1;
    const WINDOW_SCALE: u64 = 4;
    tcp.tcpi_state() == Some(ESTABLISHED)
        && tcp.tcpi_options().is_some_and(|options| options & WINDOW_SCALE == 0)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Sums the known values; `None` if there are none.
fn sum(values: impl Iterator<Item = u64>) -> Option<u64> {
    values.reduce(u64::saturating_add)
}

fn mean(times: impl Iterator<Item = Rtt>) -> Option<Rtt> {
    let (sum, count) = times.fold((Duration::ZERO, 0u32), |(sum, count), rtt| (sum + rtt.get(), count + 1));
    (count > 0).then(|| Rtt::new(sum / count))
}

/// Limits the frequency of an action of unknown cost to a share of the time.
///
/// For example, counting a file's pages takes time in proportion to their number.
#[derive(Debug, Clone, Copy)]
pub struct Sparingly {
    one_in: u32,
    due: Duration,
}

impl Sparingly {
    /// Limits the action to one part in `parts` of the time.
    pub fn one_in(parts: u32) -> Self {
        Self { one_in: parts, due: Duration::ZERO }
    }

    /// Returns whether the action may run at `now`.
    pub fn is_due(&self, now: Duration) -> bool {
        now >= self.due
    }

    /// Accounts for one run of the action, begun at `now`, that took `cost`.
    pub fn took(&mut self, now: Duration, cost: Duration) {
        self.due = now.saturating_add(cost.saturating_mul(self.one_in));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(stream: usize, set: impl Fn(&mut Vec<u8>)) -> StreamSample {
        let mut bytes = vec![0; crate::tcp_info::SIZE];
        set(&mut bytes);
        StreamSample { stream, unread: Bytes::new(10), tcp: Some(TcpInfo::from_bytes(&bytes)) }
    }

    #[test]
    fn known_values_are_summed_and_none_gives_none() {
        let rtt = |us: u32| {
            stream(0, move |bytes| {
                bytes[68..72].copy_from_slice(&us.to_le_bytes());
                bytes[232..236].copy_from_slice(&1000u32.to_le_bytes());
                bytes[224..228].copy_from_slice(&3u32.to_le_bytes());
                bytes[52..56].copy_from_slice(&us.to_le_bytes());
            })
        };
        let silent = StreamSample { stream: 2, unread: Bytes::new(5), tcp: None };
        let closed = Counters { out_of_order: 4, ..Counters::default() };
        let all = Sockets::of(&[rtt(100), rtt(300), silent], closed);
        assert_eq!((all.open, all.unread, all.windows.rwin), (3, Bytes::new(25), Some(Bytes::new(2000))));
        assert_eq!(all.times.rtt, Some(Rtt::new(Duration::from_micros(200))));
        assert_eq!((all.times.data_rtt, all.counters.out_of_order), (None, 10));
        assert_eq!(all.times.data_age, Some(Duration::from_millis(100)));
        assert_eq!(Sockets::of(&[silent], closed).windows.rwin, None);
    }

    #[test]
    fn counters_are_read_summed_and_compared_field_by_field() {
        let at = |n: u64| Counters {
            retransmits: n,
            out_of_order: n + 1,
            dsacks: n + 2,
            received: Bytes::new(n + 3),
            sent: Bytes::new(n + 4),
            acked: Bytes::new(n + 5),
            data_segments: n + 6,
            delivered: n + 10,
            times: SenderTimes {
                busy: Duration::from_micros(n + 7),
                window_limited: Duration::from_micros(n + 8),
                buffer_limited: Duration::from_micros(n + 9),
            },
        };
        let set = |bytes: &mut Vec<u8>| {
            for (offset, value) in [(28, 9u32), (100, 7), (224, 8), (216, 9), (152, 13), (192, 17)] {
                bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
            }
            for (offset, value) in [(128, 10u64), (200, 11), (120, 12), (168, 14), (176, 15), (184, 16)] {
                bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
            }
        };
        let all = Sockets::of(&[stream(0, set), stream(1, set)], Counters::default());
        let sum = |mut one: Counters, other| {
            one += other;
            one
        };
        assert_eq!((all.counters, all.sacked), (sum(at(7), at(7)), 18));
        assert_eq!((at(7).later(at(3)), at(3).later(at(7))), (at(7), at(7)));
        assert_eq!(sum(at(7).since(at(3)), at(3)), at(7));
        assert_eq!(at(3).since(at(7)), Counters::default(), "never below zero");
    }

    #[test]
    fn costly_actions_run_rarely() {
        let mut pages = Sparingly::one_in(400);
        assert!(pages.is_due(Duration::ZERO));
        pages.took(Duration::from_secs(1), Duration::from_millis(10));
        assert!(!pages.is_due(Duration::from_millis(4999)) && pages.is_due(Duration::from_secs(5)));
    }
}
