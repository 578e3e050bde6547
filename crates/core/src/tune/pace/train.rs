//! Packet trains: measures the bottleneck's rate by the dispersion of bursts.

use std::time::Duration;

use super::Params;
use crate::units::{Bytes, Rate};

/// Finds bursts in the delivered bytes, and the rate of each.
///
/// In slow start a window travels as one burst. The bottleneck forwards it at its own rate, and the
/// acknowledgements return with that spacing: a burst's bytes over its duration are the
/// bottleneck's rate, long before the window reaches the BDP.
#[derive(Debug, Clone, Default)]
pub(super) struct PacketTrains {
    /// The arrivals of the present burst, and for each how long before its observation it may have
    /// been.
    burst: Vec<Arrival>,
    /// The previous observation.
    observed: Duration,
    delivered: Bytes,
    /// The rate of the previous burst that could be measured.
    pub(super) before: Option<Rate>,
}

#[derive(Debug, Clone, Copy)]
struct Arrival {
    at: Duration,
    delivered: Bytes,
    early: Duration,
}

impl PacketTrains {
    /// Observes the bytes delivered by `now`; returns the bottleneck's rate, less its error, once
    /// two bursts in a row agree on it.
    pub(super) fn observe(&mut self, delivered: Bytes, rtt: Duration, now: Duration) -> Option<Rate> {
        let has_arrived = std::mem::replace(&mut self.delivered, delivered) < delivered;
        let interval = now.saturating_sub(std::mem::replace(&mut self.observed, now));
        // A window pauses for longer, most delayed acknowledgements for less.
        let has_ended = self.burst.last().is_some_and(|last| now.saturating_sub(last.at) >= rtt / 8);
        let ended = if has_ended { std::mem::take(&mut self.burst) } else { Vec::new() };
        if has_arrived {
            // A host that is late, GRO and delayed acknowledgements all hold back the last bytes.
            let early = self.burst.last().map_or(interval, |last| now.saturating_sub(last.at));
            self.burst.push(Arrival { at: now, delivered, early });
        }
        let (rate, error) = rate_of(&ended)?;
        let before = self.before.replace(rate)?;
        let agree = before.min(rate) >= before.max(rate).scaled(1.0 - 2.0 * Params::UNCERTAINTY);
        // Their mean: one may have met other traffic.
        agree.then(|| (before.scaled(0.5) + rate.scaled(0.5)).scaled(1.0 - error))
    }
}

/// Returns the rate of a burst and its relative error; `None` if its ends are uncertain, or its
/// middle did not arrive when that rate says: then the host or the network stopped for a moment.
fn rate_of(burst: &[Arrival]) -> Option<(Rate, f64)> {
    let (first, last) = (burst.first()?, burst.last()?);
    let (time, rate) = (last.at - first.at, Rate::over(last.delivered - first.delivered, last.at - first.at));
    let half = Bytes::new((first.delivered.get() + last.delivered.get()) / 2);
    let middle = burst.get(burst.partition_point(|arrival| arrival.delivered < half))?;
    let error = first.early.max(last.early).as_secs_f64() / time.as_secs_f64();
    if time.is_zero() || error > Params::UNCERTAINTY {
        return None;
    }
    let due = first.at.saturating_add(rate.time_for(middle.delivered - first.delivered));
    let slack = time.mul_f64(Params::UNCERTAINTY);
    let is_even =
        due.saturating_add(slack) >= middle.at.saturating_sub(middle.early) && due <= middle.at + slack;
    is_even.then_some((rate, error))
}
