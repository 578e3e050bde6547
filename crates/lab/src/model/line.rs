//! The bottleneck's line: a fixed rate, rates by schedule, or a trace of delivery opportunities.

use std::sync::Arc;
use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};

use super::Time;

/// Bytes per delivery opportunity of a trace (mahimahi).
const OPPORTUNITY: u64 = 1500;

/// Computes the end of transmission of consecutive packets.
#[derive(Debug)]
pub struct Line {
    pace: LinePace,
    /// End of the last transmission.
    out: Time,
    /// Fraction of a nanosecond by which `out` is too early, in units of 1 / rate.
    fraction: u64,
}

#[derive(Debug)]
enum LinePace {
    /// Bits per second.
    Fixed(u64),
    Steps(Steps),
    Trace(Trace),
}

#[derive(Debug)]
struct Steps {
    /// Start of each step since the first packet, and its rate in bits per second; sorted by time.
    steps: Vec<(Duration, u64)>,
    begun: Option<Time>,
}

#[derive(Debug)]
struct Trace {
    /// Times of opportunities in milliseconds, sorted; the last is the period.
    millis: Arc<[u32]>,
    begun: Option<Time>,
    /// Opportunities used, and unused bytes of the last one.
    used: u64,
    left: u64,
}

impl Line {
    /// Creates a line of `rate`, at least 1 bit/s.
    pub fn fixed(rate: Rate) -> Self {
        Self::new(LinePace::Fixed(rate.as_bits_per_sec().max(1)))
    }

    /// Creates a line with the rates of `steps`, each from its time on since the first packet. A
    /// rate may be 0, except the last, which is at least 1 bit/s. The first rate also applies
    /// before its time.
    pub fn steps(mut steps: Vec<(Duration, Rate)>) -> Self {
        steps.sort_by_key(|(from, _)| *from);
        let mut steps: Vec<_> =
            steps.into_iter().map(|(from, rate)| (from, rate.as_bits_per_sec())).collect();
        match steps.last_mut() {
            Some((_, last)) => *last = (*last).max(1),
            None => steps.push((Duration::ZERO, 1)),
        }
        Self::new(LinePace::Steps(Steps { steps, begun: None }))
    }

    /// Creates a line that follows a mahimahi trace (mm-link(1)): at each of `millis` it sends up
    /// to 1500 bytes; after the last time the trace restarts. Times rise, and the last is at least
    /// 1.
    pub fn trace(millis: Arc<[u32]>) -> Self {
        Self::new(LinePace::Trace(Trace { millis, begun: None, used: 0, left: 0 }))
    }

    fn new(pace: LinePace) -> Self {
        Self { pace, out: Time::START, fraction: 0 }
    }

    /// Returns the end of transmission of a packet of `size` bytes that starts at `start`, not
    /// before the previous end.
    pub fn send(&mut self, start: Time, size: Bytes) -> Time {
        if start > self.out {
            (self.out, self.fraction) = (start, 0);
        }
        self.out = match &mut self.pace {
            LinePace::Fixed(bits_per_sec) => {
                // Carries the division's remainder, so that a busy link keeps its exact rate.
                let work = size.get().saturating_mul(8_000_000_000).saturating_add(self.fraction);
                self.fraction = work % *bits_per_sec;
                Time::from_nanos(self.out.as_nanos() + work / *bits_per_sec)
            }
            LinePace::Steps(steps) => steps.send(self.out, size),
            LinePace::Trace(trace) => trace.send(self.out, size),
        };
        self.out
    }
}

impl Steps {
    fn send(&mut self, start: Time, size: Bytes) -> Time {
        const NANOS: u128 = 1_000_000_000;
        let begun = *self.begun.get_or_insert(start);
        let mut now = start.since(begun).as_nanos();
        // Remaining work in bits times nanoseconds per second.
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
            // Unused opportunities are lost.
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

    /// Skips the opportunities before `start`.
    fn skip_to(&mut self, start: Time, begun: Time) {
        let count = self.millis.len() as u64;
        let period = u64::from(self.millis[self.millis.len() - 1]);
        let elapsed = start.since(begun).as_nanos().div_ceil(1_000_000) as u64;
        // A round includes its last millisecond; its opportunities remain usable until then.
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
    use crate::model::tests::micros as at;

    const PACKET: Bytes = Bytes::new(1500);

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    #[test]
    fn packet_in_transmission_continues_at_the_new_rate() {
        let step = |millis, text| (Duration::from_millis(millis), rate(text));
        let mut line =
            Line::steps(vec![step(0, "12Mbit"), step(10, "1.2Mbit"), step(20, "0"), step(30, "12Mbit")]);
        // The first packet starts the clock. Packets take 1 ms, after 10 ms they take 10 ms, then
        // nothing is sent for 10 ms.
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
    fn all_opportunities_of_a_trace_s_last_millisecond_count() {
        let mut line = Line::trace(Arc::from([5, 5, 5]));
        let times: Vec<_> = (0..7).map(|_| line.send(Time::START, PACKET)).collect();
        assert_eq!(times, [5, 5, 5, 10, 10, 10, 15].map(|millis| at(millis * 1000)));
        assert_eq!(line.send(at(20_000), PACKET), at(20_000), "at the end of a round");
        // One or two opportunities per millisecond: 12 and 24 Mbit/s.
        for (trace, millis) in [(&[1][..], 1000), (&[1, 1], 500)] {
            let mut line = Line::trace(Arc::from(trace));
            let last = (0..1000).map(|_| line.send(Time::START, PACKET)).last();
            assert_eq!(last, Some(at(millis * 1000)), "{trace:?}");
        }
        // An opportunity at 0 belongs to the new round.
        let mut line = Line::trace(Arc::from([0, 4]));
        let times: Vec<_> = (0..5).map(|_| line.send(Time::START, PACKET)).collect();
        assert_eq!(times, [0, 4, 4, 8, 8].map(|millis| at(millis * 1000)));
    }
}
