//! Each cause planted alone, and mixtures, in virtual time.

mod finding;
mod host;
mod loss;
mod network;
mod sender;

use std::time::Duration;

use super::LimitedBy::*;
use super::*;
use crate::pace::Pace;
use crate::telemetry::SenderTimes;
use crate::units::{Bytes, Rate, Rtt};

const TICK: Duration = Duration::from_millis(100);

/// A simulated transfer, whose readings change from tick to tick.
struct Course {
    attribution: Attribution,
    now: Duration,
    reading: Reading,
    covered: Duration,
}

fn receiving(rtt_ms: u64) -> Course {
    Course::at(End::Receiver, Duration::from_millis(rtt_ms))
}

fn sending(rtt_ms: u64) -> Course {
    Course::at(End::Sender, Duration::from_millis(rtt_ms))
}

impl Course {
    fn at(end: End, rtt: Duration) -> Self {
        let (rtt, window) = (Some(Rtt::new(rtt)), Some(Bytes::mib(600)));
        let path = PathReading { min_rtt: rtt, data_rtt: rtt, in_flight: None };
        let reading = Reading { streams: 1, path, window, ..Reading::default() };
        Self { attribution: Attribution::new(end), now: Duration::ZERO, reading, covered: Duration::ZERO }
    }

    /// Changes what later readings begin with.
    fn but(mut self, change: impl FnOnce(&mut Reading)) -> Self {
        change(&mut self.reading);
        self
    }

    /// Continues for `seconds` at `mbit` Mbit/s; `change` changes each reading.
    fn run(mut self, seconds: f64, mbit: f64, mut change: impl FnMut(&mut Reading)) -> Self {
        for _ in 0..(seconds * 10.0).round() as u64 {
            self.now += TICK;
            self.reading.moved += Rate::bits_per_sec((mbit * 1e6) as u64).bytes_in(TICK);
            self.reading.packets.arrived = self.reading.moved.get() / 1448;
            change(&mut self.reading);
            if let Some(span) = self.attribution.observe(self.now, &self.reading) {
                assert!(span.from == self.covered && span.to - span.from >= self.rtt().max(TICK), "{span:?}");
                self.covered = span.to;
            }
        }
        self
    }

    /// Continues without another change.
    fn go(self, seconds: f64, mbit: f64) -> Self {
        self.run(seconds, mbit, |_| ())
    }

    fn rtt(&self) -> Duration {
        self.reading.path.min_rtt.unwrap_or_default().get()
    }

    /// Doubles the rate each round trip until it reaches `mbit` Mbit/s.
    fn slow_start(mut self, mbit: f64) -> Self {
        let rtt = self.rtt().as_secs_f64().max(0.1);
        let mut rate = 2.0;
        while rate < mbit {
            self = self.go(rtt, rate);
            rate *= 2.0;
        }
        self
    }

    fn finding(mut self) -> Finding {
        self.attribution.end();
        assert_eq!(self.attribution.end(), None, "nothing is left");
        self.attribution.finding(&KnownLimits::default())
    }

    /// Asserts what limits the transfer, for at least a share of its time.
    #[track_caller]
    fn assert_limit(self, limit: LimitedBy, least: f64) -> Finding {
        let finding = self.finding();
        assert_limit(&finding, limit, least);
        finding
    }
}

fn queue(ms: u64) -> impl Fn(&mut Reading) {
    move |reading| {
        reading.path.data_rtt =
            reading.path.min_rtt.map(|rtt| Rtt::new(rtt.get() + Duration::from_millis(ms)))
    }
}

fn threads(reading: &mut Reading) -> &mut ThreadTimes {
    reading.threads.get_or_insert_default()
}

/// Notes that this program moves the data.
fn own(reading: &mut Reading) {
    threads(reading);
}

fn sender(reading: &mut Reading) -> &mut SenderTimes {
    reading.sender.times.get_or_insert_default()
}

#[track_caller]
fn assert_limit(finding: &Finding, limit: LimitedBy, least: f64) {
    assert_eq!(finding.limit, limit, "{finding:?}");
    assert!(finding.shares.get(limit) >= least, "{finding:?}");
    assert!(finding.advice[0].contains(" % of the time: "), "{finding:?}");
    let all: Duration = finding.witnesses.iter().map(|part| part.time).sum();
    let of_limit = finding.witnesses.iter().filter(|part| part.limit == limit);
    let shown = of_limit.map(|part| part.time).sum::<Duration>().div_duration_f64(all);
    assert!((shown - finding.shares.get(limit)).abs() < 1e-5, "{finding:?}");
}

/// Asserts that a line of the advice contains these words.
#[track_caller]
fn assert_advice(finding: &Finding, line: usize, words: &str) {
    assert!(finding.advice[line].contains(words), "{words}: {finding:?}");
}
