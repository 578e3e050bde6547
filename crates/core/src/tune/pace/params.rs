//! The constants of the pacer.

use std::time::Duration;

use crate::units::{Bytes, Rate};

/// The constants of a [`Pacer`](super::Pacer).
///
/// Measured ones stem from `longhaul-bench --only pacing-grid` in virtual time: docs/pacing.md has the figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Params {
    /// Shorter paths are not paced: acknowledgements return soon enough to clock the sender.
    pub min_rtt: Duration,
    /// An estimate with a larger relative error is none.
    pub uncertainty: f64,
    /// In slow start the bottleneck's rate is measured for this many RTTs: from ten segments to 10 Gbit/s at 300 ms are 15.
    pub listen_rtts: u32,
    /// A pause of this share of the RTT ends a burst: less than a window pauses for, more than most delayed acknowledgements.
    pub gap: f64,
    /// A path that delivers more without a pace gets none: its queue is deep, and a wrong cap
    /// costs more than losses. Measured with `put` at 10 Gbit/s (docs/pacing.md).
    pub unpaced_from: Rate,
    /// The queue that one probe adds where the path is full: less than half of a queue of 8 ms, ten times the jitter of a LAN.
    pub probe_queue: Duration,
    /// The gain of the first probe, as in BBR's ProbeBW (draft-ietf-ccwg-bbr, 4.3.3).
    pub first_gain: f64,
    /// The least gain: the probe lasts eight times as long as the queue that it adds, which averages the jitter.
    pub min_gain: f64,
    /// The largest gain: slow start's.
    pub max_gain: f64,
    /// The longest rest between two probes of a full path, in RTTs.
    pub max_rest_rtts: u32,
    /// The pace over what the path is known to carry.
    pub headroom: f64,
    /// The pace while a queue drains, over the pace before: so deep that a queue of 0.3 RTTs is gone an RTT later.
    pub drain: f64,
    /// A queue of this length belongs to other traffic,
    pub queue: Duration,
    /// plus this share of the RTT, by which the RTTs of long paths vary.
    pub queue_rtt_share: f64,
    /// A queue counts once it has stood for this share of the RTT: the bursts of one window are shorter.
    pub standing: f64,
    /// Losses of a larger share over an RTT are congestion (BBRv3's `BBRLossThresh`, 2 %),
    pub loss: f64,
    /// and of more bytes than this: a sixteenth of a window of 400 kB, below which single packets decide.
    pub stray_loss: Bytes,
    /// Other traffic has ended where the queue was empty for this many RTTs,
    pub empty_rtts: u32,
    /// and at least this long: BBR flows empty the queue together for 200 ms (ProbeRTT).
    pub empty_time: Duration,
    /// Slow start, which the cap had ended, goes on once, this many RTTs after other flows have filled the queue: their own has
    /// ended by then.
    pub restart_rtts: u32,
    /// Every so many RTTs beside others the pacer drains once: the queue may be this connection's own.
    pub recheck_rtts: u32,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            min_rtt: Duration::from_millis(10),
            uncertainty: 0.15,
            listen_rtts: 20,
            gap: 0.125,
            unpaced_from: Rate::bits_per_sec(3_000_000_000),
            probe_queue: Duration::from_micros(3500),
            first_gain: 0.25,
            min_gain: 0.125,
            max_gain: 1.0,
            max_rest_rtts: 4,
            headroom: 0.98,
            drain: 0.6,
            queue: Duration::from_millis(2),
            queue_rtt_share: 0.01,
            standing: 0.1,
            loss: 0.02,
            stray_loss: Bytes::kib(24),
            empty_rtts: 4,
            empty_time: Duration::from_millis(400),
            restart_rtts: 4,
            recheck_rtts: 64,
        }
    }
}
