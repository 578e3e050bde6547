//! Arrivals that keep one rate while packets are lost: what the sender sends beyond it is dropped.

use std::collections::VecDeque;
use std::time::Duration;

use super::TIMESTAMP_TICK;
use super::interval::Interval;
use super::params;
use super::reading::End;
use super::witness::Witness;
use crate::units::{Bytes, Rate, Rtt};

/// The last intervals in which packets were lost behind a queue, or for longer than a single loss
/// takes to repair.
#[derive(Debug, Clone, Default)]
pub(super) struct CappedArrivals {
    lossy: VecDeque<LossyInterval>,
    /// The lossy intervals up to the present one, and their time, without an interval between them
    /// in which nothing was lost.
    in_a_row: (u32, Duration),
    /// The rates of arrival of the last intervals before these, and the highest with which such a
    /// row began.
    before: VecDeque<f64>,
    exceeded: f64,
    /// The packets so far, and their bytes.
    arrived: (u64, Bytes),
    /// The rate that a policer has let through.
    pub(super) policed: Option<Rate>,
}

#[derive(Debug, Clone, Copy)]
struct LossyInterval {
    end: Duration,
    /// Packets a second that arrived, in order or not.
    rate: f64,
    /// Whether the delay of the data shows no queue, and whether one that may have overflowed.
    is_empty: bool,
    is_queued: bool,
}

impl CappedArrivals {
    pub(super) fn record(&mut self, interval: &Interval, end: End) {
        let rtt = interval.base_rtt();
        let kept = params::MIN_LOSSY_TIME.max(rtt * params::LOSSY_ROUND_TRIPS);
        while self.lossy.len() == params::LOSSY_INTERVALS
            || self.lossy.front().is_some_and(|past| past.end.saturating_add(kept) < interval.end)
        {
            self.lossy.pop_front();
        }
        let is_lossy = interval.is_lossy(end);
        let (count, time) = self.in_a_row;
        if self.lossy.is_empty() && count == 0 {
            self.exceeded = 0.0;
        }
        if is_lossy && count == 0 {
            self.exceeded =
                self.before.iter().copied().fold(self.exceeded.max(interval.arrival_rate()), f64::max);
        }
        self.before.push_back(interval.arrival_rate());
        if self.before.len() > params::EXCEEDING_INTERVALS {
            self.before.pop_front();
        }
        self.in_a_row = match is_lossy {
            true => (count + 1, time + interval.span),
            false if interval.lost() > 0 => (count, time),
            false => Default::default(),
        };
        let data_rtt = interval.highest_data_rtt.map_or(rtt, Rtt::get);
        let is_above = |factor: f64| data_rtt > rtt.mul_f64(factor).max(rtt + TIMESTAMP_TICK);
        let is_empty = !is_above(params::QUEUED_RTT_FACTOR);
        let is_queued = is_above(params::OVERFLOW_RTT_FACTOR);
        let (count, time) = self.in_a_row;
        if is_lossy && (!is_empty || count > 1 && time >= rtt.mul_f64(params::LOSSY_RUN_ROUND_TRIPS)) {
            self.lossy.push_back(LossyInterval {
                end: interval.end,
                rate: interval.arrival_rate(),
                is_empty,
                is_queued,
            });
        }
        self.arrived.0 = self.arrived.0.saturating_add(interval.arrived());
        self.arrived.1 += interval.moved();
        if self.device() == Some(Witness::CappedArrivals) {
            let bytes = self.arrived.1.get() as f64 / self.arrived.0.max(1) as f64;
            self.policed = Some(Rate::bits_per_sec((self.median() * bytes * 8.0) as u64));
        }
    }

    /// Returns what shows the device that drops packets: a bottleneck whose queue overflows, or a
    /// policer, which has no queue.
    ///
    /// Losses at random lower the rate of a sender each time to another one; only a cap repeats
    /// itself.
    pub(super) fn device(&self) -> Option<Witness> {
        let capped = self.capped().count();
        if capped < params::CAPPED_INTERVALS || capped * 2 < self.lossy.len() {
            return None;
        }
        // A retransmission delays data, too, and a queue may be empty at the readings.
        let all = self.lossy.len();
        let count = |of: fn(&LossyInterval) -> bool| self.lossy.iter().filter(|past| of(past)).count();
        let (empty, queued) = (count(|past| past.is_empty), count(|past| past.is_queued));
        let exceeds = self.exceeded > self.median() * (1.0 + params::CAPPED_TOLERANCE);
        Some(if exceeds && empty * 4 >= all * 3 {
            Witness::CappedArrivals
        } else if queued * 2 >= all || !exceeds && (all - empty) * params::QUEUED_INTERVALS >= all {
            Witness::CappedOverflow
        } else {
            Witness::Unexplained
        })
    }

    /// Returns whether one more lossy interval would show a device: all have one rate, which random
    /// losses rarely cause.
    pub(super) fn is_undecided(&self) -> bool {
        let capped = self.capped().count();
        capped + 1 == params::CAPPED_INTERVALS && capped == self.lossy.len()
    }

    /// Returns the device that drops, where packets arrive in this interval about as fast as it
    /// permits.
    pub(super) fn device_at_cap(&self, interval: &Interval) -> Option<Witness> {
        let cap = self.capped().map(|interval| interval.rate).fold(0.0, f64::max);
        self.device().filter(|_| interval.arrival_rate() >= cap * params::HARMLESS_SHARE)
    }

    /// Returns the intervals whose rate is the median one.
    fn capped(&self) -> impl Iterator<Item = &LossyInterval> {
        let median = self.median();
        self.lossy
            .iter()
            .filter(move |interval| (interval.rate - median).abs() <= median * params::CAPPED_TOLERANCE)
    }

    /// Returns their median rate, in packets a second.
    fn median(&self) -> f64 {
        let mut rates: Vec<_> = self.lossy.iter().map(|interval| interval.rate).collect();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied().unwrap_or_default()
    }
}
