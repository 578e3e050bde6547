//! The pacer on a fluid path. Its gains, alone and beside other flows, are tested packet by packet
//! in the lab (`tests/pacing.rs`).

use super::*;

#[test]
fn losses_that_the_cap_does_not_end_are_left_to_the_congestion_control() {
    let mut path = SimulatedPath::new(1000.0, 100, 1e6);
    let mut pacer = Some(Pacer::default());
    path.run(&mut pacer, 6.0);
    // Other traffic overflows the queue whatever this connection sends.
    path.others.push((6.0, 1.3 * path.capacity));
    let mut off = false;
    for tenth in 61..160 {
        path.run(&mut pacer, f64::from(tenth) / 10.0);
        off |= pacer.as_ref().unwrap().cap.is_none();
    }
    assert!(off, "{pacer:?}");
}

#[test]
fn fast_and_short_paths_are_not_paced() {
    for (mbit, rtt_ms, is_fast) in [(10_000.0, 100, true), (1000.0, 5, false)] {
        let (mut path, mut pacer) = (SimulatedPath::new(mbit, rtt_ms, 250e6), Some(Pacer::default()));
        path.run(&mut pacer, 3.0);
        let pacer = pacer.unwrap();
        assert!(pacer.cap.is_none() && !pacer.is_starting(), "{pacer:?}");
        assert_eq!(pacer.found() > Some(Pacer::PACED_BELOW), is_fast, "{pacer:?}");
    }
}

#[test]
fn pause_lowers_no_cap() {
    let mut path = SimulatedPath::new(1000.0, 200, 1e6);
    let mut pacer = Some(Pacer::default());
    path.run(&mut pacer, 5.0);
    let before = pacer.as_ref().unwrap().cap;
    assert!(before.is_some());
    pacer.as_mut().unwrap().resume();
    path.now += Duration::from_secs(60);
    path.run(&mut pacer, 66.0);
    assert!(pacer.as_ref().unwrap().cap >= before, "{pacer:?}");
}

#[test]
fn slow_start_that_ends_far_below_the_trains_cap_is_restarted() {
    let rtt = Rtt::new(Duration::from_millis(100));
    for (growth, is_restarted) in [(Bytes::ZERO, true), (Bytes::kib(10), false)] {
        let mut pacer = Pacer::default();
        pacer.hold(mbit(900.0), CapOrigin::Trains, Duration::MAX);
        let mut seen = Observation { rtt, min_rtt: rtt, window: Bytes::mib(1), ..Observation::default() };
        for ms in 0..=100 {
            seen.sent += Bytes::kib(10);
            seen.window += growth;
            pacer.observe(&seen, Duration::from_millis(ms));
        }
        assert_eq!(pacer.is_held_back(&seen, rtt.get()), is_restarted, "{pacer:?}");
        assert!(!pacer.is_held_back(&seen, rtt.get() * 2), "once in ten RTTs");
    }
}

#[test]
fn noise_after_losses_raises_the_cap_by_an_eighth_in_two_rtts() {
    let (rtt, now) = (Duration::from_millis(100), Duration::from_secs(1));
    for set_by in [CapOrigin::Losses, CapOrigin::Raise] {
        let mut pacer = Pacer { gain: 0.5, ..Pacer::default() };
        pacer.hold(mbit(900.0), set_by, now);
        pacer.conclude(ProbeResult::Hidden, rtt, now);
        let PacerPhase::Hold { until } = pacer.phase else { panic!("{pacer:?}") };
        let (raise, wait) =
            if set_by == CapOrigin::Losses { (1.125, rtt * 2) } else { (1.5, Duration::ZERO) };
        assert_eq!((pacer.cap, until), (Some(mbit(900.0).scaled(raise * 0.99)), now + wait));
    }
}
