//! Byte counters over time: rates in bins, and the time at steady speed.

use crate::record::Record;

/// Width of a bin in seconds (UsadaFox, figure 6).
pub(super) const BIN: f64 = 0.5;
/// Maximum of steady time at the end of a transfer, in seconds (UsadaFox, table 2).
const STEADY: f64 = 30.0;

/// A counter over time in seconds; both are monotonic.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Counter(Vec<(f64, f64)>);

/// A span of time: from, to.
pub(super) type Span = (f64, f64);

impl Counter {
    /// Makes a counter of readings; a value below the previous one is a restart from zero.
    pub(super) fn new(start: f64, readings: impl Iterator<Item = (f64, u64)>) -> Self {
        let (mut before, mut sum) = (0, 0.0);
        let counted = readings.map(|(at, value)| {
            sum += if value >= before { value - before } else { value } as f64;
            before = value;
            (at, sum)
        });
        Self(std::iter::once((start, 0.0)).chain(counted).collect())
    }

    /// Counts the bytes that a recorded transfer has moved.
    pub(super) fn moved(record: &Record) -> Self {
        Self::new(0.0, record.samples.iter().map(|(at, sample)| (*at, sample.moved.get())))
    }

    /// Returns the value at the end.
    pub(super) fn total(&self) -> f64 {
        self.0.last().map_or(0.0, |(_, value)| *value)
    }

    /// Returns the times of the readings.
    pub(super) fn times(&self) -> impl DoubleEndedIterator<Item = f64> + Clone + '_ {
        self.0.iter().map(|(at, _)| *at)
    }

    /// Returns the intervals between readings, clipped to a span.
    pub(super) fn gaps(&self, (from, to): Span) -> impl Iterator<Item = f64> + '_ {
        let pairs = self.0.windows(2).map(move |pair| pair[1].0.min(to) - pair[0].0.max(from));
        pairs.filter(|gap| *gap > 0.0)
    }

    /// Returns the median interval between readings in a span.
    pub(super) fn typical_gap(&self, span: Span) -> Option<f64> {
        let mut gaps: Vec<f64> = self.gaps(span).collect();
        gaps.sort_by(f64::total_cmp);
        gaps.get(gaps.len() / 2).copied()
    }

    /// Returns the value at a time; interpolates linearly between readings.
    pub(super) fn at(&self, time: f64) -> f64 {
        let after = self.0.partition_point(|(at, _)| *at < time);
        match (after.checked_sub(1).and_then(|before| self.0.get(before)), self.0.get(after)) {
            (Some((t0, v0)), Some((t1, v1))) => v0 + (v1 - v0) * (time - t0) / (t1 - t0),
            (None, Some((_, value))) | (Some((_, value)), None) => *value,
            (None, None) => 0.0,
        }
    }

    /// Returns the mean growth per second in a span.
    pub(super) fn rate(&self, (from, to): Span) -> f64 {
        (self.at(to) - self.at(from)) / (to - from)
    }

    /// Returns the bins between readings, as spans.
    ///
    /// All are [`BIN`] wide except the last, which includes a remainder too short for a rate, and
    /// gaps between readings. There are at most twice as many bins as readings.
    pub(super) fn bins(&self) -> Vec<Span> {
        let (Some((first, _)), Some((last, _))) = (self.0.first(), self.0.last()) else { return Vec::new() };
        if last <= first {
            return Vec::new();
        }
        let mut edges: Vec<f64> = Vec::new();
        for (at, _) in &self.0 {
            let bin = (at / BIN).floor();
            for edge in [bin * BIN, (bin + 1.0) * BIN] {
                if edge < *last && edges.last().is_none_or(|before| edge > *before) {
                    edges.push(edge);
                }
            }
        }
        if edges.len() > 1 {
            edges.pop_if(|edge| last - *edge < BIN / 2.0);
        }
        edges.push(*last);
        edges.windows(2).map(|pair| (pair[0], pair[1])).collect()
    }

    /// Returns the span of growth; `None` if the counter never grew.
    pub(super) fn growing(&self) -> Option<Span> {
        let grew = |pair: &&[(f64, f64)]| pair[1].1 > pair[0].1;
        let from = self.0.windows(2).find(grew)?[0].0;
        let to = self.0.windows(2).rfind(grew)?[1].0;
        (to > from).then_some((from, to))
    }

    /// Returns the steady part of the span of growth: its last 30 s, or its last third if that is
    /// shorter.
    pub(super) fn steady(&self) -> Option<Span> {
        self.growing().map(|(from, to)| (to - STEADY.min((to - from) / 3.0), to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn even(seconds: usize) -> Counter {
        Counter::new(0.0, (0..=seconds * 100).map(|index| (index as f64 / 100.0, index as u64 * 10)))
    }

    #[test]
    fn bins_are_half_seconds_and_the_last_takes_a_short_rest() {
        assert_eq!(even(1).bins(), [(0.0, 0.5), (0.5, 1.0)]);
        let ends = |last: f64| Counter::new(0.0, [(0.01, 1), (last, 9)].into_iter()).bins();
        assert_eq!(ends(1.1), [(0.0, 0.5), (0.5, 1.1)]);
        assert_eq!(ends(1.3), [(0.0, 0.5), (0.5, 1.0), (1.0, 1.3)]);
        assert_eq!(ends(0.1), [(0.0, 0.1)]);
        assert_eq!(ends(0.0), []);
        assert_eq!(Counter::default().bins(), []);
        assert_eq!(Counter::new(2.2, [(2.6, 1), (3.0, 2)].into_iter()).bins(), [(2.0, 2.5), (2.5, 3.0)]);
    }

    #[test]
    fn gap_between_readings_is_one_bin() {
        let counter = Counter::new(0.0, [(0.1, 100), (20.2, 300), (1e12, 400)].into_iter());
        let bins = counter.bins();
        assert_eq!(bins, [(0.0, 0.5), (0.5, 20.0), (20.0, 20.5), (20.5, 1e12)]);
        assert!(bins.iter().all(|bin| counter.rate(*bin).is_finite()));
        for last in [1e16, 1e300, f64::MAX, f64::INFINITY, f64::NAN] {
            assert!(Counter::new(0.0, [(0.1, 1), (last, 2)].into_iter()).bins().len() < 5, "{last}");
        }
    }

    #[test]
    fn an_even_flow_has_one_rate_and_a_restarted_counter_is_added() {
        let counter = even(9);
        assert!(counter.bins().iter().all(|bin| (counter.rate(*bin) - 1000.0).abs() < 1e-6));
        assert_eq!((counter.steady(), even(200).steady()), (Some((6.0, 9.0)), Some((170.0, 200.0))));
        let restarted = Counter::new(0.0, [(1.0, 100), (2.0, 30), (3.0, 40)].into_iter());
        assert_eq!(restarted.total(), 140.0);
    }

    #[test]
    fn pauses_at_both_ends_are_no_flow() {
        let readings = [(1.0, 0), (2.0, 0), (3.0, 50), (5.0, 100), (6.0, 100), (9.0, 100)];
        let counter = Counter::new(0.0, readings.into_iter());
        assert_eq!(counter.growing(), Some((2.0, 5.0)));
        assert_eq!(Counter::new(0.0, [(1.0, 0)].into_iter()).growing(), None);
        assert_eq!(Counter::default().growing(), None);
    }
}
