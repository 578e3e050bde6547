//! A loss of packets, and how long it slows a transfer.

use std::time::Duration;

use crate::units::{Bytes, Rate};

/// A loss whose effect may last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loss {
    /// When the interval ended in which its last packet was lost.
    pub(super) at: Duration,
    /// When the interval ended in which its first packet was lost.
    pub(super) began: Duration,
    /// How long the congestion window stays below that at the loss.
    pub(super) recovery: Duration,
    /// Whether a queue stood just before, which overflowed.
    pub(super) is_overflow: bool,
    /// The rate before it, or before the first of losses that follow one another, where that did not grow.
    pub(super) before: Option<Rate>,
    /// What was moved since, in how many intervals and in which time, as far as it tells the effect of these losses.
    pub(super) since: (Bytes, u32, Duration),
    /// Whether they, or the last ones whose effect was measured, have not lowered the rate.
    pub(super) is_harmless: bool,
    /// Whether the congestion window is still smaller than without it.
    pub(super) outlasts: bool,
}

/// Returns for how long a loss keeps CUBIC below the window of `packets` at which it happens: K = cbrt(W x 0.3 / 0.4) seconds, or where
/// that is sooner, until its Reno-friendly window has grown by 0.3 W at 0.53 packets a round trip (RFC 9438, sections 4.2 and 4.3).
pub(super) fn recovery(packets: f64, rtt: Duration) -> Duration {
    const REDUCTION: f64 = 0.3;
    const CUBIC: f64 = 0.4;
    const RENO_FRIENDLY: f64 = 0.53;
    let cubic = (packets * REDUCTION / CUBIC).cbrt();
    let reno_friendly = packets * REDUCTION / RENO_FRIENDLY * rtt.as_secs_f64();
    Duration::try_from_secs_f64(cubic.min(reno_friendly)).unwrap_or(Duration::ZERO)
}

impl Loss {
    /// Returns whether enough was moved since to tell the effect.
    pub(super) fn is_measured(&self) -> bool {
        /// Single intervals jitter.
        const ENOUGH: u32 = 4;
        self.since.1 >= ENOUGH
    }

    /// Returns whether the rate since has shown that it has no effect; another loss may have one.
    pub(super) fn is_found_harmless(&self) -> bool {
        self.is_harmless && self.is_measured()
    }

    /// Returns whether the window is still smaller than it would be: after another time of recovery it exceeds that at the loss by as
    /// much as the loss took.
    pub(super) fn limits(&self, now: Duration) -> bool {
        now <= self.at + self.recovery * 2
    }
}
