//! Properties of APT on any path: it ends within its bounds with the best number, for all
//! measurements.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// The bound of golden section in the module's documentation.
fn golden_bound(width: usize) -> usize {
    (1.0 + (width as f64 / 2.0).ln() / (4.0f64 / 3.0).ln()) as usize
}

/// Returns N0, alpha N0, ... up to `most`.
fn sequence(n0: usize, alpha: f64, most: usize) -> Vec<usize> {
    std::iter::successors(Some(n0.min(most)), |n| {
        (*n < most).then(|| ((alpha * *n as f64).round() as usize).max(n + 1).min(most))
    })
    .collect()
}

/// Runs until convergence; returns the tried numbers in order, and checks the invariants.
fn run(parameters: Parameters, goodput: impl Fn(usize) -> Rate) -> (Vec<Point>, usize) {
    let mut apt = Apt::new(parameters);
    let mut tried: Vec<Point> = Vec::new();
    loop {
        let Chunk { streams, size } = apt.chunk();
        if let Some(found) = apt.converged() {
            assert_eq!(streams, found);
            return (tried, found);
        }
        assert!((1..=parameters.most).contains(&streams), "{streams} of {}", parameters.most);
        assert!(tried.iter().all(|point| point.streams != streams), "{streams} again after {tried:?}");
        assert!(size >= Bytes::new(1500 * streams as u64));
        tried.push(Point { streams, goodput: goodput(streams) });
        apt.observe(goodput(streams));
    }
}

/// A strictly concave G over 0..=200 as a table: slopes that decrease by whole bits, from positive
/// to negative around the optimum.
fn concave() -> impl Strategy<Value = Vec<u64>> {
    (vec(1i64..1_000_000, 200), 0usize..200, 0.0..1.0f64).prop_map(|(falls, optimum, offset)| {
        let slope = |n: usize| -> i64 {
            let between = |from: usize, to: usize| falls[from..to].iter().sum::<i64>();
            let first = (offset * falls[optimum] as f64) as i64;
            if n <= optimum { first + between(n, optimum) } else { first - between(optimum, n) }
        };
        let mut goodput = vec![0i64];
        for n in 0..200 {
            goodput.push(goodput[n] + slope(n));
        }
        let least = goodput.iter().copied().min().unwrap_or_default();
        goodput.into_iter().map(|g| (g - least) as u64).collect()
    })
}

/// Any number, often one at the edge of the range.
fn extreme() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0u64..10, Just(u64::MAX)]
}

proptest! {
    /// The number of chunks is within the bound of the module's documentation.
    #[test]
    fn optimum_of_any_concave_goodput_is_found_within_the_bound(
        goodput in concave(), n0 in 1usize..=200, alpha in 1.0..4.0f64, most in 1usize..=200,
    ) {
        let parameters = Parameters { n0, alpha, most, ..published() };
        let (tried, found) = run(parameters, |n| Rate::bits_per_sec(goodput[n]));
        let best = goodput[1..=most].iter().max().unwrap();
        prop_assert_eq!(goodput[found], *best, "at {} after {:?}", found, tried);

        let optimum = (1..=most).rfind(|n| goodput[*n] == *best).unwrap();
        let sequence = sequence(n0, alpha, most);
        let k = sequence.iter().position(|n| *n >= optimum).unwrap();
        let bound = (k + 1..=(k + 2).min(sequence.len()))
            .map(|chunks| {
                let l = chunks.checked_sub(3).map_or(0, |l| sequence[l]);
                chunks + golden_bound(sequence[chunks - 1] - l)
            })
            .max()
            .unwrap();
        prop_assert!(tried.len() <= bound, "{} chunks, bound {}: {:?}", tried.len(), bound, tried);
    }

    /// For any goodput, the search ends, tries no number twice, and returns the best tried number.
    #[test]
    fn best_tried_number_is_returned(
        measured in vec(0u64..1_000, 301), scale in 1u64..10_000_000_000_000_000,
        n0 in 1usize..=300, alpha in 1.0..5.0f64, most in 1usize..=300,
    ) {
        let (tried, found) = run(Parameters { n0, alpha, most, ..published() }, |n| Rate::bits_per_sec(measured[n] * scale));
        prop_assert!(tried.iter().all(|point| measured[point.streams] <= measured[found]), "{} of {:?}", found, tried);
        prop_assert!(tried.len() <= sequence(n0, alpha, most).len() + golden_bound(most.max(2)));
    }

    #[test]
    fn number_on_a_plateau_is_found(from in 1usize..100, length in 0usize..100, n0 in 1usize..=200, most in 1usize..=256) {
        let goodput = |n: usize| match n {
            n if n < from => n,
            n if n <= from + length => from,
            n => (from + (from + length)).saturating_sub(n),
        };
        let n0 = n0.min(from);
        let (tried, found) = run(Parameters { n0, most, ..published() }, |n| Rate::bits_per_sec(goodput(n) as u64));
        prop_assert_eq!(goodput(found), from.min(most), "at {} after {:?}", found, tried);
    }

    /// With any noise of 2 % in the comparisons, this path ends with 91 % of its highest goodput.
    #[test]
    fn noise_costs_little(noise in vec(0.98..1.02f64, 257)) {
        let (tried, found) = run(published(), |n| mbits(path(n) * noise[n]));
        prop_assert!(path(found) >= 0.91 * path(20), "{} after {:?}", found, tried);
    }

    /// No parameters and goodputs cause a panic, a number outside the range, or an empty chunk.
    #[test]
    fn extreme_parameters_and_goodputs_are_handled(
        n0 in extreme(), alpha in proptest::num::f64::ANY, delta in any::<Duration>(), window in extreme(),
        rtt in prop_oneof![any::<Duration>(), Just(Duration::ZERO)], most in extreme(), measured in vec(extreme(), 100),
    ) {
        let (n0, window, rtt, most) = (n0 as usize, Bytes::new(window), Rtt::new(rtt), most as usize);
        let mut apt = Apt::new(Parameters { n0, alpha, delta, window, rtt, most });
        for goodput in measured {
            let (before, bracketing) = (apt.chunk(), apt.phase() == AptPhase::Bracketing);
            prop_assert!((1..=most.max(1)).contains(&before.streams) && before.size > Bytes::ZERO);
            apt.observe(Rate::bits_per_sec(goodput));
            if bracketing && apt.phase() == AptPhase::Bracketing {
                prop_assert!(apt.chunk().streams > before.streams);
            }
        }
    }
}
