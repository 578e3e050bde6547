//! The number of data connections if every change replaces all of them, as in GridFTP: it only
//! doubles.
//!
//! In MODE E, another number of connections closes the present ones, and all new ones begin with
//! slow start. A trial of fewer connections, or of one more, costs as much as its possible gain.
//! The number therefore doubles while each connection is limited by its window, and remains
//! constant once the goodput has not grown in proportion, or a queue or losses show that the path
//! is full.

use std::time::Duration;

use super::stream_limit::StreamLimit;
use super::streams::{CountTuner, Interval, Remembered, StreamTunerStart, initial_streams};
use crate::units::{Rate, Rtt};

/// The time after a change in which the goodput is ignored, in RTTs and at least this time: slow
/// start takes 10 RTTs to 10 Gbit/s.
const SETTLING: (u32, Duration) = (12, Duration::from_millis(1500));
/// The time over which the goodput is then measured, in RTTs and at least this time.
const MEASURING: (u32, Duration) = (8, Duration::from_secs(1));
/// The least factor of the goodput after doubling the connections: 2 if windows are the limit, 1 if
/// the path is full.
const WORTH: f64 = 1.25;
/// The least standing queue, relative to the RTT and as a time, that shows that the path is full.
const QUEUE: (f64, Duration) = (0.25, Duration::from_millis(5));
/// The share of intervals with packets out of order above which the path is full: single losses
/// have other causes, while a full path without a standing queue (a policer) has losses in most
/// intervals.
const LOSSY: f64 = 0.25;
/// The least remaining time as a multiple of the duration of a trial.
const REMAINING: u32 = 3;

/// Chooses the number of data connections of one transfer.
#[derive(Debug, Clone)]
pub struct Doubling {
    wanted: usize,
    limit: StreamLimit,
    /// The time since which the intended number of connections carries data.
    since: Option<Duration>,
    measured: Measured,
    /// The goodput of half the connections.
    before: Option<Rate>,
    ended: bool,
    concluded: Option<Remembered>,
}

/// The measurements after settling.
#[derive(Debug, Clone, Copy, Default)]
struct Measured {
    /// The times of the first and the last observation.
    time: Option<(Duration, Duration)>,
    goodput: f64,
    intervals: u32,
    held_back: u32,
    queued: u32,
    /// The number of intervals with packets out of order.
    lossy: u32,
}

impl Doubling {
    /// Starts with the number that leaves slow start soonest, or with the remembered number.
    pub fn new(start: &StreamTunerStart) -> Self {
        Self {
            wanted: initial_streams(start),
            limit: StreamLimit::new(start.most),
            since: None,
            measured: Measured::default(),
            before: None,
            ended: false,
            concluded: None,
        }
    }

    fn measure(&mut self, seen: &Interval, now: Duration) {
        let measured = &mut self.measured;
        let began = measured.time.map_or(now, |(began, _)| began);
        measured.time = Some((began, now));
        measured.goodput += seen.goodput.as_bits_per_sec() as f64;
        measured.intervals += 1;
        let (part, least) = QUEUE;
        let full = seen.rtt.get() + seen.rtt.get().mul_f64(part).max(least);
        measured.queued += u32::from(seen.data_rtt.is_some_and(|rtt| rtt.get() > full));
        measured.held_back += u32::from(seen.held_back || seen.is_pressed());
        measured.lossy += u32::from(seen.out_of_order > 0);
    }

    /// Doubles the number if the last doubling has paid off, the path is not full and enough of the
    /// transfer remains.
    fn decide(&mut self, seen: &Interval, now: Duration) {
        let measured = std::mem::take(&mut self.measured);
        let goodput = Rate::bits_per_sec((measured.goodput / f64::from(measured.intervals.max(1))) as u64);
        let half = measured.intervals / 2;
        if measured.held_back <= half {
            let best = self.concluded.map_or(Rate::default(), |concluded| concluded.rate);
            self.concluded =
                Some(Remembered { rtt: seen.rtt, rate: goodput.max(best), streams: self.wanted });
        }
        let has_paid = self
            .before
            .is_none_or(|before| goodput.as_bits_per_sec() as f64 >= before.as_bits_per_sec() as f64 * WORTH);
        let is_lossy = f64::from(measured.lossy) > f64::from(measured.intervals) * LOSSY;
        let is_full = measured.queued > half || is_lossy;
        if self.ended || !has_paid || is_full || measured.held_back > half {
            // If this host is the limit, the measurement may be repeated later; all other results
            // are final.
            self.ended |= !has_paid || is_full;
            return;
        }
        let trial = time(SETTLING, seen.rtt) + time(MEASURING, seen.rtt);
        let wanted = (self.wanted * 2).min(self.limit.at(now));
        if wanted > self.wanted && seen.left > goodput.bytes_in(trial.saturating_mul(REMAINING)) {
            (self.before, self.wanted, self.since) = (Some(goodput), wanted, None);
        }
    }
}

impl CountTuner for Doubling {
    fn streams(&self) -> usize {
        self.wanted
    }

    fn conclusion(&self) -> Option<Remembered> {
        self.concluded
    }

    fn refused(&mut self, open: usize, wait: Option<Duration>, now: Duration) {
        self.limit.refused(open, wait, now);
        self.ended = true;
    }

    /// A lowered cap closes connections, whatever the restart of the others costs.
    fn set_cap(&mut self, cap: usize, _now: Duration) {
        let cap = cap.max(1);
        self.limit.set_cap(cap);
        if cap < self.wanted {
            (self.wanted, self.since, self.before) = (cap, None, None);
            self.measured = Measured::default();
        }
    }

    /// Returns the number from the next chunk on.
    fn observe(&mut self, seen: &Interval, now: Duration) -> usize {
        if seen.streams < self.wanted && self.since.is_none() {
            return self.wanted;
        }
        let since = *self.since.get_or_insert(now);
        if now < since.saturating_add(time(SETTLING, seen.rtt)) {
            return self.wanted;
        }
        self.measure(seen, now);
        let began = self.measured.time.map_or(now, |(began, _)| began);
        if now.saturating_sub(began) < time(MEASURING, seen.rtt) {
            return self.wanted;
        }
        self.decide(seen, now);
        self.wanted
    }
}

/// Returns `number` RTTs, at least `least`.
fn time((number, least): (u32, Duration), rtt: Rtt) -> Duration {
    rtt.get().saturating_mul(number).max(least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    const RTT: Rtt = Rtt::new(Duration::from_millis(100));

    /// Runs a transfer of `left` bytes over a path of rate `line` that gives each connection at
    /// most `each`.
    fn run(each: Rate, line: Rate, mut left: Bytes, first: usize) -> Doubling {
        let mut tuner = Doubling {
            wanted: first,
            ..started(left, Some(Remembered { rtt: RTT, rate: line, streams: first }))
        };
        let mut now = Duration::ZERO;
        while left > Bytes::ZERO && now < Duration::from_secs(600) {
            now += RTT.get();
            let wanted = each.scaled(tuner.streams() as f64);
            let goodput = wanted.min(line);
            left = left - goodput.bytes_in(RTT.get());
            let data_rtt = Some(Rtt::new(RTT.get() * if wanted > line { 2 } else { 1 }));
            tuner.observe(&Interval { left, data_rtt, ..Interval::free(goodput, RTT, tuner.streams()) }, now);
        }
        tuner
    }

    fn started(left: Bytes, remembered: Option<Remembered>) -> Doubling {
        let start = StreamTunerStart { rtt: RTT, left, most: 128, remembered, bound: None };
        Doubling::new(&start)
    }

    #[test]
    fn number_doubles_until_the_path_is_full_or_the_end_is_near() {
        let line = Rate::mbit(1000);
        let tuner = run(Rate::mbit(100), line, Bytes::gib(8), 2);
        let found = tuner.conclusion().unwrap();
        assert_eq!((tuner.streams(), found.streams, found.rate), (16, 16, line));
        // A connection that fills the path stays alone.
        assert_eq!(run(Rate::mbit(2000), line, Bytes::gib(8), 1).streams(), 1);
        assert_eq!(run(Rate::mbit(100), line, Bytes::mib(64), 2).streams(), 2);
    }

    #[test]
    fn trial_without_a_gain_is_not_repeated_and_a_refusal_ends_doubling() {
        // The path is full without a visible queue, as with a policer.
        let mut tuner = Doubling { wanted: 4, ..started(Bytes::gib(99), None) };
        let most = (1..3000).map(|step| {
            let seen = Interval::free(Rate::mbit(500), RTT, tuner.streams());
            tuner.observe(&seen, RTT.get() * step)
        });
        assert_eq!(most.max(), Some(8));
        let mut tuner = started(Bytes::gib(99), None);
        let first = tuner.streams();
        tuner.refused(3, None, Duration::from_secs(1));
        let seen = Interval::free(Rate::mbit(500), RTT, first);
        assert!((2..500).all(|step| tuner.observe(&seen, RTT.get() * step) == first));
        tuner.set_cap(2, Duration::ZERO);
        assert_eq!(tuner.streams(), 2);
    }

    #[test]
    fn only_recurring_losses_end_doubling() {
        for (lossy_every, most) in [(10_000, 128), (7, 128), (2, 4)] {
            let mut tuner = Doubling { wanted: 4, ..started(Bytes::gib(99), None) };
            for step in 1..3000_u32 {
                let goodput = Rate::mbit(100 * tuner.streams() as u64);
                // One loss is within the first measurement in any case.
                let out_of_order = u64::from(step == 20 || step % lossy_every == 0);
                let seen = Interval { out_of_order, ..Interval::free(goodput, RTT, tuner.streams()) };
                tuner.observe(&seen, RTT.get() * step);
            }
            assert_eq!(tuner.streams(), most, "a loss in every interval of {lossy_every}");
        }
    }
}
