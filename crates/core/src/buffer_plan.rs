//! Plans buffer sizes for a path's rate and RTT, and computes the rate that a buffer size permits.

use crate::units::{Bytes, Rate, Rtt};

/// The host's limits for a socket's receive buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecvLimits {
    /// `net.ipv4.tcp_rmem[2]`: the largest buffer of the kernel's autotuning.
    pub tcp_rmem_max: Bytes,
    /// `net.core.rmem_max`: the largest buffer of SO_RCVBUF.
    pub rmem_max: Bytes,
    /// Whether SO_RCVBUFFORCE, which ignores `rmem_max`, is permitted (CAP_NET_ADMIN).
    pub may_force: bool,
}

/// The planned window relative to the BDP, which leaves room for bursts (UsadaFox measured bursts
/// of 0.4 BDP).
const SLACK_NUM: u64 = 3;
const SLACK_DEN: u64 = 2;

/// Chooses the receive buffer for a path of `rate` and `rtt`: the value of SO_RCVBUF, or of
/// SO_RCVBUFFORCE if permitted, to set before connecting. `None` keeps the kernel's autotuning,
/// which setting the buffer would disable.
///
/// The needed window is 1.5 x BDP; the kernel's limit applies to the buffer. Autotuning is kept if
/// it can reach the window, because a fixed buffer cannot follow the path, and because SO_RCVBUF
/// without privilege is limited by `rmem_max`, often far below `tcp_rmem[2]`.
pub fn recv_buffer(limits: RecvLimits, rate: Rate, rtt: Rtt) -> Option<Bytes> {
    let window = rate.bdp(rtt).get().saturating_mul(SLACK_NUM) / SLACK_DEN;
    // The kernel advertises half of the buffer as window, and setsockopt(2) doubles the value to
    // allow for that. Since Linux 6.6 the share follows the measured overhead of packets; one half
    // is the share of `tcp_adv_win_scale = 1` in earlier kernels, and is still that of small
    // packets.
    let requested = Bytes::new(window).min(LARGEST_WINDOW);
    let reachable = if limits.may_force { requested } else { requested.min(limits.rmem_max) };
    // The buffer that can be set is at most the requested one, and autotuning reaches as much.
    (limits.tcp_rmem_max < reachable * 2).then_some(reachable)
}

/// The largest window that TCP can advertise (2^30 bytes; RFC 7323, section 2.3).
pub const LARGEST_WINDOW: Bytes = Bytes::gib(1);

/// The default of `tcp_wmem[2]` in Linux.
pub const STOCK_TCP_WMEM_MAX: Bytes = Bytes::mib(4);

/// Returns the least and the largest payload in flight on a connection that is limited by a send
/// buffer of `tcp_wmem[2]`: for the default buffer 1.5 to 4.5 MB, which is the buffer less
/// bookkeeping, plus rounding (docs/servers.md).
pub const fn send_buffer_in_flight(tcp_wmem_max: Bytes) -> (Bytes, Bytes) {
    const fn part(tcp_wmem_max: Bytes, of_stock: u64) -> Bytes {
        Bytes::new(tcp_wmem_max.get().saturating_mul(of_stock) / STOCK_TCP_WMEM_MAX.get())
    }
    (part(tcp_wmem_max, 1_500_000), part(tcp_wmem_max, 4_500_000))
}

/// Returns the highest rate that a window permits: one window per RTT, of a receive window or a
/// send buffer.
pub fn window_ceiling(window: Bytes, rtt: Rtt) -> Rate {
    Rate::over(window, rtt.get())
}

/// Returns the number of bytes that a stream keeps requested but not yet received, so that the
/// server is never idle.
///
/// A request sent now is served one `rtt` later, which includes the queueing delay. `rate` is the
/// rate expected at that time: in slow start twice the measured rate. The result is 1.5 times that
/// BDP; more would lengthen the wait for the slowest stream at the end. Without a measured rate, it
/// is the BDP of 1.25 Gbit/s (an eighth of 10 Gbit/s), divided among all `streams`, and on a short
/// path at least 1 to 4 MiB, because requested bytes cannot be fetched by another stream.
pub fn ask_ahead(rate: Rate, rtt: Rtt, streams: usize) -> Bytes {
    const UNMEASURED: Rate = Rate::bits_per_sec(1_250_000_000);
    const SPARE: f64 = 1.5;
    const TOGETHER: Bytes = Bytes::mib(16);
    let streams = streams.max(1) as u64;
    let least = (TOGETHER.get() / streams).clamp(1 << 20, 4 << 20);
    let unmeasured = UNMEASURED.bdp(rtt).get() / streams;
    rate.scaled(SPARE).bdp(rtt).max(Bytes::new(unmeasured.max(least)))
}

/// The size and number of an application buffer's segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentPlan {
    /// The size of a segment: a power of two from 64 KiB to 4 MiB, unless configured.
    pub size: Bytes,
    /// The largest number of segments in use.
    pub count: usize,
}

/// Divides an application buffer into segments for `streams` streams.
///
/// A segment is 4 MiB, as in UsadaFox, or smaller so that each stream has two: one is filled from
/// the socket while the other is written to the file. There are at least two per stream, even if
/// `buffer` is smaller.
pub fn segments(buffer: Bytes, streams: usize) -> SegmentPlan {
    const LARGEST_SEGMENT: u64 = 4 << 20;
    const SMALLEST_SEGMENT: u64 = 64 << 10;
    let least = 2 * streams.max(1) as u64;
    let share = (buffer.get() / least).clamp(SMALLEST_SEGMENT, LARGEST_SEGMENT);
    segments_of(Bytes::new(1 << share.ilog2()), buffer, streams)
}

/// Divides an application buffer into segments of `size`, at least two per stream.
///
/// The writer writes one segment per system call, so small segments cost more calls.
pub fn segments_of(size: Bytes, buffer: Bytes, streams: usize) -> SegmentPlan {
    let least = 2 * streams.max(1) as u64;
    let count = (buffer.get() / size.get().max(1)).max(least);
    SegmentPlan { size, count: usize::try_from(count).unwrap_or(usize::MAX) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const RTT: Rtt = Rtt::new(Duration::from_millis(200));
    const RATE: Rate = Rate::mbit(10_000);

    #[test]
    fn receive_buffer_is_set_only_where_autotuning_does_not_reach_the_window() {
        let (short, stock) = (Rtt::new(Duration::from_millis(1)), Bytes::kib(208));
        for (tcp_rmem_max, rmem_max, may_force, rtt, expected) in [
            (Bytes::gib(1), stock, true, RTT, None),
            (Bytes::mib(6), stock, true, short, None),
            (Bytes::mib(6), stock, true, RTT, Some(Bytes::new(375_000_000))),
            // Without permission, a setting must not lower the autotuned buffer.
            (Bytes::mib(6), stock, false, RTT, None),
            (Bytes::mib(6), Bytes::mib(128), false, RTT, Some(Bytes::mib(128))),
        ] {
            let limits = RecvLimits { tcp_rmem_max, rmem_max, may_force };
            assert_eq!(recv_buffer(limits, RATE, rtt), expected, "{limits:?}");
        }
    }

    #[test]
    fn window_ceiling_matches_the_paper() {
        // Table 2: RWIN 46.87 MB at 200 ms allows 234.35 MB/s.
        let rate = window_ceiling(Bytes::new(46_870_000), RTT);
        assert_eq!(rate.as_bytes_per_sec(), 234_350_000);
    }

    #[test]
    fn requested_bytes_follow_the_rate_and_are_divided_before_it_is_known() {
        let unmeasured = |streams| ask_ahead(Rate::default(), RTT, streams);
        assert_eq!([unmeasured(1), unmeasured(4)], [Bytes::new(31_250_000), Bytes::new(7_812_500)]);
        assert_eq!(unmeasured(100), Bytes::mib(1));
        assert_eq!(ask_ahead(RATE, RTT, 100), Bytes::new(375_000_000));
        assert_eq!(ask_ahead(RATE, Rtt::default(), 1), Bytes::mib(4));
    }

    #[test]
    fn segments_shrink_for_many_streams_and_those_of_a_size_fill_the_buffer() {
        let cases = [(64, 1, 4096, 16), (64, 8, 4096, 16), (64, 64, 512, 128), (0, 3, 64, 6)];
        for (buffer_mib, streams, size_kib, count) in cases {
            let plan = SegmentPlan { size: Bytes::kib(size_kib), count };
            assert_eq!(segments(Bytes::mib(buffer_mib), streams), plan, "{streams}");
        }
        // Segments of a given size fill the buffer, and are two for each stream.
        // Of 15 MiB, an incomplete segment does not count.
        for (kib, buffer_mib, streams, count) in
            [(4, 64, 1, 16_384), (65_536, 64, 1, 2), (4096, 64, 32, 64), (4, 0, 0, 2), (4096, 15, 1, 3)]
        {
            let size = Bytes::kib(kib);
            let plan = segments_of(size, Bytes::mib(buffer_mib), streams);
            assert_eq!(plan, SegmentPlan { size, count }, "{streams}");
        }
    }
}
