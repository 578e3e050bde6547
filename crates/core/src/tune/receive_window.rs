//! Clamps the receive window near the BDP, so that a remote sender does not overflow the bottleneck's queue.
//!
//! The window of a loss-based sender grows until a packet is lost, and the kernel's autotuning opens the receive window
//! (RWIN) ahead of it. On a long fat path with a queue of one BDP, hundreds of megabytes are lost at once. The receiver
//! detects the growing queue in the RTT of the data. A larger window then gains no goodput (rate <= RWIN/RTT), and RWIN
//! = 1.25 x BDP keeps the path full.
//!
//! The clamp follows the highest sustained rate; one of several connections starts with a share of the rate of this
//! host's line, which all of them together cannot exceed. The clamp opens as soon as there is no queue, because it is
//! then too small. It never shrinks, so that loss-based neighbours cannot starve the connection.
//!
//! The RTT of the data alone proves no queue. It contains the pauses of a server that limits its rate: what is sent
//! after a pause echoes an acknowledgement from before (RFC 7323, section 4), so that the RTT exceeds that of the path
//! by at most the pause. Only what exceeds both is a queue. It also contains delays of acknowledgements, and queues of
//! other flows, which no window shortens: then the clamp lowers the rate. Such a clamp is released until the data's RTT
//! falls, or for 128 RTTs, twice as many each time, after which the queue may be this connection's own.

use std::time::Duration;

use crate::plan::LARGEST_WINDOW;
use crate::units::{Bytes, Rate, Rtt};

/// Chooses the window clamp of one connection, once per RTT.
#[derive(Debug, Clone, Default)]
pub struct ReceiveWindowTuner {
    last: Rate,
    /// The highest rate sustained for two RTTs.
    best: Rate,
    clamp: Option<Bytes>,
    /// The rate, smoothed over a few RTTs, and its highest value when the clamp took effect; in bit/s.
    mean: f64,
    mean_before: f64,
    /// RTTs since the clamp was set.
    clamped_rtts: u32,
    /// RTTs in which the clamp lowered the rate, less RTTs in which it did not; while it is released, RTTs.
    slowed: u32,
    /// How often a clamp has lowered the rate.
    failures: u32,
    /// The longest pause of the arrivals that the RTT of the data may still contain.
    pause: Duration,
    /// RTTs in which a pause explained the RTT of the data, less RTTs in which none did.
    idle: u32,
}

/// The least queue, as a share of the BDP, that shows that the path is full.
const FULL_QUEUE: f64 = 0.25;
/// A queue below this share of the BDP is noise.
const NOISE_QUEUE_SHARE: f64 = 0.05;
/// A clamp lowers the rate where the window is used and the rate is below this share of the rate without it.
const SLOWED_RATE: f64 = 0.97;
/// The number of RTTs over which rates are smoothed, and the number of RTTs, counted as in `ReceiveWindowTuner::slowed`,
/// from which the clamp is released.
const SMOOTHING_RTTS: f64 = 4.0;
const SLOWED_RTTS: u32 = 4;
/// The queue that is there when the clamp is set lasts for as many RTTs, in which the rate is that without a clamp.
const DRAINING_RTTS: u32 = 8;
/// The clamp returns after this many RTTs, to test whether this connection itself fills the queue; each later time after
/// twice as many.
const RELEASED_RTTS: u32 = 128;
/// Doublings of these RTTs.
const MAX_DOUBLINGS: u32 = 6;
/// The least share of the window in flight at which the window counts as used.
const USED_SHARE: f64 = 0.8;
/// A rate that grows by a smaller factor per RTT is steady.
const STEADY_GROWTH: (u64, u64) = (11, 10);
/// The window relative to the BDP; also its growth per RTT while it is too small.
const WINDOW_PER_BDP: (u64, u64) = (5, 4);
/// The share of a pause that the RTT of the data contains an RTT later: the kernel smooths it by an eighth with each
/// sample (Linux, tcp_rcv_rtt_update), and takes one an RTT at least.
const KEPT_PAUSE: f64 = 7.0 / 8.0;
/// A clamp opens at this count, of which an RTT with a pause is two: one may be a host's, and a burst may last for two RTTs.
const MAX_IDLE: u32 = 4;
/// The smallest clamp: below it single packets dominate the measurements.
const MIN_CLAMP: Bytes = Bytes::mib(2);

impl ReceiveWindowTuner {
    /// Starts with a window for `share`, one connection's part of the BDP at the rate of this host's line, because
    /// several unclamped connections would overshoot together before any of them measures a queue.
    pub fn of_several(share: Bytes) -> Self {
        Self { clamp: Some(with_margin(share).clamp(MIN_CLAMP, LARGEST_WINDOW)), ..Self::default() }
    }

    /// Observes an RTT: data arrived at `rate` with the RTT `data_rtt` and pauses of at most `pause`, on a path whose RTT without a queue
    /// is `rtt`.
    ///
    /// Returns the clamp to set, if any. The clamp is never below `share`, one of several connections' part of the
    /// path: a connection that starts with the others' queue present would otherwise stay small.
    pub fn observe(
        &mut self,
        rate: Rate,
        rtt: Rtt,
        data_rtt: Rtt,
        pause: Duration,
        share: Bytes,
    ) -> Option<Bytes> {
        self.pause = pause.max(self.pause.mul_f64(KEPT_PAUSE));
        let late = data_rtt.get().saturating_sub(rtt.get());
        let queue = late.saturating_sub(self.pause).as_secs_f64() / rtt.get().as_secs_f64().max(1e-9);
        // Slow start sends each window as a burst, so a queue is meaningful only once the rate is steady.
        let steady = rate.as_bits_per_sec() < scale(self.last.as_bits_per_sec(), STEADY_GROWTH);
        self.best = self.best.max(self.last.min(rate));
        self.last = rate;
        self.mean += (rate.as_bits_per_sec() as f64 - self.mean) / SMOOTHING_RTTS;
        if self.is_released() {
            self.slowed += 1;
            let doublings = self.failures.saturating_sub(1).min(MAX_DOUBLINGS);
            if queue < NOISE_QUEUE_SHARE || self.slowed > RELEASED_RTTS << doublings {
                self.restart();
            }
            return Some(LARGEST_WINDOW);
        }
        if self.is_idle(late, rtt, pause, share) {
            self.restart();
            return Some(LARGEST_WINDOW);
        }
        let is_slowed = self.is_slowed(rtt, data_rtt, share);
        self.slowed = if is_slowed { self.slowed + 1 } else { self.slowed.saturating_sub(1) };
        self.failures += u32::from(self.is_released());
        let needed = |best: Rate| with_margin(best.bdp(rtt)).max(MIN_CLAMP);
        self.clamp = match self.clamp {
            None if steady && queue > FULL_QUEUE => Some(needed(self.best.max(rate))),
            None => None,
            // The whole window is in flight without a queue: the window is the limit.
            Some(clamp) if queue < NOISE_QUEUE_SHARE && with_margin(rate.bdp(rtt)) > clamp => {
                Some(with_margin(clamp))
            }
            Some(clamp) => Some(clamp.max(needed(self.best))),
        }
        .map(|clamp| clamp.max(with_margin(share)).min(LARGEST_WINDOW));
        self.clamp
    }

    /// Counts pauses that explain the RTT of the data; returns whether they open a clamp. Connections that take turns
    /// at a queue pause, too.
    fn is_idle(&mut self, late: Duration, rtt: Rtt, pause: Duration, share: Bytes) -> bool {
        let pauses = share == Bytes::ZERO && pause > late.max(rtt.get().mul_f64(NOISE_QUEUE_SHARE));
        self.idle = if pauses { (self.idle + 2).min(MAX_IDLE) } else { self.idle.saturating_sub(1) };
        self.idle == MAX_IDLE && self.clamp.is_some()
    }

    /// Returns whether the whole window is in flight, and the rate is below the one without a clamp, or below this
    /// connection's share.
    fn is_slowed(&mut self, rtt: Rtt, data_rtt: Rtt, share: Bytes) -> bool {
        let Some(clamp) = self.clamp else {
            (self.mean_before, self.clamped_rtts) = (self.mean, 0);
            return false;
        };
        self.clamped_rtts = self.clamped_rtts.saturating_add(1);
        if self.clamped_rtts < DRAINING_RTTS {
            self.mean_before = self.mean_before.max(self.mean);
        }
        let of_share = Rate::over(share, rtt.get()).as_bits_per_sec() as f64;
        let expected = if share == Bytes::ZERO { self.mean_before } else { of_share };
        let in_flight = self.mean / 8.0 * data_rtt.get().as_secs_f64();
        self.mean < expected * SLOWED_RATE && in_flight > clamp.get() as f64 * USED_SHARE
    }

    /// Returns whether the clamp is released because it lowered the rate.
    fn is_released(&self) -> bool {
        self.slowed >= SLOWED_RTTS
    }

    /// Begins again at the present rate, without a clamp.
    fn restart(&mut self) {
        let Self { last, mean, failures, pause, .. } = *self;
        *self = Self { best: last, last, mean, failures, pause, ..Self::default() };
    }
}

fn with_margin(size: Bytes) -> Bytes {
    Bytes::new(scale(size.get(), WINDOW_PER_BDP))
}

fn scale(value: u64, (num, den): (u64, u64)) -> u64 {
    value.saturating_mul(num) / den
}

#[cfg(test)]
mod tests;
