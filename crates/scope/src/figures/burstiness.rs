//! Burstiness of a flow: peak over mean of the 1 ms averages.

use crate::record::Record;

use super::curves;
use super::flow::{Counter, Span};
use super::moving_average::{NARROW, WIDE, moving_average, peak, quantile, resolved_share, resolves};

/// A flow is steady once its average over 1 s reaches this share of the maximum.
const REACHED: f64 = 0.9;
/// Seconds at the end that are not steady: buffers drain.
const ENDING: f64 = 1.0;
/// The minimum of steady time, in seconds.
const SHORTEST: f64 = 0.1;

/// The quantile of [`Burstiness::p99`].
const P99: f64 = 0.99;

/// The steady part of a flow, in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Burstiness {
    /// Mean rate on the wire.
    pub(super) mean: f64,
    /// Mean rate that the application read or the peer acknowledged.
    pub(super) goodput: f64,
    /// The largest average over 1 ms; `None` if samples are too far apart.
    pub(super) peak: Option<f64>,
    /// The 99 % quantile of the averages over 1 ms; `None` if samples are too far apart.
    pub(super) p99: Option<f64>,
    /// The share of the steady time with samples close enough for averages over 1 ms; elsewhere the
    /// peak may have been higher.
    pub(super) seen: f64,
}

impl Burstiness {
    /// Measures a record; `None` if its steady time is too short.
    pub(super) fn of(record: &Record) -> Option<Self> {
        let coarse = curves::wire(record, WIDE);
        let steady = steady(&coarse)?;
        let fine = curves::wire(record, NARROW);
        let is_fine = fine.growing().is_some() && resolves(&fine, NARROW).is_ok();
        Some(Self {
            mean: coarse.rate(steady),
            goodput: Counter::moved(record).rate(steady),
            peak: is_fine.then(|| peak(&fine, NARROW, steady)).flatten(),
            p99: is_fine.then(|| quantile(&fine, NARROW, steady, P99)).flatten(),
            seen: resolved_share(&fine, NARROW, steady),
        })
    }

    /// Returns peak over mean: 1 is perfectly even.
    pub(super) fn ratio(&self) -> Option<f64> {
        self.peak.map(|peak| peak / self.mean).filter(|ratio| ratio.is_finite())
    }
}

/// Returns the steady time: from the first 90 % of the largest average over 1 s to 1 s before the
/// end.
fn steady(counter: &Counter) -> Option<Span> {
    let averages = moving_average(counter, WIDE);
    let largest = averages.iter().map(|(_, average)| *average).max_by(f64::total_cmp)?;
    let (from, _) = averages.into_iter().find(|(_, average)| *average >= REACHED * largest)?;
    let to = counter.growing()?.1 - ENDING;
    (to - from >= SHORTEST).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use longhaul_core::units::Bytes;

    use super::*;
    use crate::figures::test_record;

    /// 10 s at 100 MB/s after the first second; `shape` adds bytes.
    fn record(interval: f64, shape: impl Fn(f64) -> f64) -> Record {
        test_record::every(interval, 10.0, |at| {
            let mut sample = test_record::moved((at - 1.0).max(0.0) * 1e8);
            sample.sockets.counters.received = sample.moved + Bytes::new(shape(at) as u64);
            sample
        })
    }

    #[test]
    fn only_bursts_of_the_steady_part_count() {
        let even = Burstiness::of(&record(0.001, |_| 0.0)).unwrap();
        assert!((even.ratio().unwrap() - 1.0).abs() < 0.001 && even.seen > 0.99, "{even:?}");
        assert!((even.mean - 1e8).abs() < 1e4 && (even.goodput - 1e8).abs() < 1e4, "{even:?}");
        for (when, expected) in [(5.0, 3.0), (1.2, 1.0), (9.5, 1.0)] {
            let burst = |at: f64| if at >= when { 200_000.0 } else { 0.0 };
            let once = Burstiness::of(&record(0.001, burst)).unwrap();
            assert!((once.ratio().unwrap() - expected).abs() < 0.01 * expected, "{when} s: {once:?}");
            assert!((once.p99.unwrap() - 1e8).abs() < 1e5, "{once:?}");
        }
    }

    #[test]
    fn unresolved_peaks_are_omitted() {
        let seldom = Burstiness::of(&record(0.01, |_| 0.0)).unwrap();
        assert_eq!((seldom.peak, seldom.p99, seldom.ratio(), seldom.seen), (None, None, None, 0.0));
        assert!((seldom.mean - 1e8).abs() < 1e5);
        let of = |seconds: f64| {
            let moved = |at: f64| test_record::moved(at * 1e8);
            Burstiness::of(&test_record::every(0.001, seconds, moved))
        };
        assert!(of(1.5).is_none() && of(0.0).is_none() && of(2.5).is_some());
    }
}
