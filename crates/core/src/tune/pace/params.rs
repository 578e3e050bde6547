//! The constants of the pacer.

use std::time::Duration;

use crate::units::{Bytes, Rate};

/// The constants of a [`Pacer`](super::Pacer).
///
/// Values without another source were chosen by `longhaul-bench --only pacing-simulated` (docs/measurements.md).
pub(super) struct Params;

impl Params {
    /// Shorter paths are not paced: acknowledgements return soon enough to clock the sender. Observations are made at a fraction of it. Half of the
    /// grid's shortest RTT.
    pub(super) const MIN_RTT: Duration = Duration::from_millis(10);
    /// A path that delivers more without a pace gets none until packets are lost at a short queue. The kernel paces by a timer for each 64 KiB:
    /// at 10 Gbit/s a host of two cores sends 6 of a pace of 9.9 Gbit/s, and without a pace fills the path (docs/measurements.md). A pace in
    /// force is given up only where the path is faster by the uncertainty.
    pub(super) const UNPACED_FROM: Rate = Rate::bits_per_sec(3_000_000_000);
    /// An estimate with a larger relative error is none; a pace that is delivered but for this share counts as used. Where no larger share of
    /// the RTTs is long, they are jitter.
    pub(super) const UNCERTAINTY: f64 = 0.15;
    /// In slow start the bottleneck's rate is measured for this many RTTs: from ten segments (RFC 6928) to 10 Gbit/s at 300 ms are
    /// log2(375 MB / 14.5 kB) = 15. Probes that jitter has hidden for as long show nothing: pacing ends.
    pub(super) const LISTEN_RTTS: u32 = 20;
    /// A pause of this share of the RTT ends a burst: less than a window pauses for, more than most delayed acknowledgements.
    pub(super) const GAP: f64 = 0.125;
    /// The queue that one probe adds where the path is full: less than half of a queue of 8 ms, ten times the jitter of a LAN.
    pub(super) const PROBE_QUEUE: Duration = Duration::from_micros(3500);
    /// The least gain of a probe: it lasts eight times as long as the queue that it adds, which averages the jitter. Half of
    /// BBR's (`bbr_pacing_gain` in Linux' tcp_bbr.c, 5/4).
    pub(super) const MIN_GAIN: f64 = 0.125;
    /// The largest gain: slow start's, which doubles (RFC 5681, section 3.1).
    pub(super) const MAX_GAIN: f64 = 1.0;
    /// The new pace over the old one after a probe that jitter has hidden: log(2) / log(33/32) = 23 probes, a
    /// hundred RTTs, double it.
    pub(super) const BLIND_RISE: f64 = 1.0 + 1.0 / 32.0;
    /// The pace over what the path is known to carry: a standing queue shrinks by 0.02 RTTs each RTT.
    pub(super) const HEADROOM: f64 = 0.98;
    /// The pace while a queue drains, over the pace before: so deep that a queue of 0.4 RTTs is gone an RTT later. A longer queue is deep.
    pub(super) const DRAIN: f64 = 0.6;
    /// A queue of this length belongs to other traffic,
    pub(super) const QUEUE: Duration = Duration::from_millis(2);
    /// plus this share of the RTT, by which the RTTs of long paths vary.
    pub(super) const QUEUE_RTT_SHARE: f64 = 0.01;
    /// A queue counts once it has stood for this share of the RTT: the bursts of one window are shorter.
    pub(super) const STANDING: f64 = 0.1;
    /// Losses of a larger share over an RTT are congestion (BBRv3's `BBRLossThresh`, 2 %),
    pub(super) const LOSS: f64 = 0.02;
    /// and of more bytes than this: a sixteenth of a window of 400 kB. A smaller share of a window is single packets, which decide nothing;
    /// nor does the RTT that the kernel has smoothed over them.
    pub(super) const FEW_PACKETS: Bytes = Bytes::kib(24);
    /// Flows have reacted to each other in this many RTTs: a queue is drained, or other traffic has ended and its queue is empty.
    pub(super) const REACTION_RTTS: u32 = 4;
    /// Other traffic has ended where no queue stood this long: twice BBR's ProbeRTT (`bbr_probe_rtt_mode_ms` in
    /// Linux' tcp_bbr.c, 200), in which its flows empty it together.
    pub(super) const EMPTY_TIME: Duration = Duration::from_millis(400);
    /// Every so many RTTs beside others the pacer may drain once: the queue may be this connection's own.
    pub(super) const RECHECK_RTTS: u32 = 64;
    /// The least sent per RTT: two segments, as after a loss (RFC 5681, equation 4); delivery cannot be measured without sending.
    pub(super) const LEAST_PER_RTT: Bytes = Bytes::new(2 * 1448);
}
