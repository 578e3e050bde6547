//! Convergence of a tuner: from when goodput stays near that of the best fixed number.

use longhaul_core::units::Rate;

/// Seconds over which goodput is averaged: TCP's sawtooth and filled gaps are no lack of streams.
pub(crate) const WINDOW: usize = 5;
/// Seconds at the end that are ignored: streams run out of ranges there.
pub(crate) const TAIL: usize = 5;
/// Ratio to the best goodput that counts as near.
pub(crate) const NEAR: f64 = 0.95;

/// Returns the second from which goodput stays near `best`; `None` if it never does.
///
/// `seconds` holds the rate of each whole second since the start. Goodput stays near from the first second after which
/// every [`WINDOW`] of consecutive seconds, except the last [`TAIL`], has a mean of at least [`NEAR`] times `best`.
///
/// The simulated figures (`apt_figures::goodput`) use a longer window, report its end, and include the last seconds:
/// there only the tuner makes a second slow. Here TCP is real, and tuners a few seconds apart must be distinguished:
/// the window is short and its start counts, and a client with few ranges left at the end keeps its number of streams.
pub(crate) fn since(seconds: &[Rate], best: Rate) -> Option<usize> {
    let bits = |rate: &Rate| rate.as_bits_per_sec() as f64;
    let least = NEAR * bits(&best) * WINDOW as f64;
    let seconds = &seconds[..seconds.len().saturating_sub(TAIL)];
    let mut windows = seconds.windows(WINDOW);
    let all = windows.len();
    let is_far = |window: &[Rate]| window.iter().map(bits).sum::<f64>() < least;
    let from = windows.rposition(is_far).map_or(0, |far| far + 1);
    (from < all).then_some(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn convergence_begins_where_goodput_stays_near_the_best() {
        // Steps of (duration in seconds, Mbit/s).
        for (steps, expected) in [
            (&[(30, 96)][..], Some(0)),
            (&[(10, 0), (30, 100)], Some(10)),
            // Near the best temporarily, then for good: only the latter counts.
            (&[(3, 10), (20, 100), (6, 60), (30, 100)], Some(29)),
            // One slow second is compensated by its neighbours, two are not.
            (&[(20, 100), (1, 80), (30, 100)], Some(0)),
            (&[(20, 100), (2, 80), (30, 100)], Some(21)),
            // The last seconds are ignored.
            (&[(8, 20), (30, 100), (TAIL, 0)], Some(8)),
            // No lasting rate.
            (&[(60, 94)], None),
            (&[(40, 100), (10, 50)], None),
            // The transfer is too short for a window.
            (&[(WINDOW + TAIL - 1, 100)], None),
            (&[], None),
        ] {
            let steady =
                |&(seconds, mbit): &(usize, u64)| vec![Rate::bits_per_sec(mbit * 1_000_000); seconds];
            let course: Vec<_> = steps.iter().flat_map(steady).collect();
            assert_eq!(since(&course, Rate::bits_per_sec(100_000_000)), expected, "{steps:?}");
        }
    }
}
