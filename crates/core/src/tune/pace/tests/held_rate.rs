//! On a path whose rate is known from an earlier transfer.

use super::*;

#[test]
fn known_path_is_full_within_three_rtts() {
    let mut path = SimulatedPath::new(1000.0, 200, 1e6);
    let mut pacer = with_known_rate(&mut path, 950.0);
    path.run(&mut pacer, 0.6);
    let share = path.run(&mut pacer, 2.0);
    assert!(share > 0.9 && path.lost == 0.0, "{share} of the path, {} lost", path.lost);
    // `Listen` takes longer: slow start from ten segments.
    let mut path = SimulatedPath::new(1000.0, 200, 1e6);
    let mut pacer = Some(Pacer::default());
    path.run(&mut pacer, 0.6);
    let unknown = path.run(&mut pacer, 2.0);
    assert!(unknown < share * 0.7, "{unknown}");
    assert_eq!(Pacer::with_known_rate(Rate::bits_per_sec(1)).found(), None, "nothing is found yet");
}

#[test]
fn found_rate_is_the_paths_capacity() {
    let mut path = SimulatedPath::new(1000.0, 200, 1e6);
    let mut pacer = Some(Pacer::default());
    path.run(&mut pacer, 8.0);
    let found = pacer.unwrap().found().unwrap().as_bits_per_sec() as f64 / 1e9;
    assert!((0.9..1.0).contains(&found), "{found}");
}

#[test]
fn narrower_path_lowers_the_pace_within_an_rtt() {
    for mbit in [600.0, 300.0, 100.0] {
        let mut path = SimulatedPath::new(mbit, 200, 1e6);
        let mut pacer = with_known_rate(&mut path, 950.0);
        path.run(&mut pacer, 1.5);
        // One RTT at half of the known rate, and no more.
        let most = 950e6 / 8.0 / 2.0 * 0.45;
        assert!(path.lost < most, "{mbit} Mbit/s: {} lost", path.lost);
        let lost = path.lost;
        let share = path.run(&mut pacer, 12.0);
        assert!(share > 0.85, "{mbit} Mbit/s: {share} of the path");
        assert!(path.lost - lost < 0.1 * most, "{mbit} Mbit/s: {} lost later", path.lost - lost);
    }
}

#[test]
fn wider_path_raises_the_pace() {
    let mut path = SimulatedPath::new(1000.0, 200, 1e6);
    let mut pacer = with_known_rate(&mut path, 200.0);
    path.run(&mut pacer, 12.0);
    let share = path.run(&mut pacer, 20.0);
    assert!(share > 0.9, "{share} of the path");
}

#[test]
fn pause_does_not_confirm_a_known_rate() {
    let mut path = SimulatedPath::new(1000.0, 200, 1e6);
    let mut pacer = Pacer::with_known_rate(Rate::bits_per_sec(950_000_000));
    pacer.observe(&path.seen(), path.now);
    pacer.resume();
    // A burst of a few milliseconds, faster than the first pace.
    for _ in 0..20 {
        path.now += Duration::from_millis(1);
        path.acked += 1e6;
        assert_eq!(pacer.observe(&path.seen(), path.now), Some(Rate::bits_per_sec(475_000_000)));
    }
    assert!(matches!(pacer.phase, PacerPhase::Climb { since: None, .. }));
}

#[test]
fn pause_does_not_count_as_climb() {
    let mut path = SimulatedPath::new(1000.0, 200, 1e6);
    let mut pacer = with_known_rate(&mut path, 950.0);
    let mut until = 0.0;
    while !matches!(pacer.as_ref().unwrap().phase, PacerPhase::Climb { since: Some(_), .. }) {
        until += 0.01;
        path.run(&mut pacer, until);
    }
    let pacer = pacer.as_mut().unwrap();
    let before = pacer.pace.unwrap();
    pacer.resume();
    path.now += Duration::from_secs(60);
    assert_eq!(pacer.observe(&path.seen(), path.now), Some(before));
}

#[test]
fn known_rate_that_never_arrives_ends_pacing() {
    let mut path = SimulatedPath::new(1000.0, 200, 1e6);
    let mut pacer = with_known_rate(&mut path, 950.0);
    // The receive window is the limit.
    (path.cwnd, path.slow_start) = (65_536.0, false);
    for (until, is_free) in [(3.5, false), (5.0, true)] {
        path.run(&mut pacer, until);
        let pacer = pacer.as_ref().unwrap();
        let seen = (
            matches!(pacer.phase, PacerPhase::Free(_)),
            pacer.pace.is_none(),
            pacer.has_settled(&path.seen()),
        );
        assert_eq!(seen, (is_free, is_free, is_free), "{until} s");
    }
}

#[test]
fn confirmed_fast_path_is_not_paced() {
    let mut path = SimulatedPath::new(10_000.0, 100, 250e6);
    let mut pacer = with_known_rate(&mut path, 9_000.0);
    path.run(&mut pacer, 0.5);
    let seen = path.seen();
    let pacer = pacer.as_mut().unwrap();
    assert_eq!(pacer.observe(&seen, path.now), None);
    assert!(pacer.has_settled(&seen));
}

#[test]
fn excessive_known_rate_is_cut_to_the_delivery() {
    let mut path = SimulatedPath::new(100.0, 50, 1e6);
    let mut pacer = Some(Pacer::with_known_rate(Rate::bits_per_sec(u64::MAX)));
    path.run(&mut pacer, 4.0);
    let share = path.run(&mut pacer, 20.0);
    assert!(share > 0.9, "{share} of the path");
}
