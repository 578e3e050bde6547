//! Packet trains: measures the bottleneck's rate by the dispersion of bursts.

use std::time::Duration;

use super::Params;
use crate::units::{Bytes, Rate};

/// Finds bursts in the delivered bytes, and the rate of each.
///
/// In slow start a window travels as one burst. The bottleneck forwards it at its own rate, and the acknowledgements return
/// with that spacing: a burst's bytes over its duration are the bottleneck's rate, long before the window reaches the BDP.
#[derive(Debug, Clone, Default)]
pub(super) struct PacketTrains {
    burst: Option<Burst>,
    /// The previous observation.
    observed: Duration,
    delivered: Bytes,
    /// The rate of the previous burst that could be measured.
    before: Option<Rate>,
}

#[derive(Debug, Clone, Copy)]
struct Burst {
    first: (Duration, Bytes),
    last: (Duration, Bytes),
    /// How long before its observation each of the two may have arrived. Of the difference the larger one is the error.
    early: (Duration, Duration),
}

impl PacketTrains {
    /// Observes the bytes delivered by `now`; returns the bottleneck's rate once two bursts in a row agree on it.
    ///
    /// The error of a burst's rate is that of its ends: what is late in between lengthens nothing. It must be within
    /// `Params::UNCERTAINTY`; two such rates differ by no more than twice that.
    pub(super) fn observe(&mut self, delivered: Bytes, rtt: Duration, now: Duration) -> Option<Rate> {
        let step = delivered - std::mem::replace(&mut self.delivered, delivered);
        let interval = now.saturating_sub(std::mem::replace(&mut self.observed, now));
        let gap = rtt.mul_f64(Params::GAP);
        let ended = self.burst.take_if(|burst| now.saturating_sub(burst.last.0) >= gap);
        if step > Bytes::ZERO {
            let news = (now, delivered);
            match &mut self.burst {
                // The bytes of the first observation have no duration.
                None => self.burst = Some(Burst { first: news, last: news, early: (interval, interval) }),
                Some(burst) => {
                    // A host that is late, GRO and delayed acknowledgements all hold back the last bytes.
                    burst.early.1 = now.saturating_sub(burst.last.0);
                    burst.last = news;
                }
            }
        }
        let rate = ended?.rate()?;
        let before = self.before.replace(rate)?;
        let agree = before.min(rate) >= before.max(rate).scaled(1.0 - 2.0 * Params::UNCERTAINTY);
        // Their mean: one may have met other traffic.
        agree.then(|| before.scaled(0.5) + rate.scaled(0.5))
    }
}

impl Burst {
    fn rate(self) -> Option<Rate> {
        let time = self.last.0 - self.first.0;
        let is_certain =
            !time.is_zero() && self.early.0.max(self.early.1) <= time.mul_f64(Params::UNCERTAINTY);
        is_certain.then(|| Rate::over(self.last.1 - self.first.1, time))
    }
}
