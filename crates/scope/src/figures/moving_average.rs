//! Throughput as a moving average of a cumulative counter with irregular readings (ICDC's figures).

use super::flow::{Counter, Span};

/// The narrow window in seconds: shows bursts.
pub(super) const NARROW: f64 = 1e-3;
/// The wide window in seconds: shows the throughput.
pub(super) const WIDE: f64 = 1.0;

/// Readings resolve a window if they are at most this many windows apart: a sampler is always
/// slightly late.
const CLOSE: f64 = 1.5;

/// Returns the mean growth per second over the last `window` seconds: avg(t) = (B(t) - B(t - w)) /
/// w, and its time.
///
/// B grows linearly between readings, so the average bends only at a reading and one window after
/// it. The values at these times define the whole line, and two close readings are no burst.
pub(super) fn moving_average(counter: &Counter, window: f64) -> Vec<(f64, f64)> {
    let Some(last) = counter.times().last() else { return Vec::new() };
    let later = counter.times().map(|at| at + window).filter(|at| *at <= last);
    let mut times: Vec<f64> = counter.times().chain(later).collect();
    times.sort_by(f64::total_cmp);
    times.dedup();
    times.into_iter().map(|at| (at, average(counter, window, at))).collect()
}

/// Returns the largest moving average of the windows within a span; `None` if no window fits.
pub(super) fn peak(counter: &Counter, window: f64, (from, to): Span) -> Option<f64> {
    let from = from + window;
    let bends = moving_average(counter, window).into_iter();
    let within = bends.filter(|(at, _)| (from..=to).contains(at)).map(|(_, average)| average);
    let ends = (from <= to).then(|| [from, to].map(|at| average(counter, window, at)));
    within.chain(ends.into_iter().flatten()).max_by(f64::total_cmp)
}

/// Returns the quantile `share` of the moving averages within a span, at the times of the readings.
pub(super) fn quantile(counter: &Counter, window: f64, (from, to): Span, share: f64) -> Option<f64> {
    let times = counter.times().filter(|at| (from + window..=to).contains(at));
    let mut averages: Vec<f64> = times.map(|at| average(counter, window, at)).collect();
    averages.sort_by(f64::total_cmp);
    averages.get((averages.len() as f64 * share) as usize).copied()
}

/// Checks that readings are close enough for averages over `window`; otherwise returns their
/// typical gap in seconds.
pub(super) fn resolves(counter: &Counter, window: f64) -> Result<(), f64> {
    match counter.growing().and_then(|span| counter.typical_gap(span)) {
        Some(gap) if gap > CLOSE * window => Err(gap),
        _ => Ok(()),
    }
}

/// Returns the share of a span with readings close enough for averages over `window`, from 0 to 1.
pub(super) fn resolved_share(counter: &Counter, window: f64, span: Span) -> f64 {
    let close = counter.gaps(span).filter(|gap| *gap <= CLOSE * window).fold(0.0, |sum, gap| sum + gap);
    (close / (span.1 - span.0)).min(1.0)
}

fn average(counter: &Counter, window: f64, at: f64) -> f64 {
    // The exact window: a difference of large times would be inexact.
    (counter.at(at) - counter.at(at - window)) / window
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads a flow of `rate` bytes per second at `times`.
    fn even(rate: f64, times: impl IntoIterator<Item = f64>) -> Counter {
        Counter::new(0.0, times.into_iter().map(|at| (at, (at * rate).round() as u64)))
    }

    fn largest(averages: &[(f64, f64)]) -> f64 {
        averages.iter().map(|(_, value)| *value).fold(0.0, f64::max)
    }

    #[test]
    fn uneven_sampling_of_an_even_flow_is_no_burst() {
        // Readings late by up to 5 ms, two of them a microsecond apart.
        let times = [0.001, 0.002, 0.007, 0.007_001, 0.008, 0.0125, 0.0135];
        let averages = moving_average(&even(1e9, times), NARROW);
        for (at, average) in averages.into_iter().filter(|(at, _)| *at >= NARROW) {
            assert!((average - 1e9).abs() < 1e4, "{average} at {at}");
        }
    }

    #[test]
    fn a_burst_has_its_full_height_wherever_samples_fall() {
        // 250 kB within the millisecond after 0.0104 s, read every 0.5 ms.
        let sent = |at: f64| (250e6 * (at - 0.0104).clamp(0.0, 0.001)).round() as u64;
        let counter = Counter::new(0.0, (0..60).map(|n| f64::from(n) * 0.0002).map(|at| (at, sent(at))));
        let averages = moving_average(&counter, NARROW);
        assert!((largest(&averages) - 250e6).abs() < 1.0, "{}", largest(&averages));
        assert_eq!(averages.first(), Some(&(0.0, 0.0)));
        assert_eq!(peak(&counter, NARROW, (0.0, 0.0118)), Some(largest(&averages)));
        assert!(peak(&counter, NARROW, (0.0, 0.011)).unwrap() < 160e6, "windows that end before it does");
        assert_eq!(peak(&counter, NARROW, (0.0, 0.0005)), None);
    }

    #[test]
    fn resolution_follows_intervals_of_readings() {
        let often = even(1e9, (1..2000).map(|n| f64::from(n) * 0.001_06));
        assert_eq!((resolves(&often, NARROW), resolves(&often, WIDE)), (Ok(()), Ok(())));
        let seldom = even(1e9, (1..200).map(|n| f64::from(n) * 0.01));
        assert!((resolves(&seldom, NARROW).unwrap_err() - 0.01).abs() < 1e-9);
        assert_eq!(resolves(&Counter::default(), NARROW), Ok(()));
        let paused = even(1e9, (1..=100).chain(200..=300).map(|n| f64::from(n) / 1000.0));
        assert!((resolved_share(&paused, NARROW, (0.0, 0.3)) - 2.0 / 3.0).abs() < 1e-9);
        assert_eq!(resolved_share(&paused, NARROW, (0.1, 0.2)), 0.0);
    }

    proptest! {
        #[test]
        fn averages_stay_within_rates_of_readings(
            steps in prop::collection::vec((1e-6..0.01f64, 0u64..1_000_000), 1..200), window in 1e-3..0.5f64,
        ) {
            let (mut at, mut bytes) = (0.0, 0);
            let counter = Counter::new(0.0, steps.into_iter().map(|(gap, more)| {
                at += gap;
                bytes += more;
                (at, bytes)
            }));
            let averages = moving_average(&counter, window);
            prop_assert!(averages.windows(2).all(|pair| pair[0].0 < pair[1].0));
            for (at, average) in averages {
                prop_assert!(average >= 0.0 && average * window <= counter.total() * (1.0 + 1e-9), "{} at {}", average, at);
            }
        }
    }
}
