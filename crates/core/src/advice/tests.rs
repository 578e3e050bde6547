//! Each cause planted alone, and mixtures, in virtual time.

mod finding;
mod host;
mod loss;
mod path;
mod receiver;
mod sender;

use std::time::Duration;

use super::*;
use crate::units::{Bytes, Rate, Rtt};

const TICK: Duration = Duration::from_millis(100);

/// A simulated transfer, whose readings change from tick to tick.
struct Course {
    attribution: Attribution,
    now: Duration,
    reading: Reading,
}

impl Course {
    fn at(end: End, rtt_ms: u64) -> Self {
        let rtt = Some(Rtt::new(Duration::from_millis(rtt_ms)));
        let window = Some(Bytes::mib(600));
        let reading = Reading { streams: 1, min_rtt: rtt, data_rtt: rtt, window, ..Reading::default() };
        Self { attribution: Attribution::new(end), now: Duration::ZERO, reading }
    }

    /// Continues for `seconds` at `mbit` Mbit/s; `change` changes each reading.
    fn run(mut self, seconds: f64, mbit: f64, mut change: impl FnMut(&mut Reading)) -> Self {
        for _ in 0..(seconds * 10.0).round() as u64 {
            self.now += TICK;
            self.reading.moved += Rate::bits_per_sec((mbit * 1e6) as u64).bytes_in(TICK);
            change(&mut self.reading);
            self.attribution.observe(self.now, &self.reading);
        }
        self
    }

    /// Doubles the rate each round trip until it reaches `mbit` Mbit/s.
    fn slow_start(mut self, mbit: f64) -> Self {
        let rtt = self.reading.min_rtt.unwrap_or_default().get().as_secs_f64().max(0.1);
        let mut rate = 2.0;
        while rate < mbit {
            self = self.run(rtt, rate, |_| ());
            rate *= 2.0;
        }
        self
    }

    fn finding(mut self) -> Finding {
        self.attribution.end();
        self.attribution.finding(&KnownLimits::default())
    }
}

fn queue(reading: &mut Reading, ms: u64) {
    reading.data_rtt = reading.min_rtt.map(|rtt| Rtt::new(rtt.get() + Duration::from_millis(ms)));
}

fn threads(reading: &mut Reading) -> &mut ThreadTimes {
    reading.threads.get_or_insert_default()
}

fn sender(reading: &mut Reading) -> &mut SenderTimes {
    reading.sender.get_or_insert_default()
}

#[track_caller]
fn assert_limit(finding: &Finding, limit: LimitedBy, least: f64) {
    assert_eq!(finding.limit, limit, "{finding:?}");
    assert!(finding.shares.get(limit) >= least, "{finding:?}");
    assert!(finding.advice[0].contains(" % of the time: "), "{finding:?}");
}
