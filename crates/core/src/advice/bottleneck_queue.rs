//! The queue of the bottleneck: whether it stands, has overflowed, or is filled from time to time
//! at the path's rate; or whether the sender pauses, which delays data, too.

use std::collections::VecDeque;
use std::time::Duration;

use super::TIMESTAMP_TICK;
use super::interval::Interval;
use super::params;
use super::recent_rates;
use crate::units::Rtt;

/// Why the RTT of the data exceeds that of the empty path throughout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lateness {
    /// Data wait in a queue that does not drain between bursts.
    Queue,
    /// The sender had paused: the bottleneck of a standing queue is never idle.
    Pauses,
    /// Arrivals pause, as those of such a sender and those of one flow among others at a bottleneck
    /// do.
    Unclear,
}

/// What the delay of the data has shown of the queue in the last intervals.
#[derive(Debug, Clone, Default)]
pub(super) struct BottleneckQueue {
    /// The RTT of the data at the end of each interval.
    data_rtts: VecDeque<(Duration, Rtt)>,
    /// The time since data had arrived in each interval, unless a retransmission was awaited.
    data_ages: VecDeque<(Duration, Duration)>,
    /// The end of the last interval in which packets were lost.
    last_loss: Option<Duration>,
    /// Whether packets were ever lost behind a queue.
    pub(super) has_overflowed: bool,
    /// The last intervals.
    arrivals: VecDeque<Arrivals>,
}

/// What arrived in an interval.
#[derive(Debug, Clone, Copy)]
struct Arrivals {
    /// Packets a second.
    rate: f64,
    /// Whether data were late.
    is_late: bool,
}

impl BottleneckQueue {
    /// Records the RTT of the data, and unless after a loss the time since they had arrived;
    /// `was_queued` where a queue stood just before.
    pub(super) fn record(&mut self, interval: &Interval, after_loss: bool, was_queued: bool) {
        fn forget<T>(readings: &mut VecDeque<(Duration, T)>, over: Duration, now: Duration) {
            while readings.front().is_some_and(|(at, _)| at.saturating_add(over) < now) {
                readings.pop_front();
            }
        }
        if interval.lost() > 0 {
            self.last_loss = Some(interval.end);
            self.has_overflowed |= was_queued;
        }
        let over = standing_over(interval);
        self.data_rtts.extend(interval.now.path.data_rtt.map(|data_rtt| (interval.end, data_rtt)));
        forget(&mut self.data_rtts, over, interval.end);
        self.data_ages.extend((!after_loss).then_some((interval.end, interval.data_age)));
        forget(&mut self.data_ages, over.max(recent_rates::COVERED), interval.end);
        if self.arrivals.len() == params::CAPACITY_INTERVALS {
            self.arrivals.pop_front();
        }
        let is_late = interval.highest_data_rtt.is_some_and(|data| interval.is_late(data));
        self.arrivals.push_back(Arrivals { rate: interval.arrival_rate(), is_late });
    }

    /// Returns whether the delay of the data is known.
    pub(super) fn is_known(&self) -> bool {
        !self.data_rtts.is_empty()
    }

    /// Returns why data are late; `None` where they are not.
    pub(super) fn lateness(&self, interval: &Interval) -> Option<Lateness> {
        let excess = self.late_rtt(interval)?.get().saturating_sub(interval.base_rtt()).as_secs_f64();
        if interval.is_local() {
            return Some(Lateness::Pauses);
        }
        let count = self.data_ages.len().max(1) as f64;
        let mean = self.data_ages.iter().map(|(_, age)| age.as_secs_f64()).sum::<f64>() / count;
        let packets = interval.rate().time_for(params::PAUSE_BYTES);
        let is_long = mean > packets.max(params::MIN_PAUSE).as_secs_f64();
        if !is_long || mean <= excess * params::QUEUED_PAUSE_SHARE {
            return Some(Lateness::Queue);
        }
        let is_pause = mean > excess * params::PAUSE_SHARE && !self.loses(interval);
        Some(if is_pause { Lateness::Pauses } else { Lateness::Unclear })
    }

    /// Returns whether packets were lost lately. The flows at a full bottleneck lose packets, and
    /// pause while others have their turn.
    pub(super) fn loses(&self, interval: &Interval) -> bool {
        self.last_loss.is_some_and(|at| at.saturating_add(params::MIN_LOSSY_TIME) >= interval.end)
    }

    /// Returns whether data wait in a queue that does not drain between bursts.
    pub(super) fn is_standing(&self, interval: &Interval) -> bool {
        self.lateness(interval) == Some(Lateness::Queue)
    }

    /// Returns the least RTT of the data, where it exceeds that of the empty path throughout.
    fn late_rtt(&self, interval: &Interval) -> Option<Rtt> {
        let over = standing_over(interval);
        // Readings of a shorter time may be of one burst.
        let covered =
            self.data_rtts.front().is_some_and(|(at, _)| at.saturating_add(over / 2) <= interval.end);
        let data = self.data_rtts.iter().map(|(_, data_rtt)| *data_rtt).min().filter(|_| covered)?;
        interval.is_late(data).then_some(data)
    }

    /// Forgets the arrivals of slow start, which do not reach the capacity.
    pub(super) fn note_growth(&mut self) {
        self.arrivals.clear();
    }

    /// Returns whether the bottleneck is busy: most intervals have one highest rate, and in some of
    /// these the data are late. A server that limits its rate does not delay data; the rates of one
    /// that pauses differ.
    pub(super) fn is_at_capacity(&self, interval: &Interval) -> bool {
        let highest = self.arrivals.iter().map(|past| past.rate).fold(0.0, f64::max);
        let packets = 2.0 / interval.span.as_secs_f64().max(1e-9);
        let least = highest * (1.0 - params::CAPACITY_TOLERANCE);
        let reached: Vec<_> = self.arrivals.iter().filter(|past| past.rate >= least).collect();
        let late = reached.iter().filter(|past| past.is_late).count();
        // The count of packets is exact to one at each end of an interval.
        highest - packets >= highest * (1.0 - params::CAPACITY_TOLERANCE)
            && highest > 0.0
            && self.arrivals.len() >= params::CAPACITY_INTERVALS / 2
            && interval.arrival_rate() >= least
            && reached.len() as f64 >= self.arrivals.len() as f64 * params::CAPACITY_SHARE
            && late as f64 >= reached.len() as f64 * params::CAPACITY_LATE_SHARE
    }
}

/// Returns the time after which a queue that has not drained stands.
fn standing_over(interval: &Interval) -> Duration {
    params::MIN_STANDING_TIME.max(interval.base_rtt() * params::STANDING_ROUND_TRIPS)
}

/// Returns whether the delay of the data just before a loss in slow start shows that a queue
/// overflowed.
pub(super) fn overflowed_in_slow_start(interval: &Interval) -> bool {
    let delays = interval.min_rtt().zip(interval.highest_before_loss.max(interval.before.path.data_rtt));
    delays.is_some_and(|(least, highest)| {
        highest.get() > least.get().mul_f64(params::OVERFLOW_RTT_FACTOR) + TIMESTAMP_TICK
    })
}
