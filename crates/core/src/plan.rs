//! From a path's rate and RTT to the sizes of the buffers, and back to what given buffers allow.

use crate::units::{Bytes, Rate, Rtt};

/// What this host allows a receiving socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecvLimits {
    /// `net.ipv4.tcp_rmem[2]`: how far the kernel's autotuning may go.
    pub tcp_rmem_max: Bytes,
    /// `net.core.rmem_max`: how far SO_RCVBUF may go.
    pub rmem_max: Bytes,
    /// Whether SO_RCVBUFFORCE, which knows no maximum, is permitted (CAP_NET_ADMIN).
    pub may_force: bool,
}

/// What to do with a socket's receive buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecvBuffer {
    /// Leave it to the kernel's autotuning; setting SO_RCVBUF would turn that off.
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
    // setsockopt doubles what it is given, for the kernel's bookkeeping.
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

/// Returns the highest rate that a window allows: a window per round trip (RWIN/RTT, or send buffer/RTT).
pub fn window_ceiling(window: Bytes, rtt: Rtt) -> Rate {
    Rate::over(window, rtt.get())
}

/// Returns how much a stream should have asked for and not yet received, so that the server never idles.
///
/// A request sent now is served a round trip later, `rtt` as the data sees it. `rate` is what is expected by then: in slow start
/// twice what was measured. Half as much again is for its errors, and no more, for the slowest stream's part is waited for.
/// Before there is a rate to go by, as much as takes slow start an eighth of 10 Gbit/s, shared by all `streams`; but on a short
/// path little, for what one stream has asked for no other can fetch.
pub fn ask_ahead(rate: Rate, rtt: Rtt, streams: usize) -> Bytes {
    const UNMEASURED: Rate = Rate::bits_per_sec(1_250_000_000);
    const SPARE: f64 = 1.5;
    const TOGETHER: Bytes = Bytes::mib(16);
    let streams = streams.max(1) as u64;
    let least = (TOGETHER.get() / streams).clamp(1 << 20, 4 << 20);
    let unmeasured = UNMEASURED.bdp(rtt).get() / streams;
    rate.scaled(SPARE).bdp(rtt).max(Bytes::new(unmeasured.max(least)))
}

/// How the application buffer is cut into segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentPlan {
    /// Bytes of one segment: a power of two, from 64 KiB to 4 MiB unless asked for.
    pub size: Bytes,
    /// How many segments may be in use at once.
    pub count: usize,
}

/// Cuts an application buffer into segments for `streams` streams.
///
/// 4 MiB, as in UsadaFox, unless that leaves a stream fewer than two segments: one that fills
/// from the socket while another drains to the file. The count is never below that, even where
/// `buffer` is smaller.
pub fn segments(buffer: Bytes, streams: usize) -> SegmentPlan {
    const LARGEST: u64 = 4 << 20;
    const SMALLEST: u64 = 64 << 10;
    let least = 2 * streams.max(1) as u64;
    let share = (buffer.get() / least).clamp(SMALLEST, LARGEST);
    segments_of(Bytes::new(1 << share.ilog2()), buffer, streams)
}

/// Cuts an application buffer into segments of `size`, at least two for each stream.
///
/// A segment is what is handed to the writer at once, so tiny ones cost calls.
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
    fn a_stock_host_with_permission_is_raised_to_the_need() {
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
    fn the_papers_ceiling() {
        // Table 2: RWIN 46.87 MB at 200 ms allows 234.35 MB/s.
        let rate = window_ceiling(Bytes::new(46_870_000), RTT);
        assert_eq!(rate.as_bytes_per_sec(), 234_350_000);
    }

    #[test]
    fn what_is_asked_ahead_follows_the_rate_and_is_shared_before_there_is_one() {
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
