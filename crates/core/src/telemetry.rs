//! What is measured of a running transfer: sockets, application buffer, page cache.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::tcp_info::TcpInfo;
use crate::units::{Bytes, Rate, Rtt, seconds};

/// One reading of everything, taken at one moment.
///
/// `T` holds what the kernel reports of a connection: all of it where it is measured, less where a long record is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample<T = TcpInfo> {
    /// How long reading took: the sockets were read within this time before the event's; `None` in old records.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_seconds")]
    pub took: Option<Duration>,
    /// Bytes of files moved so far: read from sockets where we receive, acknowledged by the peer where we send.
    pub moved: Bytes,
    /// All connections together.
    pub sockets: Sockets,
    /// The application buffer; `None` where bytes pass without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<Segments>,
    /// Bytes that the writer has handed to the kernel; `None` where nothing is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<Bytes>,
    /// The output file's pages, where they were counted anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_cache: Option<PageCache>,
    /// The pages of all of this host's files, where they were read anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_pages: Option<HostPages>,
    /// Each open connection.
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

/// One connection at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSample<T = TcpInfo> {
    /// Its number, from 0.
    pub stream: usize,
    /// Bytes received and not yet read (SIOCINQ = rcv_nxt - copied_seq).
    pub unread: Bytes,
    /// What the kernel reports of it.
    #[serde(default = "Option::default", skip_serializing_if = "Option::is_none")]
    pub tcp: Option<T>,
}

/// The buffers that a transfer's bytes pass, at one moment; counters run from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// Bytes of the file that are there, those of an earlier run included.
    pub present: Bytes,
    /// Bytes read from sockets in this run; where we send, acknowledged by the peer.
    pub received: Bytes,
    /// Bytes of this run that the writer, or where we send the reader, has handed to the kernel.
    pub written: Bytes,
    /// The size of the file, where known.
    pub size: Option<Bytes>,
    /// The connections: the first buffer.
    pub sockets: Sockets,
    /// The application buffer: the second.
    pub segments: Segments,
    /// The file's pages: the third; `None` where the kernel does not count them.
    pub page_cache: Option<PageCache>,
}

/// An optional time as seconds.
mod optional_seconds {
    use super::{Duration, seconds};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    struct Seconds(#[serde(with = "seconds")] Duration);

    pub(super) fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        time.map(Seconds).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Seconds>::deserialize(from)?.map(|Seconds(time)| time))
    }
}

/// Application buffer in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Segments {
    /// Segments in use.
    pub in_use: usize,
    /// Segments that may be in use at once.
    pub count: usize,
    /// Bytes of one.
    pub size: Bytes,
}

impl Segments {
    /// Returns the bytes in use; a segment counts as a whole.
    pub fn bytes(&self) -> Bytes {
        self.size * self.in_use as u64
    }

    /// Returns the bytes that may be in use.
    pub fn capacity(&self) -> Bytes {
        self.size * self.count as u64
    }
}

/// A file's pages in the page cache, as cachestat(2) counts them, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PageCache {
    /// In the cache.
    pub cached: Bytes,
    /// Of those: changed and not yet being written.
    pub dirty: Bytes,
    /// Of those: being written to the device.
    pub writeback: Bytes,
    /// No longer in the cache.
    pub evicted: Bytes,
    /// Of those: so lately that memory is short.
    pub recently_evicted: Bytes,
}

/// What waits to reach the devices of this host, of whichever file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostPages {
    /// Changed and not yet being written.
    pub dirty: Bytes,
    /// Being written to a device.
    pub writeback: Bytes,
}

/// All connections together: sums, and for times the mean of those that know one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sockets {
    /// Connections open now.
    pub open: usize,
    /// Bytes received and not yet read (SIOCINQ), summed.
    pub unread: Bytes,
    /// Receive windows, summed (`tcpi_rcv_wnd`, Linux 6.2 and later).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rwin: Option<Bytes>,
    /// Windows that the peers announce, summed (`tcpi_snd_wnd`, Linux 5.4 and later).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_window: Option<Bytes>,
    /// Congestion windows, summed (`tcpi_snd_cwnd` segments of `tcpi_snd_mss`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwnd: Option<Bytes>,
    /// Smoothed RTT, the mean (`tcpi_rtt`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt: Option<Rtt>,
    /// The receiver's estimate of the RTT, the data's queueing included; the mean (`tcpi_rcv_rtt`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_rtt: Option<Rtt>,
    /// The least RTT of any (`tcpi_min_rtt`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rtt: Option<Rtt>,
    /// Pacing rates, summed (`tcpi_pacing_rate`).
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "pacing_bps")]
    pub pacing_rate: Option<Rate>,
    /// Delivery rates, summed (`tcpi_delivery_rate`).
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "delivery_bps")]
    pub delivery_rate: Option<Rate>,
    /// Connections whose send buffer had nothing left to send when the delivery rate was taken (`tcpi_delivery_rate_app_limited`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub app_limited: usize,
    /// Segments that the peers have beyond a gap, summed (`tcpi_sacked`): while there are any, every
    /// acknowledgement is a duplicate.
    #[serde(default)]
    pub sacked: u64,
    /// What only grows, connections that are closed included.
    #[serde(flatten)]
    pub counters: Counters,
}

/// What a connection has counted since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Segments that this host sent again (`tcpi_total_retrans`).
    pub retransmits: u64,
    /// Segments that arrived out of order (`tcpi_rcv_ooopack`): a receiver's sign of loss, answered with a
    /// duplicate acknowledgement each (RFC 5681, section 4.2).
    pub out_of_order: u64,
    /// Segments that the peers reported to have got twice (`tcpi_dsack_dups`, RFC 2883): sent again in vain.
    #[serde(default)]
    pub dsacks: u64,
    /// Segments with data that arrived, in order or not (`tcpi_data_segs_in`).
    #[serde(default)]
    pub data_segments: u64,
    /// Bytes that arrived in order, read or not (`tcpi_bytes_received`).
    #[serde(default)]
    pub received: Bytes,
    /// Bytes sent, those sent again included (`tcpi_bytes_sent`).
    #[serde(default)]
    pub sent: Bytes,
    /// Bytes that the peers acknowledged (`tcpi_bytes_acked`).
    pub acked: Bytes,
    /// Time with data to send, summed over the connections (`tcpi_busy_time`).
    #[serde(default, with = "seconds")]
    pub busy: Duration,
    /// Of that: limited by the peer's window (`tcpi_rwnd_limited`).
    #[serde(default, with = "seconds")]
    pub window_limited: Duration,
    /// Of that: limited by the send buffer (`tcpi_sndbuf_limited`).
    #[serde(default, with = "seconds")]
    pub buffer_limited: Duration,
}

impl Counters {
    /// Takes them from a reading.
    pub fn of(tcp: &TcpInfo) -> Self {
        Self {
            retransmits: tcp.tcpi_total_retrans().unwrap_or(0),
            out_of_order: tcp.tcpi_rcv_ooopack().unwrap_or(0),
            dsacks: tcp.tcpi_dsack_dups().unwrap_or(0),
            data_segments: tcp.tcpi_data_segs_in().unwrap_or(0),
            received: Bytes::new(tcp.tcpi_bytes_received().unwrap_or(0)),
            sent: Bytes::new(tcp.tcpi_bytes_sent().unwrap_or(0)),
            acked: tcp.bytes_acked().unwrap_or_default(),
            busy: microseconds(tcp.tcpi_busy_time()),
            window_limited: microseconds(tcp.tcpi_rwnd_limited()),
            buffer_limited: microseconds(tcp.tcpi_sndbuf_limited()),
        }
    }

    /// Returns what was counted since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            retransmits: self.retransmits.saturating_sub(before.retransmits),
            out_of_order: self.out_of_order.saturating_sub(before.out_of_order),
            dsacks: self.dsacks.saturating_sub(before.dsacks),
            data_segments: self.data_segments.saturating_sub(before.data_segments),
            received: self.received.saturating_sub(before.received),
            sent: self.sent.saturating_sub(before.sent),
            acked: self.acked.saturating_sub(before.acked),
            busy: self.busy.saturating_sub(before.busy),
            window_limited: self.window_limited.saturating_sub(before.window_limited),
            buffer_limited: self.buffer_limited.saturating_sub(before.buffer_limited),
        }
    }

    /// Returns the later of two readings of one connection, whichever way round they come.
    pub fn later(self, other: Self) -> Self {
        Self {
            retransmits: self.retransmits.max(other.retransmits),
            out_of_order: self.out_of_order.max(other.out_of_order),
            dsacks: self.dsacks.max(other.dsacks),
            data_segments: self.data_segments.max(other.data_segments),
            received: self.received.max(other.received),
            sent: self.sent.max(other.sent),
            acked: self.acked.max(other.acked),
            busy: self.busy.max(other.busy),
            window_limited: self.window_limited.max(other.window_limited),
            buffer_limited: self.buffer_limited.max(other.buffer_limited),
        }
    }
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.retransmits += other.retransmits;
        self.out_of_order += other.out_of_order;
        self.dsacks += other.dsacks;
        self.data_segments += other.data_segments;
        self.received += other.received;
        self.sent += other.sent;
        self.acked += other.acked;
        self.busy += other.busy;
        self.window_limited += other.window_limited;
        self.buffer_limited += other.buffer_limited;
    }
}

impl Sockets {
    /// Sums up the open connections, and what closed ones have counted.
    pub fn of(streams: &[StreamSample], closed: Counters) -> Self {
        let mut all = Self { open: streams.len(), counters: closed, ..Self::default() };
        let known = || streams.iter().filter_map(|stream| stream.tcp.as_ref());
        for tcp in known() {
            all.counters += Counters::of(tcp);
        }
        all.unread = streams.iter().fold(Bytes::ZERO, |sum, stream| sum + stream.unread);
        all.rwin = sum(known().filter_map(TcpInfo::rcv_wnd).map(Bytes::get)).map(Bytes::new);
        all.peer_window = sum(known().filter_map(TcpInfo::tcpi_snd_wnd)).map(Bytes::new);
        all.cwnd = sum(known().filter_map(TcpInfo::cwnd).map(Bytes::get)).map(Bytes::new);
        all.pacing_rate = sum(known().filter_map(TcpInfo::pacing_rate).map(Rate::as_bytes_per_sec))
            .map(Rate::bytes_per_sec);
        all.delivery_rate = sum(known().filter_map(TcpInfo::delivery_rate).map(Rate::as_bytes_per_sec))
            .map(Rate::bytes_per_sec);
        all.rtt = mean(known().filter_map(TcpInfo::rtt));
        all.data_rtt = mean(known().filter_map(TcpInfo::rcv_rtt));
        all.app_limited = known().filter(|tcp| tcp.tcpi_delivery_rate_app_limited() == Some(1)).count();
        all.sacked = known().filter_map(TcpInfo::tcpi_sacked).sum();
        all.min_rtt = known().filter_map(TcpInfo::min_rtt).min();
        all
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

fn microseconds(value: Option<u64>) -> Duration {
    Duration::from_micros(value.unwrap_or(0))
}

/// Sums what is known; `None` where nothing is.
fn sum(values: impl Iterator<Item = u64>) -> Option<u64> {
    values.reduce(u64::saturating_add)
}

fn mean(times: impl Iterator<Item = Rtt>) -> Option<Rtt> {
    let (sum, count) = times.fold((Duration::ZERO, 0u32), |(sum, count), rtt| (sum + rtt.get(), count + 1));
    (count > 0).then(|| Rtt::new(sum / count))
}

/// Lets something whose cost is not known beforehand happen only as often as it may cost.
///
/// Counting a file's pages takes the longer the more of them there are.
#[derive(Debug, Clone, Copy)]
pub struct Sparingly {
    one_in: u32,
    due: Duration,
}

impl Sparingly {
    /// Lets it take one part in so many of the time.
    pub fn one_in(parts: u32) -> Self {
        Self { one_in: parts, due: Duration::ZERO }
    }

    /// Returns whether it may happen again.
    pub fn is_due(&self, now: Duration) -> bool {
        now >= self.due
    }

    /// Accounts for one time, begun at `now`, that took `cost`.
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
    fn sums_what_is_known_and_says_where_nothing_is() {
        let rtt = |us: u32| {
            stream(0, move |bytes| {
                bytes[68..72].copy_from_slice(&us.to_le_bytes());
                bytes[232..236].copy_from_slice(&1000u32.to_le_bytes());
                bytes[224..228].copy_from_slice(&3u32.to_le_bytes());
            })
        };
        let silent = StreamSample { stream: 2, unread: Bytes::new(5), tcp: None };
        let closed = Counters { out_of_order: 4, ..Counters::default() };
        let all = Sockets::of(&[rtt(100), rtt(300), silent], closed);
        assert_eq!((all.open, all.unread, all.rwin), (3, Bytes::new(25), Some(Bytes::new(2000))));
        assert_eq!(all.rtt, Some(Rtt::new(Duration::from_micros(200))));
        assert_eq!((all.data_rtt, all.counters.out_of_order), (None, 10));
        assert_eq!(Sockets::of(&[silent], closed).rwin, None);
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
            busy: Duration::from_micros(n + 7),
            window_limited: Duration::from_micros(n + 8),
            buffer_limited: Duration::from_micros(n + 9),
        };
        let set = |bytes: &mut Vec<u8>| {
            for (offset, value) in [(28, 9u32), (100, 7), (224, 8), (216, 9), (152, 13)] {
                bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
            }
            for (offset, value) in [(128, 10u64), (200, 11), (120, 12), (168, 14), (176, 15), (184, 16)] {
                bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
            }
        };
        let all = Sockets::of(&[stream(0, set), stream(1, set)], Counters::default());
        let mut twice = at(7);
        twice += at(7);
        assert_eq!((all.counters, all.sacked), (twice, 18));
        assert_eq!((at(7).later(at(3)), at(3).later(at(7))), (at(7), at(7)));
        let mut again = at(7).since(at(3));
        again += at(3);
        assert_eq!(again, at(7));
        assert_eq!(at(3).since(at(7)), Counters::default(), "never below zero");
    }

    #[test]
    fn what_costs_much_happens_seldom() {
        let mut pages = Sparingly::one_in(400);
        assert!(pages.is_due(Duration::ZERO));
        pages.took(Duration::from_secs(1), Duration::from_millis(10));
        assert!(!pages.is_due(Duration::from_millis(4999)) && pages.is_due(Duration::from_secs(5)));
    }
}
