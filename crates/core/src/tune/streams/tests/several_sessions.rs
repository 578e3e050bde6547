//! Several sessions that share a bottleneck.

use super::red::Red;
use super::*;
use crate::tune::fairness::jain_index;

/// Returns Jain's index of the sessions over 100 s, and their share of the path.
fn fairness(path: &mut SimulatedPath, sessions: &mut [SimulatedSession], from: f64) -> (f64, f64) {
    path.run(sessions, from);
    let before: Vec<_> = sessions.iter().map(|s| s.received).collect();
    path.run(sessions, from + 100.0);
    let got: Vec<_> = sessions.iter().zip(&before).map(|(s, before)| s.received - before).collect();
    (jain_index(&got), got.iter().sum::<f64>() / 100.0 / path.capacity)
}

#[test]
fn sessions_converge_to_equal_shares_behind_drop_tail() {
    for (rtt_ms, window) in [(100.0, 64.0 * KIB), (20.0, 64.0 * KIB), (100.0, OPEN), (20.0, OPEN)] {
        let runs = [1, 2].map(|seed| {
            let mut path = papers(rtt_ms).but(|path| path.window = window);
            path.seed(seed);
            let mut sessions = [0.0, 100.0, 200.0, 300.0].map(|begins| path.session(begins, FOREVER));
            fairness(&mut path, &mut sessions, 400.0)
        });
        let jain = runs.iter().map(|(jain, _)| jain / 2.0).sum::<f64>();
        let used = runs.iter().map(|(_, used)| used / 2.0).sum::<f64>();
        assert!(jain >= 0.95 && used > 0.95, "{jain} of {used} at {rtt_ms} ms, {window}: {runs:?}");
    }
}

/// n x <= 1 permits 21 streams at 20 ms and 47 at 100 ms for all sessions together, plus those of
/// trials.
#[test]
fn sessions_behind_red_use_few_streams_and_converge() {
    let cases = [(20.0, 64.0 * KIB, 36), (20.0, OPEN, 36), (100.0, 64.0 * KIB, 94), (100.0, OPEN, 94)];
    for (rtt_ms, window, most) in cases {
        for seed in [1, 2] {
            let red = |path: &mut SimulatedPath| (path.window, path.red) = (window, Some(Red::default()));
            let mut path = papers(rtt_ms).but(red);
            path.seed(seed);
            let mut sessions = [0.0, 100.0, 200.0, 300.0].map(|begins| path.session(begins, FOREVER));
            let (jain, used) = fairness(&mut path, &mut sessions, 500.0);
            let streams: usize = sessions.iter().map(|s| s.most_streams(500.0)).sum();
            let found = format!("{jain} of {used} with {streams} at {rtt_ms} ms, {window}");
            let traces = sessions.map(|s| s.trace);
            assert!(jain >= 0.95 && used > 0.95 && streams <= most, "{found}: {traces:?}");
        }
    }
}

#[test]
fn session_with_many_streams_yields_to_a_new_one() {
    for (rtt_ms, many) in [(20, 16), (100, 60)] {
        let mut path = papers(rtt_ms as f64);
        let sure = remembered(rtt_ms, 100, many);
        let mut sessions = [path.remembering(0.0, FOREVER, sure), path.session(20.0, FOREVER)];
        let (jain, used) = fairness(&mut path, &mut sessions, 80.0);
        assert!(jain >= 0.95 && used > 0.95, "{jain} of {used}: {:?}", sessions.map(|s| s.trace));
    }
}

#[test]
fn neighbour_with_one_stream_is_not_starved() {
    let mut path = SimulatedPath::new(1000.0, 50.0, 2e6, OPEN);
    let mut sessions = [path.session(0.0, FOREVER), SimulatedSession::fixed(1, 30.0, FOREVER)];
    path.run(&mut sessions, 60.0);
    let before = sessions.each_ref().map(|s| s.received);
    path.run(&mut sessions, 160.0);
    let [own, other] = [0, 1].map(|i| sessions[i].received - before[i]);
    // TCP shares the path per connection.
    assert!(other > 0.15 * own, "{own} {other} {:?}", sessions[0].trace);
}
