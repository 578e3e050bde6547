//! Plans buffer sizes for a path's rate and RTT, and computes the rate that given buffers allow.

use crate::units::{Bytes, Rate, Rtt};

/// The host's limits of a socket's receive buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecvLimits {
    /// `net.ipv4.tcp_rmem[2]`: the limit of the kernel's autotuning.
    pub tcp_rmem_max: Bytes,
    /// `net.core.rmem_max`: the limit of SO_RCVBUF.
    pub rmem_max: Bytes,
    /// Whether SO_RCVBUFFORCE, which has no limit, is permitted (CAP_NET_ADMIN).
    pub may_force: bool,
}

/// What to do with a socket's receive buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecvBuffer {
    /// Keep the kernel's autotuning, which setting SO_RCVBUF would disable.
    Autotune,
    /// Set SO_RCVBUF, or SO_RCVBUFFORCE where permitted, to this value before connecting.
    Set(Bytes),
}

/// The share of a receive buffer that the kernel advertises as RWIN, as `RWIN = buffer x NUM / DEN`.
///
/// Since Linux 6.6 the ratio follows the measured size of packets and their overhead; half is what
/// `tcp_adv_win_scale = 1` promised before and what small packets still give.
const WINDOW_NUM: u64 = 1;
const WINDOW_DEN: u64 = 2;

/// Room beyond the BDP, for bursts (UsadaFox measured bursts of 0.4 BDP).
const SLACK_NUM: u64 = 3;
const SLACK_DEN: u64 = 2;

/// Chooses the receive buffer for a path of `rate` and `rtt`.
///
/// The kernel's limit is on the buffer, the path's need is a window: need = 1.5 x BDP of window.
/// Autotuning is kept wherever it can reach that, because a fixed buffer can only be wrong later
/// (and because an unprivileged SO_RCVBUF is capped by `rmem_max`, often far below `tcp_rmem[2]`).
pub fn recv_buffer(limits: RecvLimits, rate: Rate, rtt: Rtt) -> RecvBuffer {
    let window = rate.bdp(rtt).get().saturating_mul(SLACK_NUM) / SLACK_DEN;
    // setsockopt doubles the value, for the kernel's overhead.
    let asked = Bytes::new(window.saturating_mul(WINDOW_DEN) / WINDOW_NUM / 2).min(LARGEST_WINDOW);
    let reachable = if limits.may_force { asked } else { asked.min(limits.rmem_max) };
    if limits.tcp_rmem_max.get() >= asked.get() * 2 || limits.tcp_rmem_max.get() >= reachable.get() * 2 {
        RecvBuffer::Autotune
    } else {
        RecvBuffer::Set(reachable)
    }
}

/// The largest window TCP can announce (RFC 7323, section 2.3: 2^30 bytes).
pub const LARGEST_WINDOW: Bytes = Bytes::gib(1);

/// `tcp_wmem[2]` of a stock Linux host.
pub const STOCK_TCP_WMEM_MAX: Bytes = Bytes::mib(4);

/// Returns the payload in flight on a connection whose send buffer has grown to `tcp_wmem[2]` and limits it: of a stock buffer
/// 1.5 to 4.5 MB, the buffer less bookkeeping, plus rounding (docs/servers.md).
pub const fn send_buffer_in_flight(tcp_wmem_max: Bytes) -> (Bytes, Bytes) {
    const fn part(tcp_wmem_max: Bytes, of_stock: u64) -> Bytes {
        Bytes::new(tcp_wmem_max.get().saturating_mul(of_stock) / STOCK_TCP_WMEM_MAX.get())
    }
    (part(tcp_wmem_max, 1_500_000), part(tcp_wmem_max, 4_500_000))
}

/// Returns the highest rate that a window allows: a window per round trip (RWIN/RTT, or send buffer/RTT).
pub fn window_ceiling(window: Bytes, rtt: Rtt) -> Rate {
    Rate::over(window, rtt.get())
}

/// Returns how many bytes a stream should have requested but not yet received, so that the server never idles.
///
/// A request sent now is served one `rtt` later, that of the data. `rate` is the rate expected then: in slow start twice
/// the measured one. The result is 1.5 times that BDP: more would lengthen the wait for the slowest stream at the end. Before a rate is
/// known, it is the BDP of 1.25 Gbit/s (an eighth of 10 Gbit/s), divided among all `streams`, and on a short path at
/// least 1 to 4 MiB; no other stream can fetch requested bytes.
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
    /// The most segments in use at once.
    pub count: usize,
}

/// Divides an application buffer into segments for `streams` streams.
///
/// 4 MiB, as in UsadaFox, unless that leaves a stream fewer than two segments: one is filled
/// from the socket while the other is written to the file. The count is at least two per stream, even where
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
/// The writer writes a segment per system call, so small segments cost more calls.
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
    const RATE: Rate = Rate::bits_per_sec(10_000_000_000);

    fn limits(tcp_rmem_max: Bytes, rmem_max: Bytes, may_force: bool) -> RecvLimits {
        RecvLimits { tcp_rmem_max, rmem_max, may_force }
    }

    #[test]
    fn autotuning_is_kept_where_it_reaches() {
        assert_eq!(
            recv_buffer(limits(Bytes::gib(1), Bytes::kib(208), true), RATE, RTT),
            RecvBuffer::Autotune
        );
        let short = Rtt::new(Duration::from_millis(1));
        assert_eq!(
            recv_buffer(limits(Bytes::mib(6), Bytes::kib(208), true), RATE, short),
            RecvBuffer::Autotune
        );
    }

    #[test]
    fn stock_host_with_permission_gets_the_needed_buffer() {
        let raised = recv_buffer(limits(Bytes::mib(6), Bytes::kib(208), true), RATE, RTT);
        assert_eq!(raised, RecvBuffer::Set(Bytes::new(375_000_000)));
    }

    #[test]
    fn without_permission_setting_must_not_lower_what_autotuning_gives() {
        let stock = limits(Bytes::mib(6), Bytes::kib(208), false);
        assert_eq!(recv_buffer(stock, RATE, RTT), RecvBuffer::Autotune);
        let generous = limits(Bytes::mib(6), Bytes::mib(128), false);
        assert_eq!(recv_buffer(generous, RATE, RTT), RecvBuffer::Set(Bytes::mib(128)));
    }

    #[test]
    fn papers_window_ceiling() {
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
    fn segments_shrink_only_for_many_streams() {
        let four = SegmentPlan { size: Bytes::mib(4), count: 16 };
        assert_eq!([segments(Bytes::mib(64), 1), segments(Bytes::mib(64), 8)], [four, four]);
        assert_eq!(segments(Bytes::mib(64), 64), SegmentPlan { size: Bytes::kib(512), count: 128 });
        assert_eq!(segments(Bytes::ZERO, 3), SegmentPlan { size: Bytes::kib(64), count: 6 });
    }

    #[test]
    fn segments_of_a_size_fill_the_buffer_and_are_two_for_each_stream() {
        let plan = |size, buffer, streams| segments_of(size, buffer, streams);
        let of = |size, count| SegmentPlan { size, count };
        assert_eq!(plan(Bytes::kib(4), Bytes::mib(64), 1), of(Bytes::kib(4), 16_384));
        assert_eq!(plan(Bytes::mib(64), Bytes::mib(64), 1), of(Bytes::mib(64), 2));
        assert_eq!(plan(Bytes::mib(4), Bytes::mib(64), 32), of(Bytes::mib(4), 64));
        assert_eq!(plan(Bytes::kib(4), Bytes::ZERO, 0), of(Bytes::kib(4), 2));
        // A part of a segment is none.
        assert_eq!(plan(Bytes::mib(4), Bytes::mib(15), 1), of(Bytes::mib(4), 3));
    }
}
