//! How fast the bottleneck sends: at a fixed rate, at rates that change by a schedule, or by a trace of opportunities.

use std::sync::Arc;
use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};

use super::Time;

/// Bytes that one opportunity of a trace carries: mahimahi's packet.
const OPPORTUNITY: u64 = 1500;

/// When packets that start one after the other are out.
#[derive(Debug)]
pub struct Line {
    pace: Pace,
    /// When the last packet is out.
    out: Time,
    /// The part of a nanosecond, in units of 1 / rate, by which `out` is too early.
    fraction: u64,
}

#[derive(Debug)]
enum Pace {
    /// Bits per second.
    Fixed(u64),
    Steps(Steps),
    Trace(Trace),
}

#[derive(Debug)]
struct Steps {
    /// From when, since the first packet, which rate in bits per second holds. In order of time.
    steps: Vec<(Duration, u64)>,
    begun: Option<Time>,
}

#[derive(Debug)]
struct Trace {
    /// The times of opportunities in milliseconds, in order; the last is the period.
    millis: Arc<[u32]>,
    begun: Option<Time>,
    /// Opportunities used so far, and the bytes left of the last.
    used: u64,
    left: u64,
}

impl Line {
    /// Makes a line of `rate`, at least 1 bit/s.
    pub fn fixed(rate: Rate) -> Self {
        Self::new(Pace::Fixed(rate.as_bits_per_sec().max(1)))
    }

    /// Makes a line whose rate is each of `steps` from its time on, counted from the first packet; a rate may be 0, but not the
    /// last one (it is taken as 1 bit/s). Before the first step its rate holds, too.
    pub fn steps(mut steps: Vec<(Duration, Rate)>) -> Self {
        steps.sort_by_key(|(from, _)| *from);
        let mut steps: Vec<_> =
            steps.into_iter().map(|(from, rate)| (from, rate.as_bits_per_sec())).collect();
        match steps.last_mut() {
            Some((_, last)) => *last = (*last).max(1),
            None => steps.push((Duration::ZERO, 1)),
        }
        Self::new(Pace::Steps(Steps { steps, begun: None }))
    }

    /// Makes a line that follows a trace of mahimahi (mm-link(1)): at each of `millis` it sends 1500 bytes, or fewer where
    /// fewer wait; after the last time the trace starts over. Times rise, and the last is at least 1.
    pub fn trace(millis: Arc<[u32]>) -> Self {
        Self::new(Pace::Trace(Trace { millis, begun: None, used: 0, left: 0 }))
    }

    fn new(pace: Pace) -> Self {
        Self { pace, out: Time::START, fraction: 0 }
    }

    /// Returns when a packet of `size` bytes that starts at `start`, not before the last is out, is out itself.
    pub fn send(&mut self, start: Time, size: Bytes) -> Time {
        if start > self.out {
            (self.out, self.fraction) = (start, 0);
        }
        self.out = match &mut self.pace {
            Pace::Fixed(bits_per_sec) => {
                // Exact: what division leaves over is carried, so that a busy link never runs fast or slow.
                let work = size.get().saturating_mul(8_000_000_000).saturating_add(self.fraction);
                self.fraction = work % *bits_per_sec;
                Time::from_nanos(self.out.as_nanos() + work / *bits_per_sec)
            }
            Pace::Steps(steps) => steps.send(self.out, size),
            Pace::Trace(trace) => trace.send(self.out, size),
        };
        self.out
    }
}

impl Steps {
    fn send(&mut self, start: Time, size: Bytes) -> Time {
        const NANOS: u128 = 1_000_000_000;
        let begun = *self.begun.get_or_insert(start);
        let mut now = start.since(begun).as_nanos();
        // In bits times nanoseconds per second.
        let mut work = u128::from(size.get()) * 8 * NANOS;
        let mut step = self.steps.partition_point(|(from, _)| from.as_nanos() <= now).saturating_sub(1);
        while let Some((end, _)) = self.steps.get(step + 1) {
            let rate = u128::from(self.steps[step].1);
            let within = (end.as_nanos() - now) * rate;
            if work <= within {
                break;
            }
            work -= within;
            now = end.as_nanos();
            step += 1;
        }
        let rate = u128::from(self.steps[step].1).max(1);
        let nanos = now + work.div_ceil(rate);
        begun + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Trace {
    fn send(&mut self, start: Time, size: Bytes) -> Time {
        let begun = *self.begun.get_or_insert(start);
        let mut last = start;
        let mut rest = size.get();
        if self.used > 0 && self.time(self.used - 1, begun) < start {
            // Opportunities at which nothing waited are lost.
            self.left = 0;
        }
        while rest > self.left {
            rest -= self.left;
            self.skip_to(start, begun);
            last = self.time(self.used, begun);
            self.used += 1;
            self.left = OPPORTUNITY;
        }
        self.left -= rest;
        last.max(start)
    }

    /// Passes over the opportunities before `start`.
    fn skip_to(&mut self, start: Time, begun: Time) {
        let count = self.millis.len() as u64;
        let period = u64::from(self.millis[self.millis.len() - 1]);
        let elapsed = start.since(begun).as_nanos().div_ceil(1_000_000) as u64;
        // A round holds its last millisecond, and none of its opportunities are passed over before that is.
        let (round, within) = match elapsed.checked_sub(1) {
            Some(before) => (before / period, before % period + 1),
            None => (0, 0),
        };
        let before = self.millis.partition_point(|millis| u64::from(*millis) < within) as u64;
        self.used = self.used.max(round * count + before);
    }

    fn time(&self, index: u64, begun: Time) -> Time {
        let count = self.millis.len() as u64;
        let period = u64::from(self.millis[self.millis.len() - 1]);
        let millis = index / count * period + u64::from(self.millis[(index % count) as usize]);
        begun + Duration::from_millis(millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: Bytes = Bytes::new(1500);

    fn at(micros: u64) -> Time {
        Time::from_nanos(micros * 1000)
    }

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    #[test]
    fn a_packet_under_way_when_the_rate_changes_goes_on_at_the_new_one() {
        let step = |millis, text| (Duration::from_millis(millis), rate(text));
        let mut line =
            Line::steps(vec![step(0, "12Mbit"), step(10, "1.2Mbit"), step(20, "0"), step(30, "12Mbit")]);
        // The first starts the clock: a packet takes 1 ms, from 10 ms on 10 ms, then nothing for 10 ms.
        assert_eq!(line.send(at(500), PACKET), at(1500));
        assert_eq!(line.send(at(10_000), PACKET), at(15_500), "half in 0.5 ms, half at a tenth of the rate");
        assert_eq!(line.send(at(15_500), PACKET), at(31_000), "half until 20.5 ms, half from 30.5 ms on");
        assert_eq!(line.send(at(31_000), PACKET), at(32_000));
    }

    #[test]
    fn a_trace_sends_1500_bytes_an_opportunity_and_starts_over() {
        let mut line = Line::trace(Arc::from([2, 2, 5, 10]));
        let mut next = |start, size| line.send(at(start), Bytes::new(size)).as_nanos() / 1_000_000;
        assert_eq!([next(0, 1500), next(0, 1500), next(0, 1500), next(0, 1500)], [2, 2, 5, 10]);
        assert_eq!([next(0, 750), next(0, 750), next(0, 1), next(0, 1500)], [12, 12, 12, 15]);
        assert_eq!(next(16_000, 100), 20, "what was left of 15 ms is lost");
        assert_eq!(next(1_000_500, 3000), 1002, "both opportunities at 2 ms");
    }

    #[test]
    fn a_trace_of_a_constant_rate_is_that_rate() {
        // 12 Mbit/s: an opportunity each millisecond.
        let mut line = Line::trace(Arc::from([1]));
        let last = (0..1000).map(|_| line.send(Time::START, PACKET)).last();
        assert_eq!(last, Some(Time::from_nanos(1_000_000_000)));
    }

    #[test]
    fn all_opportunities_of_a_trace_s_last_millisecond_count() {
        let mut line = Line::trace(Arc::from([5, 5, 5]));
        let times: Vec<_> = (0..7).map(|_| line.send(Time::START, PACKET)).collect();
        assert_eq!(times, [5, 5, 5, 10, 10, 10, 15].map(|millis| at(millis * 1000)));
        assert_eq!(line.send(at(20_000), PACKET), at(20_000), "at the end of a round");
        // 24 Mbit/s: two opportunities each millisecond.
        let mut line = Line::trace(Arc::from([1, 1]));
        let last = (0..1000).map(|_| line.send(Time::START, PACKET)).last();
        assert_eq!(last, Some(at(500_000)));
        // An opportunity at 0 belongs to the round that begins.
        let mut line = Line::trace(Arc::from([0, 4]));
        let times: Vec<_> = (0..5).map(|_| line.send(Time::START, PACKET)).collect();
        assert_eq!(times, [0, 4, 4, 8, 8].map(|millis| at(millis * 1000)));
    }
}
