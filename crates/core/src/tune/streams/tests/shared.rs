//! Sessions that share a bottleneck.

use super::*;

/// Returns Jain's index of what four sessions that begin 100 s apart receive in their last 100 s, and what they receive
/// of the path.
fn fairness(mut path: Path, seed: u64) -> (f64, f64, Vec<Vec<(f64, usize)>>) {
    path.seed(seed);
    let mut sessions: Vec<_> = (0..4).map(|i| path.session(100.0 * f64::from(i), FOREVER)).collect();
    path.run(&mut sessions, 400.0);
    let before: Vec<_> = sessions.iter().map(|s| s.received).collect();
    path.run(&mut sessions, 500.0);
    let got: Vec<_> = sessions.iter().zip(&before).map(|(s, before)| s.received - before).collect();
    let sum: f64 = got.iter().sum();
    let jain = sum.powi(2) / 4.0 / got.iter().map(|got| got * got).sum::<f64>();
    (jain, sum / 100.0 / path.capacity, sessions.into_iter().map(|s| s.trace).collect())
}

#[test]
fn sessions_become_equal_behind_drop_tail() {
    for (rtt_ms, window) in [(100.0, 64.0 * KIB), (20.0, 64.0 * KIB), (100.0, OPEN), (20.0, OPEN)] {
        let runs = [1, 2].map(|seed| fairness(papers(rtt_ms).but(|path| path.window = window), seed));
        let jain = runs.iter().map(|(jain, ..)| jain / 2.0).sum::<f64>();
        let used = runs.iter().map(|(_, used, _)| used / 2.0).sum::<f64>();
        assert!(jain >= 0.95 && used > 0.95, "{jain} of {used} at {rtt_ms} ms, {window}: {runs:?}");
    }
}

#[test]
fn a_neighbour_with_one_stream_is_not_starved() {
    let mut path = Path::new(1000.0, 50.0, 2e6, OPEN);
    let mut sessions = [path.session(0.0, FOREVER), Session::fixed(1, 30.0, FOREVER)];
    path.run(&mut sessions, 60.0);
    let before = sessions.each_ref().map(|s| s.received);
    path.run(&mut sessions, 160.0);
    let [own, other] = [0, 1].map(|i| sessions[i].received - before[i]);
    // Streams are what TCP shares by: a few of ours.
    assert!(other > 0.15 * own, "{own} {other} {:?}", sessions[0].trace);
}
