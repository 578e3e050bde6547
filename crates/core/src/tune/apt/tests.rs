//! APT on paths given as a function G(N), compared with tables computed from the paper's formulas
//! independently of the code.

mod properties;

use std::fmt::Write;

use super::*;

/// The paper's parameters, with W and R such that a stream reaches 5 Mbit/s.
fn published() -> Parameters {
    let (window, rtt) = (Bytes::new(62_500), Rtt::new(Duration::from_millis(100)));
    Parameters { window, rtt, ..Parameters::default() }
}

fn mbits(rate: f64) -> Rate {
    Rate::bits_per_sec((rate * 1e6).round() as u64)
}

/// A path of 100 Mbit/s that 20 streams fill; each further stream reduces the goodput by 0.2
/// Mbit/s.
fn path(n: usize) -> f64 {
    (5.0 * n as f64).min(100.0) - 0.2 * n as f64
}

/// Returns the trace up to the first chunk after convergence: N, X in kB, G in Mbit/s, phase, (l,
/// m, r).
fn trace(parameters: Parameters, goodput: impl Fn(usize) -> f64) -> String {
    let mut apt = Apt::new(parameters);
    let mut table = String::new();
    loop {
        let Chunk { streams, size } = apt.chunk();
        let measured = goodput(streams);
        let phase = format!("{:?}", apt.phase());
        let row = format!("{streams:>3} {:>8.1} {measured:>6.1}  {phase:<11}", size.get() as f64 / 1e3);
        let row = match apt.search {
            Search::Golden { bracket: b, .. } => {
                format!("{row}{} {} {}", b.l.streams, b.m.streams, b.r.streams)
            }
            _ => row,
        };
        writeln!(table, "{}", row.trim_end()).unwrap();
        if apt.converged().is_some() {
            return table;
        }
        apt.observe(mbits(measured));
    }
}

/// Compares line by line, ignoring indentation.
#[track_caller]
fn assert_trace(parameters: Parameters, goodput: impl Fn(usize) -> f64, expected: &str) {
    let traced = &trace(parameters, goodput);
    let lines = |text: &str| text.trim().lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
    assert_eq!(lines(traced), lines(expected), "\n{traced}");
}

#[test]
fn parameters_are_those_of_the_paper() {
    let expected = "
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
         20  36000.0   96.0  Converged";
    assert_trace(published(), path, expected);
}

#[test]
fn zero_goodput_ends_bracketing_at_the_limit_and_leaves_no_ratio() {
    let expected = "
          4   7500.0    0.0  Bracketing
          8     12.0    0.0  Bracketing
         10     15.0    0.0  Bracketing
          9     13.5    0.0  Golden     8 10 10
         10     15.0    0.0  Converged";
    assert_trace(Parameters { most: 10, ..published() }, |_| 0.0, expected);
    let mut apt = Apt::new(published());
    apt.observe(Rate::default());
    // The ratio to zero is undefined, so X = alpha G Delta.
    assert_eq!(apt.observe(mbits(8.0)), Chunk { streams: 16, size: Bytes::new(6_000_000) });
    assert_eq!(apt.observe(mbits(16.0)), Chunk { streams: 32, size: Bytes::new(12_000_000) });
}

#[test]
fn alpha_near_1_increases_the_number_by_at_least_one() {
    // 1.2 is rounded: 1.2 -> 1, 2.4 -> 2, 3.6 -> 4, 4.8 -> 5.
    for alpha in [1.0, 1.000_001, 1.2, 0.5, -3.0, f64::NAN, f64::NEG_INFINITY, f64::INFINITY] {
        let mut apt = Apt::new(Parameters { n0: 1, alpha, ..published() });
        let tried: Vec<_> = (1..6).map(|n| apt.observe(mbits(path(n))).streams).collect();
        assert_eq!(tried, [2, 3, 4, 5, 6], "alpha {alpha}");
    }
}

/// X = G(m) Delta, even if the path becomes slower: a slow chunk does not make the next one
/// smaller.
#[test]
fn once_converged_chunks_last_delta_at_the_best_goodput() {
    let mut apt = Apt::new(Parameters { n0: 1, ..published() });
    apt.observe(mbits(100.0));
    apt.observe(mbits(95.0));
    assert_eq!((apt.phase(), apt.converged()), (AptPhase::Converged, Some(1)));
    for (goodput, megabytes) in [(80.0, 37.5), (8.0, 37.5), (0.0, 37.5), (120.0, 45.0), (80.0, 45.0)] {
        let size = Bytes::new((megabytes * 1e6) as u64);
        assert_eq!(apt.observe(mbits(goodput)), Chunk { streams: 1, size });
    }
    assert_eq!(apt.converged(), Some(1));
}
