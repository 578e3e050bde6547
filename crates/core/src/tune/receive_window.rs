//! Clamps the receive window near the BDP, so that a remote sender does not overflow the
//! bottleneck's queue.
//!
//! The window of a loss-based sender grows until a packet is lost, and the kernel's autotuning
//! opens the receive window (RWIN) ahead of it. On a long fat path with a queue of one BDP,
//! hundreds of megabytes are lost at once. The receiver detects the growing queue in the RTT of the
//! data. A larger window then gains no goodput (rate <= RWIN/RTT), and RWIN = 1.25 x BDP keeps the
//! path full.
//!
//! The clamp follows the highest sustained rate; one of several connections starts with a share of
//! the rate of this host's line, which all of them together cannot exceed. The clamp opens as soon
//! as there is no queue, because it is then too small. It never shrinks, so that loss-based
//! neighbours cannot starve the connection.
//!
//! The RTT of the data alone proves no queue. It contains the pauses of a server that limits its
//! rate: what is sent after a pause echoes an acknowledgement from before (RFC 7323, section 4), so
//! that the RTT exceeds that of the path by at most the pause. Only what exceeds both is a queue.
//! It also contains delays of acknowledgements, and queues of other flows, which no window
//! shortens: then the clamp lowers the rate. A clamp that does so, or one that pauses contradict,
//! opens and never returns on this connection.

use std::time::Duration;

use crate::buffer_plan::LARGEST_WINDOW;
use crate::units::{Bytes, Rate, Rtt};

/// Chooses the window clamp of one connection, once per RTT.
#[derive(Debug, Clone, Default)]
pub struct ReceiveWindowTuner {
    last: Rate,
    /// The highest rate sustained for two RTTs.
    best: Rate,
    clamp: Option<Bytes>,
    /// The clamp has proved wrong.
    is_open: bool,
    /// The rate, smoothed over a few RTTs, and its highest value when the clamp took effect; in
    /// bit/s.
    mean: f64,
    mean_before: f64,
    /// RTTs since the clamp was set.
    clamped_rtts: u32,
    /// RTTs in which the clamp lowered the rate, less RTTs in which it did not.
    slowed: u32,
    /// The longest pause of the arrivals that the RTT of the data may still contain.
    pause: Duration,
    /// Twice the RTTs in which a pause explained the RTT of the data, less RTTs in which none did.
    idle: u32,
}

/// The least queue, as a share of the BDP, that shows that the path is full.
const FULL_QUEUE: f64 = 0.25;
/// A queue below this share of the BDP is noise.
const NOISE_QUEUE_SHARE: f64 = 0.05;
/// A clamp lowers the rate where the window is used and the rate is below this share of the rate
/// without it.
const SLOWED_RATE: f64 = 0.97;
/// The RTTs over which rates are smoothed; the count of RTTs that opens a clamp; and half of the
/// RTTs for which the queue lasts that is there when the clamp is set, in which the rate is that
/// without a clamp.
const JUDGED_RTTS: u32 = 4;
/// The least share of the window in flight at which the window counts as used.
const USED_SHARE: f64 = 0.8;
/// A rate that grows by a smaller factor per RTT is steady.
const STEADY_GROWTH: (u64, u64) = (11, 10);
/// The window relative to the BDP; also its growth per RTT while it is too small.
const WINDOW_PER_BDP: (u64, u64) = (5, 4);
/// The share of a pause that the RTT of the data contains an RTT later: the kernel smooths it by an
/// eighth with each sample (Linux, tcp_rcv_rtt_update), and takes one an RTT at least.
const KEPT_PAUSE: f64 = 7.0 / 8.0;
/// The smallest clamp: below it single packets dominate the measurements.
const MIN_CLAMP: Bytes = Bytes::mib(2);

impl ReceiveWindowTuner {
    /// Starts with a window for `share`, one connection's part of the BDP at the rate of this
    /// host's line, because several unclamped connections would overshoot together before any of
    /// them measures a queue.
    pub fn of_several(share: Bytes) -> Self {
        Self { clamp: Some(with_margin(share).clamp(MIN_CLAMP, LARGEST_WINDOW)), ..Self::default() }
    }

    /// Observes an RTT: data arrived at `rate` with the RTT `data_rtt` and pauses of at most
    /// `pause`, on a path whose RTT without a queue is `rtt`.
    ///
    /// Returns the clamp to set, if any. The clamp is never below `share`, one of several
    /// connections' part of the path: a connection that starts with the others' queue present would
    /// otherwise stay small.
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
        // Slow start sends each window as a burst, so a queue is meaningful only once the rate is
        // steady.
        let steady = rate.as_bits_per_sec() < scale(self.last.as_bits_per_sec(), STEADY_GROWTH);
        self.best = self.best.max(self.last.min(rate));
        self.last = rate;
        self.mean += (rate.as_bits_per_sec() as f64 - self.mean) / f64::from(JUDGED_RTTS);
        let is_idle = self.is_idle(late, rtt, pause, share);
        self.is_open |= is_idle || self.is_slowed(rtt, data_rtt, share);
        if self.is_open {
            return Some(LARGEST_WINDOW);
        }
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

    /// Counts pauses that explain the RTT of the data; returns whether they open a clamp. One may
    /// be a host's, and a burst may last for two RTTs. Connections that take turns at a queue
    /// pause, too.
    fn is_idle(&mut self, late: Duration, rtt: Rtt, pause: Duration, share: Bytes) -> bool {
        let pauses = share == Bytes::ZERO && pause > late.max(rtt.get().mul_f64(NOISE_QUEUE_SHARE));
        self.idle = if pauses { (self.idle + 2).min(JUDGED_RTTS) } else { self.idle.saturating_sub(1) };
        self.idle == JUDGED_RTTS && self.clamp.is_some()
    }

    /// Counts RTTs in which the whole window is in flight, and the rate is below the one without a
    /// clamp, or below this connection's share; returns whether they open the clamp.
    fn is_slowed(&mut self, rtt: Rtt, data_rtt: Rtt, share: Bytes) -> bool {
        let Some(clamp) = self.clamp else {
            self.mean_before = self.mean;
            return false;
        };
        self.clamped_rtts = self.clamped_rtts.saturating_add(1);
        if self.clamped_rtts < 2 * JUDGED_RTTS {
            self.mean_before = self.mean_before.max(self.mean);
        }
        let of_share = Rate::over(share, rtt.get()).as_bits_per_sec() as f64;
        let expected = if share == Bytes::ZERO { self.mean_before } else { of_share };
        let in_flight = self.mean / 8.0 * data_rtt.get().as_secs_f64();
        let slowed = self.mean < expected * SLOWED_RATE && in_flight > clamp.get() as f64 * USED_SHARE;
        self.slowed = if slowed { self.slowed + 1 } else { self.slowed.saturating_sub(1) };
        self.slowed >= JUDGED_RTTS
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
