//! APT on paths that are a function G(N): tables computed by hand from the paper's formulas, and properties.

use std::collections::HashMap;
use std::fmt::Write;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// The paper's parameters; of W and R such that a stream gets 5 Mbit/s.
fn published() -> Parameters {
    let (window, rtt) = (Bytes::new(62_500), Rtt::new(Duration::from_millis(100)));
    Parameters { window, rtt, ..Parameters::default() }
}

fn mbits(rate: f64) -> Rate {
    Rate::bits_per_sec((rate * 1e6).round() as u64)
}

/// A path of 100 Mbit/s that 20 streams fill; each costs it 0.2 Mbit/s.
fn path(n: usize) -> f64 {
    (5.0 * n as f64).min(100.0) - 0.2 * n as f64
}

/// Returns what happened up to the first chunk after convergence: N, X in kB, G in Mbit/s, phase, (l, m, r).
fn trace(parameters: Parameters, goodput: impl Fn(usize) -> f64) -> String {
    let mut apt = Apt::new(parameters);
    let mut table = String::new();
    loop {
        let Chunk { streams, size } = apt.chunk();
        let measured = goodput(streams);
        let phase = format!("{:?}", apt.phase());
        let row = format!("{streams:>3} {:>8.1} {measured:>6.1}  {phase:<11}", size.get() as f64 / 1e3);
        let bracket = match apt.search {
            Search::Golden { bracket: Bracket { l, m, r }, .. } => {
                format!("{} {} {}", l.streams, m.streams, r.streams)
            }
            _ => String::new(),
        };
        writeln!(table, "{}", format!("{row}{bracket}").trim_end()).unwrap();
        if apt.converged().is_some() {
            return table;
        }
        apt.observe(mbits(measured));
    }
}

/// Compares line by line, whatever the indentation is.
fn assert_trace(traced: &str, expected: &str) {
    let lines = |text: &str| text.trim().lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
    assert_eq!(lines(traced), lines(expected), "\n{traced}");
}

#[test]
fn the_papers_parameters() {
    assert_trace(
        &trace(published(), path),
        "
          4   7500.0   19.2  Bracketing
          8  14400.0   38.4  Bracketing
         16  28800.0   76.8  Bracketing
         32  57600.0   93.6  Bracketing
         64  42778.1   87.2  Bracketing
         44  34200.0   91.2  Golden     16 32 64
         22  31162.5   95.6  Golden     16 32 44
         26  35550.0   94.8  Golden     16 22 32
         18  31150.0   86.4  Golden     16 22 26
         24  35700.0   95.2  Golden     18 22 26
         20  34125.0   96.0  Golden     18 22 24
         21  35925.0   95.8  Golden     18 20 22
         19  34200.0   91.2  Golden     18 20 21
         20  36000.0   96.0  Converged",
    );
}

#[test]
fn n0_is_beyond_the_optimum() {
    assert_trace(
        &trace(Parameters { n0: 32, ..published() }, path),
        "
         32  60000.0   93.6  Bracketing
         64  70200.0   87.2  Bracketing
         44  34200.0   91.2  Golden     0 32 64
         12  13162.5   57.6  Golden     0 32 44
         20  27000.0   96.0  Golden     12 32 44
         25  35625.0   95.0  Golden     12 20 32
         15  27000.0   72.0  Golden     12 20 25
         22  35850.0   95.6  Golden     15 20 25
         17  30600.0   81.6  Golden     15 20 22
         18  32400.0   86.4  Golden     17 20 22
         21  35925.0   95.8  Golden     18 20 22
         19  34200.0   91.2  Golden     18 20 21
         20  36000.0   96.0  Converged",
    );
}

#[test]
fn one_stream_is_best() {
    let falling = |n: usize| 105.0 - 5.0 * n as f64;
    assert_trace(
        &trace(published(), falling),
        "
          4   7500.0   85.0  Bracketing
          8  63750.0   65.0  Bracketing
          6  28125.0   75.0  Golden     0 4 8
          2  15937.5   95.0  Golden     0 4 6
          3  33750.0   90.0  Golden     0 2 4
          1  17812.5  100.0  Golden     0 2 3
          1  37500.0  100.0  Converged",
    );
    assert_trace(
        &trace(Parameters { n0: 1, ..published() }, falling),
        "
          1   1875.0  100.0  Bracketing
          2  75000.0   95.0  Bracketing
          1  37500.0  100.0  Converged",
    );
}

#[test]
fn the_most_streams_are_too_few() {
    assert_trace(
        &trace(Parameters { most: 12, ..published() }, path),
        "
          4   7500.0   19.2  Bracketing
          8  14400.0   38.4  Bracketing
         12  28800.0   57.6  Bracketing
         10  18000.0   48.0  Golden     8 12 12
         11  19800.0   52.8  Golden     10 12 12
         12  21600.0   57.6  Converged",
    );
    assert_trace(
        &trace(Parameters { most: 1, ..published() }, path),
        "
          1   1875.0    4.8  Bracketing
          1   1800.0    4.8  Converged",
    );
}

#[test]
fn a_plateau_is_climbed_to_its_end() {
    let flat = |n: usize| (5.0 * n as f64).min(100.0);
    assert_trace(
        &trace(Parameters { most: 64, ..published() }, flat),
        "
          4   7500.0   20.0  Bracketing
          8  15000.0   40.0  Bracketing
         16  30000.0   80.0  Bracketing
         32  60000.0  100.0  Bracketing
         64  46875.0  100.0  Bracketing
         44  37500.0  100.0  Golden     32 64 64
         52  37500.0  100.0  Golden     44 64 64
         57  37500.0  100.0  Golden     52 64 64
         60  37500.0  100.0  Golden     57 64 64
         62  37500.0  100.0  Golden     60 64 64
         63  37500.0  100.0  Golden     62 64 64
         64  37500.0  100.0  Converged",
    );
}

#[test]
fn nothing_comes_through() {
    assert_trace(
        &trace(Parameters { most: 10, ..published() }, |_| 0.0),
        "
          4   7500.0    0.0  Bracketing
          8     12.0    0.0  Bracketing
         10     15.0    0.0  Bracketing
          9     13.5    0.0  Golden     8 10 10
         10     15.0    0.0  Converged",
    );
}

#[test]
fn something_comes_through_after_nothing() {
    let mut apt = Apt::new(published());
    apt.observe(Rate::default());
    // No ratio to zero: alpha G Delta.
    assert_eq!(apt.observe(mbits(8.0)), Chunk { streams: 16, size: Bytes::new(6_000_000) });
    assert_eq!(apt.observe(mbits(16.0)), Chunk { streams: 32, size: Bytes::new(12_000_000) });
}

#[test]
fn alpha_too_near_to_1_to_matter_still_makes_progress() {
    for alpha in [1.0, 1.000_001, 0.5, -3.0, f64::NAN, f64::NEG_INFINITY, f64::INFINITY] {
        let mut apt = Apt::new(Parameters { n0: 1, alpha, ..published() });
        let tried: Vec<_> = (1..6).map(|n| apt.observe(mbits(path(n))).streams).collect();
        assert_eq!(tried, [2, 3, 4, 5, 6], "alpha {alpha}");
    }
    // Rounded: 1.2 -> 1, 2.4 -> 2, 3.6 -> 4, 4.8 -> 5.
    let mut apt = Apt::new(Parameters { n0: 1, alpha: 1.2, ..published() });
    let tried: Vec<_> = (1..5).map(|n| apt.observe(mbits(path(n))).streams).collect();
    assert_eq!(tried, [2, 3, 4, 5]);
}

#[test]
fn once_converged_chunks_last_delta_at_the_last_goodput() {
    let mut apt = Apt::new(Parameters { n0: 1, ..published() });
    apt.observe(mbits(100.0));
    apt.observe(mbits(95.0));
    assert_eq!((apt.phase(), apt.converged()), (Phase::Converged, Some(1)));
    assert_eq!(apt.observe(mbits(80.0)), Chunk { streams: 1, size: Bytes::new(30_000_000) });
    assert_eq!(apt.observe(mbits(8.0)), Chunk { streams: 1, size: Bytes::new(3_000_000) });
    assert_eq!(apt.converged(), Some(1));
}

/// The bound on golden section in the module's documentation.
fn golden_bound(width: usize) -> usize {
    (1.0 + (width as f64 / 2.0).ln() / (4.0f64 / 3.0).ln()) as usize
}

/// Returns how many chunks golden section takes at worst, with the parts (m - l, r - m) of a bracket.
fn worst(left: usize, right: usize, known: &mut HashMap<(usize, usize), usize>) -> usize {
    if let Some(chunks) = known.get(&(left, right)) {
        return *chunks;
    }
    let at = |streams| Point { streams, goodput: mbits(1.0) };
    let bracket = Bracket { l: at(0), m: at(left), r: at(left + right) };
    let chunks = bracket.next().map_or(0, |n| {
        let outcomes = [0.0, 2.0].map(|goodput| {
            let Bracket { l, m, r } = bracket.narrowed(Point { streams: n, goodput: mbits(goodput) });
            worst(m.streams - l.streams, r.streams - m.streams, known)
        });
        1 + outcomes[0].max(outcomes[1])
    });
    known.insert((left, right), chunks);
    chunks
}

#[test]
fn golden_section_ends_in_time_whatever_is_measured() {
    let mut known = HashMap::new();
    for width in 2..=512 {
        for left in 1..=width {
            let chunks = worst(left, width - left, &mut known);
            assert!(chunks <= golden_bound(width), "{chunks} of ({left}, {})", width - left);
        }
    }
}

/// Returns N0, alpha N0, ... up to `most`.
fn sequence(n0: usize, alpha: f64, most: usize) -> Vec<usize> {
    std::iter::successors(Some(n0.min(most)), |n| {
        (*n < most).then(|| ((alpha * *n as f64).round() as usize).max(n + 1).min(most))
    })
    .collect()
}

/// Runs until convergence; returns what was tried, in order, and checks what must always hold.
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

/// A strictly concave G over 1..=200 as table: slopes that fall by whole bits, from plus to minus around the optimum.
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

proptest! {
    /// As many chunks as the module's documentation says.
    #[test]
    fn finds_the_optimum_of_any_concave_goodput_in_time(
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

    /// Whatever is measured it ends, tries nothing twice, and takes the best of what it saw.
    #[test]
    fn takes_the_best_of_what_it_saw(
        measured in vec(0u64..1_000, 301), scale in 1u64..10_000_000_000_000_000,
        n0 in 1usize..=300, alpha in 1.0..5.0f64, most in 1usize..=300,
    ) {
        let (tried, found) = run(Parameters { n0, alpha, most, ..published() }, |n| Rate::bits_per_sec(measured[n] * scale));
        prop_assert!(tried.iter().all(|point| measured[point.streams] <= measured[found]), "{} of {:?}", found, tried);
        prop_assert!(tried.len() <= sequence(n0, alpha, most).len() + golden_bound(most.max(2)));
    }

    /// Wherever a plateau begins and ends, a number on it is found.
    #[test]
    fn finds_a_plateau(from in 1usize..100, length in 0usize..100, n0 in 1usize..=200, most in 1usize..=256) {
        let goodput = |n: usize| match n {
            n if n < from => n,
            n if n <= from + length => from,
            n => (from + (from + length)).saturating_sub(n),
        };
        let n0 = n0.min(from);
        let (tried, found) = run(Parameters { n0, most, ..published() }, |n| Rate::bits_per_sec(goodput(n) as u64));
        prop_assert_eq!(goodput(found), from.min(most), "at {} after {:?}", found, tried);
    }

    /// Whichever comparisons noise of 2 % turns round, this path ends with 91 % of what it could have.
    #[test]
    fn noise_costs_little(noise in vec(0.98..1.02f64, 257)) {
        let (tried, found) = run(published(), |n| mbits(path(n) * noise[n]));
        prop_assert!(path(found) >= 0.91 * path(20), "{} after {:?}", found, tried);
    }

    /// No parameter and no goodput makes it panic, leave the range, or ask for nothing.
    #[test]
    fn takes_any_numbers(
        n0 in any::<usize>(), alpha in any::<f64>(), delta in any::<Duration>(), window in any::<u64>(),
        rtt in any::<Duration>(), most in any::<usize>(), measured in vec(any::<u64>(), 100),
    ) {
        let (window, rtt) = (Bytes::new(window), Rtt::new(rtt));
        let mut apt = Apt::new(Parameters { n0, alpha, delta, window, rtt, most });
        for goodput in measured {
            let (before, bracketing) = (apt.chunk(), apt.phase() == Phase::Bracketing);
            prop_assert!((1..=most.max(1)).contains(&before.streams) && before.size > Bytes::ZERO);
            apt.observe(Rate::bits_per_sec(goodput));
            if bracketing && apt.phase() == Phase::Bracketing {
                prop_assert!(apt.chunk().streams > before.streams);
            }
        }
    }
}
