//! When a tuner has found its number of streams: from when on goodput stays near what the best fixed number reaches.

use longhaul_core::units::Rate;

/// Goodput is averaged over so many seconds: what TCP's sawtooth and a filled gap do is no lack of streams.
pub(crate) const WINDOW: usize = 5;
/// So many are left out at the end, where streams run out of ranges.
pub(crate) const TAIL: usize = 5;
/// Near is this share of the best, and all above.
pub(crate) const NEAR: f64 = 0.95;

/// Returns the second from which goodput stays near `best`; `None` where it does not before the end.
///
/// `seconds` is what came in each whole second since the transfer began. It stays near from the first second after which every
/// [`WINDOW`] of successive seconds, but for the last [`TAIL`], has a mean of [`NEAR`] of `best` or more.
///
/// The simulated figures (`apt_figures::goodput`) ask for more: a longer time, of which the end is told, and the transfer's last seconds
/// too. There nothing makes a second slow but the tuner. Here it is real TCP, and tuners that are seconds apart are to be told
/// apart: the time is short and its start counts, and a client with too few ranges left at the end keeps the number.
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

    /// Makes seconds of so many, each of so many Mbit/s.
    fn course(steps: &[(usize, u64)]) -> Vec<Rate> {
        let steady = |&(seconds, mbit): &(usize, u64)| vec![Rate::bits_per_sec(mbit * 1_000_000); seconds];
        steps.iter().flat_map(steady).collect()
    }

    fn since(steps: &[(usize, u64)]) -> Option<usize> {
        super::since(&course(steps), Rate::bits_per_sec(100_000_000))
    }

    #[test]
    fn counts_from_where_it_stays() {
        assert_eq!(since(&[(30, 96)]), Some(0));
        assert_eq!(since(&[(10, 0), (30, 100)]), Some(10));
        // Near the best for a while, and again: only what lasts counts.
        assert_eq!(since(&[(3, 10), (20, 100), (6, 60), (30, 100)]), Some(29));
        // A second below is made up for by those around it, but not two.
        assert_eq!(since(&[(20, 100), (1, 80), (30, 100)]), Some(0));
        assert_eq!(since(&[(20, 100), (2, 80), (30, 100)]), Some(21));
    }

    #[test]
    fn what_never_stays_has_not_converged() {
        assert_eq!(since(&[(60, 94)]), None);
        assert_eq!(since(&[(40, 100), (10, 50)]), None);
        // Nothing is left of so short a transfer.
        assert_eq!(since(&[(WINDOW + TAIL - 1, 100)]), None);
        assert_eq!(since(&[]), None);
    }

    #[test]
    fn the_end_does_not_count() {
        assert_eq!(since(&[(8, 20), (30, 100), (TAIL, 0)]), Some(8));
    }
}
