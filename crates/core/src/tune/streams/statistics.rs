//! What the last intervals showed: goodput with its uncertainty, and the signs that the path is full.

use std::collections::VecDeque;
use std::time::Duration;

use crate::units::Rate;

use super::Interval;
use super::initial_count::SEGMENT;

/// So many intervals are kept.
const KEPT: usize = 16;
/// Data that takes longer than the empty path by this part of its round trip,
const QUEUE: f64 = 0.05;
/// and by this much, waits in a queue. Less is noise.
const LEAST_QUEUE: Duration = Duration::from_millis(3);
/// So many packets out of order in an interval are a loss; fewer may be a detour.
const LOST: u64 = 3;
/// Losses in this share of the intervals persist.
const PERSISTENT: f64 = 0.3;
/// So many packets out of order are a loss rate of 0.7 % (x^2 / 1.5, for Reno).
const MUCH: f64 = 0.1;
/// A queue in so many intervals on end is no accident.
const LATEST: usize = 2;
/// From so many intervals to as many after them goodput grows where it grows fast,
pub(super) const FAST: usize = 2;
/// and where it grows slowly.
pub(super) const SLOWLY: usize = 4;
/// Where it grows by less than this in a short time, slow start is over;
const GROWTH: f64 = 1.15;
/// in a long one, windows that were cut have grown again;
const SLOW_GROWTH: f64 = 1.05;
/// and by less than this it does not grow at all.
const STANDS: f64 = 1.01;
/// That share of the intervals in which something of ours held the streams says that the network is not what limits.
const HELD_BACK: f64 = 0.25;

#[derive(Debug, Clone, Copy)]
struct IntervalSample {
    at: Duration,
    /// Bits per second.
    goodput: f64,
    /// How much longer data takes than the empty path, over its round trip; 0 where that is noise.
    queue: f64,
    lost: bool,
    held_back: bool,
}

/// Keeps the last intervals.
#[derive(Debug, Clone, Default)]
pub(super) struct IntervalStatistics {
    /// When the last interval ended.
    last: Option<Duration>,
    /// The share of the packets that come out of order. A stream that leaves slow start may have many: the mean is a long one.
    out_of_order: f64,
    samples: VecDeque<IntervalSample>,
    /// Whether anything was lost since the last change.
    has_lost: bool,
}

/// The mean of several intervals.
#[derive(Debug, Clone, Copy)]
pub(super) struct IntervalMean {
    /// How many there were.
    pub(super) intervals: usize,
    /// Bits per second.
    pub(super) goodput: f64,
    /// The standard error of the goodput, relative to it.
    pub(super) error: f64,
    /// The queue over the BDP: the median, for clumps make some intervals' look long,
    queue: f64,
    /// the least of the latest,
    latest: f64,
    /// the least: what always stands,
    standing: f64,
    /// and the longest.
    longest: f64,
    /// The share of the intervals in which packets were lost.
    loss: f64,
    /// The share of the packets that come out of order, whatever the number of streams was.
    out_of_order: f64,
    held_back: f64,
}

impl IntervalStatistics {
    pub(super) fn push(&mut self, seen: &Interval, now: Duration) {
        let rtt = seen.rtt.get();
        let waits = seen.data_rtt.map_or(Duration::ZERO, |data| data.get().saturating_sub(rtt));
        let queue = waits.as_secs_f64() / rtt.as_secs_f64().max(1e-6);
        // The first interval's length is not known.
        if let Some(last) = self.last.replace(now) {
            let packets = seen.goodput.bytes_in(now.saturating_sub(last)).get() as f64 / SEGMENT.get() as f64;
            let out_of_order = (seen.out_of_order as f64 / packets.max(1.0)).min(1.0);
            self.out_of_order += (out_of_order - self.out_of_order) / KEPT as f64;
        }
        self.has_lost |= seen.out_of_order >= LOST;
        if self.samples.len() == KEPT {
            self.samples.pop_front();
        }
        self.samples.push_back(IntervalSample {
            at: now,
            goodput: seen.goodput.as_bits_per_sec() as f64,
            queue: if waits >= LEAST_QUEUE && queue >= QUEUE { queue } else { 0.0 },
            lost: seen.out_of_order >= LOST,
            held_back: seen.held_back,
        });
    }

    /// Forgets what was seen.
    pub(super) fn clear(&mut self) {
        self.samples.clear();
        self.has_lost = false;
    }

    /// Forgets what was seen before the last so many intervals.
    pub(super) fn keep_last(&mut self, intervals: usize) {
        let old = self.samples.len().saturating_sub(intervals);
        self.samples.drain(..old);
    }

    /// Returns the mean of the last `most` intervals of those that ended after `since`; none if nothing arrived in them.
    ///
    /// Intervals in which we held the streams back do not count, unless they are many.
    pub(super) fn view(&self, since: Duration, most: usize) -> Option<IntervalMean> {
        let recent: Vec<_> =
            self.samples.iter().rev().take_while(|s| s.at > since).take(most).copied().collect();
        let held_back = share(&recent, |s| s.held_back);
        let counted: Vec<_> =
            recent.iter().filter(|s| held_back >= HELD_BACK || !s.held_back).copied().collect();
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
            standing: queues.first().copied().unwrap_or(0.0),
            queue: queues.get((queues.len() - 1) / 2).copied().unwrap_or(0.0),
            latest: counted.iter().take(LATEST).map(|s| s.queue).fold(f64::INFINITY, f64::min),
            longest: queues.last().copied().unwrap_or(0.0),
            loss: share(&counted, |s| s.lost),
            out_of_order: self.out_of_order,
            held_back,
        })
    }

    /// Says whether goodput has stopped growing: ramp-up is over.
    ///
    /// Windows that were cut in it grow by a packet in each round trip: where something was lost, it takes longer to tell.
    pub(super) fn is_level(&self) -> bool {
        let (intervals, most) = if self.has_lost { (SLOWLY, SLOW_GROWTH) } else { (FAST, GROWTH) };
        self.growth(intervals).is_some_and(|growth| growth < most)
    }

    /// Says whether goodput still grows from so many intervals to as many after them.
    pub(super) fn is_growing(&self, intervals: usize) -> bool {
        self.growth(intervals).is_none_or(|growth| growth > STANDS)
    }

    /// Returns what the last so many intervals brought over what as many before them did.
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

    /// Says whether data waits in a queue: the path is full.
    pub(super) fn has_queue(&self) -> bool {
        self.queue > 0.0
    }

    /// Says whether the path was never full.
    pub(super) fn was_never_full(&self) -> bool {
        self.longest == 0.0 && !self.is_losing_much()
    }

    /// Says whether data waits in a queue now, if not for long: the path has just become full.
    pub(super) fn is_filling(&self) -> bool {
        self.latest > 0.0
    }

    /// Says whether something is lost again and again.
    pub(super) fn is_losing(&self) -> bool {
        self.loss >= PERSISTENT
    }

    /// Says whether so much is lost that accidents do not explain it.
    pub(super) fn is_losing_much(&self) -> bool {
        self.out_of_order > MUCH
    }

    /// Returns how many streams may be at the losses that are seen, so that one recovers from a loss at a time, on average.
    ///
    /// A stream with a window of W packets has W of them out of order until one that was lost has come again, and loses
    /// one in 2 W^2 / 3 (Reno): n streams, of which each has the share x out of order, have n x = 1.5 n / W losses in a
    /// round trip. A single stream answers one in a round trip. Few losses without any queue may be accidents, which no
    /// number of streams avoids.
    pub(super) fn bearable(&self) -> usize {
        if self.is_losing_much() || self.longest > 0.0 {
            (1.0 / self.out_of_order) as usize
        } else {
            usize::MAX
        }
    }

    /// Says whether our disk, a limit or the CPU is what holds the streams.
    pub(super) fn is_held_back(&self) -> bool {
        self.held_back >= HELD_BACK
    }

    /// Returns how many of `streams` only fill the queue.
    ///
    /// In flight are (1 + standing queue) BDPs, of which the path needs one; a fifth of the rest stays for safety.
    pub(super) fn spare(&self, streams: usize) -> usize {
        (streams as f64 * 0.8 * self.standing / (1.0 + self.standing)) as usize
    }
}

fn share(samples: &[IntervalSample], is: impl Fn(&IntervalSample) -> bool) -> f64 {
    samples.iter().filter(|s| is(s)).count() as f64 / samples.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Bytes, Rtt};

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn interval(mbit: u64) -> Interval {
        Interval {
            goodput: Rate::bits_per_sec(mbit * 1_000_000),
            rtt: Rtt::new(MS(100)),
            data_rtt: Some(Rtt::new(MS(101))),
            streams: 1,
            out_of_order: 0,
            left: Bytes::gib(1),
            held_back: false,
        }
    }

    fn meter(intervals: &[Interval]) -> IntervalStatistics {
        let mut meter = IntervalStatistics::default();
        for (seen, at) in intervals.iter().zip(1..) {
            meter.push(seen, MS(100 * at));
        }
        meter
    }

    #[test]
    fn the_mean_tells_how_certain_it_is() {
        let meter = meter(&[50, 90, 110, 100].map(interval));
        let view = meter.view(MS(100), 9).unwrap();
        assert_eq!((view.intervals, view.rate()), (3, Rate::bits_per_sec(100_000_000)));
        // A deviation of 10 Mbit/s over the root of three.
        assert!((view.error - 0.0577).abs() < 0.001, "{}", view.error);
        assert_eq!(meter.view(MS(100), 1).map(|view| view.goodput), Some(100e6));
        assert!(meter.view(MS(400), 9).is_none() && self::meter(&[interval(0)]).view(MS(0), 9).is_none());
    }

    #[test]
    fn ramp_up_is_over_when_two_intervals_bring_no_more_than_the_two_before() {
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
    fn a_queue_is_what_most_intervals_see() {
        let waits = |ms| Interval { data_rtt: Some(Rtt::new(MS(100 + ms))), ..interval(100) };
        let queue =
            |ms: &[u64]| meter(&ms.iter().map(|&ms| waits(ms)).collect::<Vec<_>>()).view(MS(0), 9).unwrap();
        assert!(!queue(&[2, 4, 3, 50]).has_queue());
        let view = queue(&[60, 0, 60, 60]);
        assert!(view.has_queue() && view.spare(20) == 0);
        let view = queue(&[90, 60, 60, 60]);
        // 20 streams have 1.6 BDPs in flight: 12.5 of them are needed, and a fifth of the others stay.
        assert_eq!((view.spare(20), view.spare(1)), (5, 0));
    }

    #[test]
    fn losses_persist_when_they_come_again_and_again() {
        let lost = |packets| Interval { out_of_order: packets, ..interval(100) };
        assert!(meter(&[0, 40, 0].map(lost)).view(MS(0), 9).unwrap().is_losing());
        assert!(!meter(&[0, 40, 0, 0].map(lost)).view(MS(0), 9).unwrap().is_losing());
        assert!(!meter(&[2, 1, 2].map(lost)).view(MS(0), 9).unwrap().is_losing());
    }

    #[test]
    fn where_windows_were_cut_slow_growth_is_waited_for() {
        let grown = |mbit: [u64; 8], lost| {
            let seen = mbit.map(|mbit| Interval { out_of_order: lost, ..interval(mbit) });
            meter(&seen).is_level()
        };
        let slowly = [50, 52, 54, 56, 58, 60, 62, 64];
        assert!(grown(slowly, 0) && !grown(slowly, 9));
        assert!(grown([97; 8], 9) && !meter(&[interval(97); 8]).is_growing(SLOWLY));
    }

    #[test]
    fn many_losses_tell_how_many_streams_are_bearable() {
        // 864 packets in an interval of 100 ms at 100 Mbit/s.
        let after = |packets, waits: u64| {
            let data_rtt = Some(Rtt::new(MS(100 + waits)));
            let seen = Interval { out_of_order: packets, data_rtt, ..interval(100) };
            meter(&[seen; 200]).view(MS(0), 8).unwrap().bearable()
        };
        assert_eq!([after(172, 0), after(87, 0)], [5, 9]);
        // Few may be accidents, but not where there is a queue; and none leave room for any number.
        assert_eq!([after(43, 0), after(43, 10), after(0, 10)], [usize::MAX, 20, usize::MAX]);
    }

    #[test]
    fn a_pause_of_ours_does_not_count_but_a_slow_disk_does() {
        let held = |mbit| Interval { held_back: true, ..interval(mbit) };
        let paused = meter(&[interval(100), interval(100), held(3), interval(100), interval(100)])
            .view(MS(0), 9)
            .unwrap();
        assert!(!paused.is_held_back() && paused.intervals == 4 && paused.goodput == 100e6);
        let slow = meter(&[held(50), interval(60), held(40)]).view(MS(0), 9).unwrap();
        assert!(slow.is_held_back() && slow.intervals == 3 && slow.goodput == 50e6);
    }
}
