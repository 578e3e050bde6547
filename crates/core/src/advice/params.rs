//! Thresholds of the classification.

use std::time::Duration;

use crate::units::Bytes;

/// A share of an interval from which on a wait, or one of the kernel's counters, is its limit.
pub(super) const LIMITING_SHARE: f64 = 0.25;
/// A share of an interval from which on the kernel has found a sender's buffer full. At a small one
/// under BBR it is a fifth.
pub(super) const FULL_BUFFER_SHARE: f64 = 0.02;
/// A share of an interval from which on a thread occupies its core, or a sender has data to send
/// throughout.
pub(super) const BUSY_SHARE: f64 = 0.85;
/// Data wait in a queue where their RTT exceeds the least one by this factor. Below it lies the
/// jitter of delayed acknowledgements and of timestamps, whose unit is 1 ms (RFC 7323, section
/// 5.4).
pub(super) const QUEUED_RTT_FACTOR: f64 = 1.1;
/// A queue stands where it does not drain within so many round trips, and within
/// [`MIN_STANDING_TIME`]: the least delay over more than a round trip tells a standing queue from
/// bursts (RFC 8289, section 3). Readings are at most an interval apart, and the estimate of a
/// receiver (`tcpi_rcv_rtt`) is of single bursts.
pub(super) const STANDING_ROUND_TRIPS: u32 = 4;
/// Five readings.
pub(super) const MIN_STANDING_TIME: Duration = Duration::from_millis(450);
/// In slow start flights wait for half of their length at most, a quarter of a round trip until
/// they fill the path: data that were delayed by more just before a loss lay in a queue that
/// overflowed.
pub(super) const OVERFLOW_RTT_FACTOR: f64 = 1.25;
/// A sender that pauses delays its data, too: what it sends then echoes the last acknowledgement
/// before (RFC 7323, section 4), so that the pause is the RTT of the data. A queue stands where the
/// mean time since data arrived is at most this share of what that RTT has in excess of the empty
/// path's, and a sender pauses from [`PAUSE_SHARE`] on. Lab, 28 November 2026, 40 to 200 ms: 0.5 to
/// 4 with limits of nginx and Apache, and pausing servers; behind a bottleneck 0 to 0.5, for
/// moments or among many flows up to 1.3: these lose packets.
pub(super) const QUEUED_PAUSE_SHARE: f64 = 0.5;
pub(super) const PAUSE_SHARE: f64 = 0.8;
/// In less a host reaches only itself (loopback: 8 to 15 us), where no bottleneck holds data. A
/// network interface and its interrupt take longer.
pub(super) const MIN_WIRE_RTT: Duration = Duration::from_micros(20);
/// A host that is late, and single packets.
pub(super) const MIN_PAUSE: Duration = Duration::from_millis(5);
pub(super) const PAUSE_BYTES: Bytes = Bytes::new(4 * 1448);
/// Shares of an interval's packets that are out of order, or sent again, from which on it is lossy.
/// A single loss puts packets out of order for a round trip, in two intervals at most: more are
/// lost where lossy intervals follow one another for so many round trips.
pub(super) const DISORDERED_SHARE: f64 = 0.25;
pub(super) const LOST_SHARE: f64 = 0.03;
pub(super) const LOSSY_RUN_ROUND_TRIPS: f64 = 2.5;
/// So many lossy intervals are remembered, for so long: after a policer has dropped its packets,
/// BBR keeps below its rate for 48 round trips (Linux, tcp_bbr.c, bbr_lt_bw_max_rtts).
pub(super) const LOSSY_INTERVALS: usize = 16;
pub(super) const LOSSY_ROUND_TRIPS: u32 = 64;
pub(super) const MIN_LOSSY_TIME: Duration = Duration::from_secs(10);
/// So many of these, and half of them, have the same rate within the tolerance behind a policer or
/// at a bottleneck. Lab, 28 November 2026, 40 and 100 ms: with a policer three quarters (BBR) and
/// half (CUBIC); with losses at random a quarter at most.
pub(super) const CAPPED_INTERVALS: usize = 4;
pub(super) const CAPPED_TOLERANCE: f64 = 0.08;
/// Before a policer drops packets its bucket passes more than its rate; a bottleneck never does. So
/// many intervals before the losses show that. Where none does, one in [`QUEUED_INTERVALS`] with a
/// queue shows a bottleneck whose sender loses packets at random, too.
pub(super) const EXCEEDING_INTERVALS: usize = 3;
pub(super) const QUEUED_INTERVALS: usize = 8;
/// Arrivals are at the path's capacity where [`CAPACITY_SHARE`] of the last intervals have its rate
/// within this tolerance. Lab, 28 November 2026: 0.5 to 1 of the time behind a bottleneck with BBR,
/// 0.1 and more with CUBIC; never with servers that limit or pause.
pub(super) const CAPACITY_INTERVALS: usize = 12;
pub(super) const CAPACITY_TOLERANCE: f64 = 0.015;
pub(super) const CAPACITY_SHARE: f64 = 0.75;
/// BBR probes once in eight round trips (draft-ietf-ccwg-bbr), which delays the data: in so much of
/// the intervals at capacity.
pub(super) const CAPACITY_LATE_SHARE: f64 = 0.125;
/// A window is full from this share in flight on. Receive autotuning keeps it at twice of what
/// arrives in a round trip (Linux, tcp_rcv_space_adjust) wherever it may.
pub(super) const FULL_WINDOW_SHARE: f64 = 0.7;
/// A peer that does not read at once shrinks its window to less than this share of its largest one,
/// or lets less than [`CLOSED_WINDOW_SHARE`] of a window pass in a round trip. Where no data are
/// late, a window that is read at once is filled from [`FILLED_WINDOW_SHARE`] on: lab, 28 November
/// 2026, 40 and 100 ms: 0.95 to 0.98, and 0.3 to 0.75 of slow readers.
pub(super) const OPEN_WINDOW_SHARE: f64 = 0.75;
pub(super) const CLOSED_WINDOW_SHARE: f64 = 0.5;
pub(super) const FILLED_WINDOW_SHARE: f64 = 0.85;
/// The window of a receiver that reads at once varies by less. Lab, 28 November 2026: 0 %, and 6 %
/// of a slow, even reader.
pub(super) const STEADY_WINDOW_SHARE: f64 = 0.98;
/// The rate of slow start doubles in a round trip, or grows by half where acknowledgements are
/// counted (RFC 3465, section 1); limited slow start and congestion avoidance grow by less (RFC
/// 9406, section 4.2: a quarter).
pub(super) const SLOW_START_GROWTH: f64 = 1.4;
/// A congestion window that recovers grows from the first half of a quarter of CUBIC's recovery to
/// the second one by 7 to 11 % (RFC 9438, section 4.2): a rate that grows by less, over so many
/// intervals in each half, is not bound to it.
pub(super) const RECOVERING_GROWTH: f64 = 1.05;
pub(super) const RECOVERING_INTERVALS: u32 = 6;
/// The effect of a loss is measured over so many intervals: single ones jitter.
pub(super) const MEASURED_INTERVALS: u32 = 4;
/// Losses are the limit from this burst on, where the rate before is not known: a policer or a
/// short queue drops two bursts until the sender has found a rate. Lab, 28 November 2026, 40 and
/// 100 ms: 1 or 2 behind policers, 2 and more with losses at random.
pub(super) const LIMITING_BURSTS: u32 = 3;
/// Slow start from 10 packets to 10 Gbit/s at 1448 bytes takes about 14 doublings, a round trip
/// each, and settles in a few more.
pub(super) const RAMP_UP_ROUND_TRIPS: u32 = 20;
/// Round trips before the first byte: a look-up, connect, two of TLS, what the server can do, and
/// the request.
pub(super) const OPENING_ROUND_TRIPS: u32 = 6;
/// After a loss CUBIC sends at 0.7 of its rate, and Reno at half of it (RFC 9438, section 4.6; RFC
/// 5681, section 3.1): a rate that remains above this share was not bound to the congestion window.
pub(super) const HARMLESS_SHARE: f64 = 0.9;
/// A peer holds its pace where so much of it arrives on each connection: headers take up to 7 % of
/// it (72 bytes of TCP over IPv6 and 14 of Ethernet, at an MTU of 1280).
pub(super) const HELD_PACE_SHARE: f64 = 0.9;
/// What a stock Linux server has in flight at least and at most: 2.3 to 3.6 MB of nginx, Apache,
/// Python and `serve` at 100 and 200 ms (lab, 28 November 2026), at rates whose standard deviation
/// is a tenth of their mean. nginx with a limit sends 2 MiB at a time (`sendfile_max_chunk`), which
/// may be once in a round trip; a server that pauses varies by more than [`EVEN_SHARE`].
pub(super) const STOCK_SEND_BUFFER: (Bytes, Bytes) = (Bytes::new(2_200_000), Bytes::new(3_800_000));
pub(super) const EVEN_SHARE: f64 = 0.25;
