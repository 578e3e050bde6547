//! Statistics of the last intervals: goodput with its standard error, queue and losses.

use std::collections::VecDeque;
use std::time::Duration;

use crate::units::Rate;

use super::Interval;
use super::initial_count::SEGMENT;

/// The number of intervals kept.
const MAX_INTERVALS: usize = 16;
/// The least queue that counts, as a share of the RTT.
const QUEUE_RTT_SHARE: f64 = 0.05;
/// The least queue that counts, as a time; shorter ones are noise.
const MIN_QUEUE: Duration = Duration::from_millis(3);
/// The least number of packets out of order in an interval that counts as a loss; fewer may be
/// reordering.
const LOSS_PACKETS: u64 = 3;
/// The share of the intervals from which losses are persistent.
const PERSISTENT_LOSS: f64 = 0.3;
/// The share of packets out of order from which the loss rate is too high for random losses: it
/// corresponds to a loss rate of 0.7 % (x^2 / 1.5, for Reno).
const HEAVY_REORDERING: f64 = 0.1;
/// The number of consecutive intervals with a queue that shows that the path fills.
const FILLING_INTERVALS: usize = 2;
/// The number of intervals before and after which fast growth is measured.
pub(super) const FAST_GROWTH_INTERVALS: usize = 2;
/// The number of intervals before and after which slow growth is measured.
pub(super) const SLOW_GROWTH_INTERVALS: usize = 4;
/// Fast growth below this factor shows that slow start is over.
const LEVEL_GROWTH: f64 = 1.15;
/// Slow growth below this factor shows that windows reduced by losses have recovered.
const LEVEL_GROWTH_AFTER_LOSS: f64 = 1.05;
/// Growth below this factor is noise.
const NO_GROWTH: f64 = 1.01;
/// The share of held-back intervals from which the network is not the limit.
const HELD_BACK_SHARE: f64 = 0.25;
/// The share of intervals with high pressure from which the pressure is persistent.
const PRESSED_SHARE: f64 = 0.5;

#[derive(Debug, Clone, Copy)]
struct IntervalSample {
    at: Duration,
    /// The goodput in bits per second.
    goodput: f64,
    /// The queue relative to the RTT without one; 0 if it is noise.
    queue: f64,
    lost: bool,
    held_back: bool,
    pressed: bool,
}

/// The last intervals.
#[derive(Debug, Clone, Default)]
pub(super) struct IntervalStatistics {
    /// The end of the last interval.
    last: Option<Duration>,
    /// The share of packets out of order: a long moving average, because a stream that leaves slow
    /// start may have many.
    out_of_order: f64,
    samples: VecDeque<IntervalSample>,
    /// Whether a packet was lost since the last change.
    has_lost: bool,
}

/// The mean of several intervals.
#[derive(Debug, Clone, Copy)]
pub(super) struct IntervalMean {
    /// The number of intervals.
    pub(super) intervals: usize,
    /// The goodput in bits per second.
    pub(super) goodput: f64,
    /// The standard error of the goodput, relative to it.
    pub(super) error: f64,
    queue: QueueSpread,
    /// The share of the intervals in which packets were lost.
    loss: f64,
    /// The moving average of the share of packets out of order, continued over changes of the
    /// number of streams.
    out_of_order: f64,
    held_back: f64,
    pressed: f64,
}

/// The queues of several intervals over the BDP.
#[derive(Debug, Clone, Copy)]
struct QueueSpread {
    /// The median; bursts lengthen the queue of single intervals.
    median: f64,
    /// The shortest of the latest intervals.
    latest: f64,
    /// The shortest, which is the standing queue.
    standing: f64,
    longest: f64,
}

impl IntervalStatistics {
    pub(super) fn push(&mut self, seen: &Interval, now: Duration) {
        let rtt = seen.rtt.get();
        let waits = seen.data_rtt.map_or(Duration::ZERO, |data| data.get().saturating_sub(rtt));
        let queue = waits.as_secs_f64() / rtt.as_secs_f64().max(1e-6);
        // The length of the first interval is unknown.
        if let Some(last) = self.last.replace(now) {
            let packets = seen.goodput.bytes_in(now.saturating_sub(last)).get() as f64 / SEGMENT.get() as f64;
            let out_of_order = (seen.out_of_order as f64 / packets.max(1.0)).min(1.0);
            self.out_of_order += (out_of_order - self.out_of_order) / MAX_INTERVALS as f64;
        }
        self.has_lost |= seen.out_of_order >= LOSS_PACKETS;
        if self.samples.len() == MAX_INTERVALS {
            self.samples.pop_front();
        }
        self.samples.push_back(IntervalSample {
            at: now,
            goodput: seen.goodput.as_bits_per_sec() as f64,
            queue: if waits >= MIN_QUEUE && queue >= QUEUE_RTT_SHARE { queue } else { 0.0 },
            lost: seen.out_of_order >= LOSS_PACKETS,
            held_back: seen.held_back,
            pressed: seen.is_pressed(),
        });
    }

    /// Removes all intervals.
    pub(super) fn clear(&mut self) {
        self.samples.clear();
        self.has_lost = false;
    }

    /// Removes all but the last `intervals`.
    pub(super) fn keep_last(&mut self, intervals: usize) {
        let old = self.samples.len().saturating_sub(intervals);
        self.samples.drain(..old);
    }

    /// Returns the mean of the last `most` intervals that ended after `since`; `None` if no data
    /// arrived in them.
    ///
    /// Held-back intervals are ignored unless they are many.
    pub(super) fn view(&self, since: Duration, most: usize) -> Option<IntervalMean> {
        let recent: Vec<_> =
            self.samples.iter().rev().take_while(|s| s.at > since).take(most).copied().collect();
        let held_back = share(&recent, |s| s.held_back);
        let counted: Vec<_> =
            recent.iter().filter(|s| held_back >= HELD_BACK_SHARE || !s.held_back).copied().collect();
        let n = counted.len().max(1) as f64;
        let goodput = counted.iter().map(|s| s.goodput).sum::<f64>() / n;
        if goodput == 0.0 {
            return None;
        }
        let variance =
            counted.iter().map(|s| (s.goodput - goodput).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
        let mut queues: Vec<_> = counted.iter().map(|s| s.queue).collect();
        queues.sort_by(f64::total_cmp);
        Some(IntervalMean {
            intervals: counted.len(),
            goodput,
            error: (variance / n).sqrt() / goodput,
            queue: QueueSpread {
                standing: queues.first().copied().unwrap_or(0.0),
                median: queues.get((queues.len() - 1) / 2).copied().unwrap_or(0.0),
                latest: counted.iter().take(FILLING_INTERVALS).map(|s| s.queue).fold(f64::INFINITY, f64::min),
                longest: queues.last().copied().unwrap_or(0.0),
            },
            loss: share(&counted, |s| s.lost),
            out_of_order: self.out_of_order,
            held_back,
            pressed: share(&recent, |s| s.pressed),
        })
    }

    /// Returns whether the goodput has stopped growing: the ramp-up is over.
    ///
    /// After a loss, windows grow by one packet per RTT, so growth is measured over a longer span.
    pub(super) fn is_level(&self) -> bool {
        let (intervals, most) = if self.has_lost {
            (SLOW_GROWTH_INTERVALS, LEVEL_GROWTH_AFTER_LOSS)
        } else {
            (FAST_GROWTH_INTERVALS, LEVEL_GROWTH)
        };
        self.growth(intervals).is_some_and(|growth| growth < most)
    }

    /// Returns whether the goodput grows from `intervals` intervals to as many after them.
    pub(super) fn is_growing(&self, intervals: usize) -> bool {
        self.growth(intervals).is_none_or(|growth| growth > NO_GROWTH)
    }

    /// Returns the goodput of the last `intervals` intervals over that of as many before them.
    fn growth(&self, intervals: usize) -> Option<f64> {
        let sum = |skipped| -> f64 {
            self.samples.iter().rev().skip(skipped).take(intervals).map(|s| s.goodput).sum()
        };
        let before = sum(intervals);
        let known = self.samples.len() >= 2 * intervals && before > 0.0;
        known.then(|| sum(0) / before)
    }
}

impl IntervalMean {
    /// Returns the mean goodput.
    pub(super) fn rate(&self) -> Rate {
        Rate::bits_per_sec(self.goodput as u64)
    }

    /// Returns whether there is a standing queue: the path is full.
    pub(super) fn has_queue(&self) -> bool {
        self.queue.median > 0.0
    }

    /// Returns whether the path was never full.
    pub(super) fn was_never_full(&self) -> bool {
        self.queue.longest == 0.0 && !self.is_losing_much()
    }

    /// Returns whether packets were lost.
    pub(super) fn has_lost(&self) -> bool {
        self.loss > 0.0
    }

    /// Returns whether a queue has just appeared: the path has become full.
    pub(super) fn is_filling(&self) -> bool {
        self.queue.latest > 0.0
    }

    /// Returns whether losses persist.
    pub(super) fn is_losing(&self) -> bool {
        self.loss >= PERSISTENT_LOSS
    }

    /// Returns whether the loss rate is too high for random losses.
    pub(super) fn is_losing_much(&self) -> bool {
        self.out_of_order > HEAVY_REORDERING
    }

    /// Returns the largest number of streams at the present loss rate, so that on average one
    /// stream at a time recovers from a loss.
    ///
    /// A stream with a window of W packets receives W packets out of order until a retransmission,
    /// and loses one packet in 2 W^2 / 3 (Reno): n streams, each with the share x out of order,
    /// have n x = 1.5 n / W losses per RTT. A single stream responds to one loss per RTT. Few
    /// losses without a queue may be random, independent of the number of streams.
    pub(super) fn max_streams_at_loss(&self) -> usize {
        if self.is_losing_much() || self.queue.longest > 0.0 {
            (1.0 / self.out_of_order) as usize
        } else {
            usize::MAX
        }
    }

    /// Returns whether the disk, a configured limit or the CPU limits the streams.
    pub(super) fn is_held_back(&self) -> bool {
        self.held_back >= HELD_BACK_SHARE
    }

    /// Returns whether this host lacks CPU time or memory, so that more streams would slow the
    /// present ones.
    pub(super) fn is_pressed(&self) -> bool {
        self.pressed >= PRESSED_SHARE
    }

    /// Returns the number of `streams` that only fill the queue.
    ///
    /// (1 + standing queue) BDPs are in flight, of which the path needs one; a fifth of the rest is
    /// kept as a margin.
    pub(super) fn spare(&self, streams: usize) -> usize {
        (streams as f64 * 0.8 * self.queue.standing / (1.0 + self.queue.standing)) as usize
    }
}

fn share(samples: &[IntervalSample], is: impl Fn(&IntervalSample) -> bool) -> f64 {
    samples.iter().filter(|s| is(s)).count() as f64 / samples.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Rtt;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn interval(mbit: u64) -> Interval {
        let data_rtt = Some(Rtt::new(MS(101)));
        Interval { data_rtt, ..Interval::free(Rate::mbit(mbit), Rtt::new(MS(100)), 1) }
    }

    fn meter(intervals: &[Interval]) -> IntervalStatistics {
        let mut meter = IntervalStatistics::default();
        intervals.iter().zip(1..).for_each(|(seen, at)| meter.push(seen, MS(100 * at)));
        meter
    }

    /// Returns the view of all intervals.
    fn view(intervals: &[Interval]) -> IntervalMean {
        meter(intervals).view(MS(0), 9).unwrap()
    }

    #[test]
    fn mean_has_a_standard_error() {
        let meter = meter(&[50, 90, 110, 100].map(interval));
        let view = meter.view(MS(100), 9).unwrap();
        assert_eq!((view.intervals, view.rate()), (3, Rate::bits_per_sec(100_000_000)));
        // A deviation of 10 Mbit/s divided by the square root of three.
        assert!((view.error - 0.0577).abs() < 0.001, "{}", view.error);
        assert_eq!(meter.view(MS(100), 1).map(|view| view.goodput), Some(100e6));
        assert!(meter.view(MS(400), 9).is_none() && self::meter(&[interval(0)]).view(MS(0), 9).is_none());
    }

    #[test]
    fn goodput_is_level_when_two_intervals_equal_the_two_before() {
        for (mbit, level) in [
            ([10, 20, 40, 80], false),
            ([40, 80, 100, 100], false),
            ([75, 100, 100, 100], true),
            ([0, 0, 0, 0], false),
            ([100, 110, 90, 100], true),
        ] {
            assert_eq!(meter(&mbit.map(interval)).is_level(), level, "{mbit:?}");
        }
        assert!(!meter(&[interval(5); 3]).is_level());
    }

    #[test]
    fn queue_is_the_median_of_the_intervals() {
        let waits = |ms: u64| Interval { data_rtt: Some(Rtt::new(MS(100 + ms))), ..interval(100) };
        assert!(!view(&[2, 4, 3, 50].map(waits)).has_queue());
        let some = view(&[60, 0, 60, 60].map(waits));
        assert!(some.has_queue() && some.spare(20) == 0);
        let view = view(&[90, 60, 60, 60].map(waits));
        // 20 streams have 1.6 BDPs in flight: 12.5 of them are needed, and a fifth of the others
        // stay.
        assert_eq!((view.spare(20), view.spare(1)), (5, 0));
    }

    #[test]
    fn losses_in_a_third_of_the_intervals_are_persistent_and_slow_growth_after_one_is_not_level() {
        let lost = |packets| Interval { out_of_order: packets, ..interval(100) };
        assert!(view(&[0, 40, 0].map(lost)).is_losing());
        assert!(!view(&[0, 40, 0, 0].map(lost)).is_losing() && !view(&[2, 1, 2].map(lost)).is_losing());
        let grown = |mbit: [u64; 8], lost| {
            let seen = mbit.map(|mbit| Interval { out_of_order: lost, ..interval(mbit) });
            meter(&seen).is_level()
        };
        let slowly = [50, 52, 54, 56, 58, 60, 62, 64];
        assert!(grown(slowly, 0) && !grown(slowly, 9));
        assert!(grown([97; 8], 9) && !meter(&[interval(97); 8]).is_growing(SLOW_GROWTH_INTERVALS));
    }

    #[test]
    fn loss_rate_bounds_the_number_of_streams() {
        // 864 packets in an interval of 100 ms at 100 Mbit/s.
        let after = |packets, waits: u64| {
            let data_rtt = Some(Rtt::new(MS(100 + waits)));
            let seen = Interval { out_of_order: packets, data_rtt, ..interval(100) };
            meter(&[seen; 200]).view(MS(0), 8).unwrap().max_streams_at_loss()
        };
        assert_eq!([after(172, 0), after(87, 0)], [5, 9]);
        // Few losses may be random, unless there is a queue; without losses, any number is allowed.
        assert_eq!([after(43, 0), after(43, 10), after(0, 10)], [usize::MAX, 20, usize::MAX]);
    }

    #[test]
    fn single_held_back_interval_is_ignored_but_many_count() {
        let held = |mbit| Interval { held_back: true, ..interval(mbit) };
        let paused = view(&[interval(100), interval(100), held(3), interval(100), interval(100)]);
        assert!(!paused.is_held_back() && paused.intervals == 4 && paused.goodput == 100e6);
        let slow = view(&[held(50), interval(60), held(40)]);
        assert!(slow.is_held_back() && slow.intervals == 3 && slow.goodput == 50e6);
    }

    #[test]
    fn persistent_pressure_counts() {
        for (pressures, pressed) in [
            ([0.2, 0.9, 0.9, 0.8], true),
            ([1.0, 0.0, 1.0, 0.0], true),
            ([0.7, 0.7, 1.0, 0.7], false),
            ([0.0; 4], false),
        ] {
            let seen = pressures.map(|pressure| Interval { pressure, ..interval(100) });
            assert_eq!(meter(&seen).view(MS(0), 8).unwrap().is_pressed(), pressed, "{pressures:?}");
        }
    }
}
