//! Finding and following the capacity, alone and beside traffic at a fixed rate.

use super::*;

#[test]
fn path_with_a_shallow_queue_is_filled_without_loss() {
    let mut path = SimulatedPath::new(1000.0, 302, 1e6);
    let mut pacer = Some(Pacer::default());
    path.run(&mut pacer, 8.0);
    let share = path.run(&mut pacer, 20.0);
    assert!(share > 0.93 && path.lost < 10.0 * MSS, "{share} of the path, {} segments lost", path.lost / MSS);
}

/// A climb over 300 ms, with 160 segments of slow start in flight.
fn climb() -> (Pacer, Observation) {
    let window = segments(160);
    let rtt = millis(304.0);
    let seen = Observation {
        window,
        in_flight: window,
        rtt,
        min_rtt: millis(300.0),
        sent: window,
        ..Observation::default()
    };
    let (from, until) = (Rate::bits_per_sec(6_000_000), Rate::bits_per_sec(85_000_000));
    let mut pacer = Pacer { capacity: Rate::bits_per_sec(100_000_000), seen, ..Pacer::default() };
    pacer.enter(PacerPhase::Climb { from, since: Some(Duration::ZERO), until }, Some(from));
    pacer.ignore_flight();
    (pacer, seen)
}

fn segments(count: u64) -> Bytes {
    Bytes::new(count * MSS as u64)
}

fn millis(millis: f64) -> Rtt {
    Rtt::new(Duration::from_secs_f64(millis / 1e3))
}

/// The receiver acknowledges the last segment 40 ms late. The RTT, of which each acknowledgement is an eighth, shows it until some of the
/// paced segments have arrived.
#[test]
fn delayed_acknowledgement_of_the_last_burst_is_no_queue() {
    let (mut pacer, mut seen) = climb();
    for at in (3..700).step_by(3) {
        let (arrived, above) = match at {
            ..250 => (0, 4.0),
            250..289 => (4 * (at - 249), (at - 249) as f64 / 2.0),
            289..325 => (159, 20.0),
            325..560 => (160, 25.0),
            _ => (160 + 2 * ((at - 560) / 4), 25.0 * 0.875_f64.powi((at as i32 - 560) / 4)),
        };
        (seen.goodput, seen.rtt) = (segments(arrived), millis(300.0 + above));
        pacer.observe(&seen, Duration::from_millis(at));
    }
    assert!(matches!(pacer.phase, PacerPhase::Climb { .. }), "{:?}", pacer.phase);
}

#[test]
fn climb_after_an_rtt_without_a_delivery_does_not_begin_at_zero() {
    let (mut pacer, seen) = climb();
    let rate = Rate::bits_per_sec(100_000_000);
    pacer.begin_climb(Rate::default(), rate);
    for at in (3..9000).step_by(3) {
        pacer.observe(&seen, Duration::from_millis(at));
    }
    assert!(pacer.pace > Some(rate.scaled(0.8)), "{:?}", pacer.pace);
}

/// The path has become so slow that two RTTs do not suffice for what was in flight.
#[test]
fn queue_of_a_path_that_becomes_slower_in_the_climb_is_noticed() {
    let (mut pacer, mut seen) = climb();
    for at in (3..750).step_by(3) {
        (seen.goodput, seen.rtt) = (segments(at / 20), millis(304.0 + at as f64));
        pacer.observe(&seen, Duration::from_millis(at));
    }
    assert!(matches!(pacer.phase, PacerPhase::Drain { .. }), "{:?}", pacer.phase);
}

#[test]
fn probe_that_the_congestion_control_held_back_raises_no_pace() {
    for known in [500.0, 600.0, 700.0] {
        let mut path = SimulatedPath::new(1000.0, 300, 1e6);
        let mut pacer = with_known_rate(&mut path, known);
        path.run(&mut pacer, 1.0);
        path.own_pace = Some(1.25);
        path.run(&mut pacer, 12.0);
        let share = path.run(&mut pacer, 20.0);
        assert!(path.lost == 0.0 && share > 0.93, "{known} Mbit/s: {share}, lost {}", path.lost);
    }
}

#[test]
fn pace_follows_background_traffic() {
    let steps = [(0.0, 0.0), (8.0, 0.2), (16.0, 0.5), (24.0, 0.2), (32.0, 0.0)];
    let mut path = SimulatedPath::new(1000.0, 302, 1e6).with_others(&steps);
    let mut pacer = Some(Pacer::default());
    path.run(&mut pacer, 8.0);
    let mut all = 0.0;
    for (from, others) in &steps[1..] {
        let share = path.run(&mut pacer, from + 8.0) / (1.0 - others);
        assert!(share > 0.85, "from {from} s on: {share} of what is left");
        all += share / 4.0;
    }
    assert!(all > 0.9, "{all} of what was left");
    let lost = path.others_lost / path.others_sent;
    assert!(lost < 0.01, "the others lost {lost}");
}

#[test]
fn wrong_train_rate_costs_no_loss() {
    for train_share in [0.1, 0.3, 0.55, 0.8, 0.93, 1.07, 1.15] {
        let mut path = SimulatedPath::new(1000.0, 302, 1e6);
        let mut pacer = Some(Pacer::default());
        let mut until = 1.0;
        while matches!(pacer.as_ref().unwrap().phase, PacerPhase::Listen(_)) {
            until += 0.01;
            path.run(&mut pacer, until);
        }
        let begun = pacer.as_mut().unwrap();
        let wrong = Rate::bits_per_sec((train_share * 1e9) as u64);
        begun.capacity = wrong;
        let PacerPhase::Climb { until: most, .. } = &mut begun.phase else { panic!("{:?}", begun.phase) };
        *most = wrong.scaled(0.85);
        path.run(&mut pacer, 8.0);
        let share = path.run(&mut pacer, 16.0);
        assert!(
            share > 0.93 && path.lost == 0.0,
            "{train_share}: {share} of the path, {} segments lost",
            path.lost / MSS
        );
    }
}

/// A cap that is far too low is no more than a start.
#[test]
fn cap_at_a_tenth_of_the_path_is_at_nine_tenths_within_ten_rtts() {
    for (mbit, rtt, queue) in [(1000.0, 302, 1e6), (1000.0, 100, 1e6), (100.0, 50, 1e5), (2500.0, 200, 2.5e6)]
    {
        let mut path = SimulatedPath::new(mbit, rtt, queue);
        let tenth = Rate::bits_per_sec((mbit * 1e5) as u64);
        let mut pacer = with_known_rate(&mut path, mbit * 0.2);
        path.run(&mut pacer, 3.0 * path.rtt.as_secs_f64());
        let now = path.now;
        pacer.as_mut().unwrap().settle(tenth);
        path.run(&mut pacer, (now + path.rtt * 10).as_secs_f64());
        let pace = pacer.as_ref().unwrap().pace.unwrap().as_bits_per_sec() as f64 / 1e6;
        assert!(pace > 0.9 * mbit, "{pace} of {mbit} Mbit/s at {rtt} ms: {:?}", pacer.unwrap().phase());
    }
}

#[test]
fn delayed_acknowledgements_do_not_cut_the_pace() {
    let mut path = SimulatedPath::new(1000.0, 302, 1e6);
    let mut pacer = Some(Pacer::default());
    path.run(&mut pacer, 10.0);
    path.hold_up(Duration::from_millis(40));
    let share = path.run(&mut pacer, 20.0);
    assert!(share > 0.93 && path.lost == 0.0, "{share} of the path, {} segments lost", path.lost / MSS);
}

#[test]
fn pace_recovers_after_competing_traffic_took_nearly_all() {
    for (rtt, others) in [(302, 0.9), (302, 0.97), (20, 0.9), (60, 0.97)] {
        let mut path =
            SimulatedPath::new(1000.0, rtt, 1e6).with_others(&[(0.0, 0.0), (8.0, others), (16.0, 0.0)]);
        let mut pacer = Some(Pacer::default());
        path.run(&mut pacer, 16.0);
        let pace = pacer.as_ref().unwrap().found().map(|pace| pace.as_bits_per_sec() as f64 / 1e9);
        assert!(
            pace.is_none_or(|pace| pace < 1.3 * (1.0 - others) + 0.03),
            "{rtt} ms beside {others}: {pace:?}"
        );
        let lost = path.others_lost / path.others_sent;
        assert!(lost < 0.1, "{rtt} ms beside {others}: these lost {lost}");
        path.run(&mut pacer, 28.0);
        let share = path.run(&mut pacer, 34.0);
        assert!(share > 0.9, "{rtt} ms after {others}: {share}");
    }
}

#[test]
fn pace_recovers_after_an_outage() {
    let mut path = SimulatedPath::new(1000.0, 100, 1e6);
    let mut pacer = Some(Pacer::default());
    path.run(&mut pacer, 6.0);
    let capacity = std::mem::replace(&mut path.capacity, 1e5);
    path.run(&mut pacer, 8.0);
    path.capacity = capacity;
    path.run(&mut pacer, 20.0);
    let share = path.run(&mut pacer, 30.0);
    assert!(share > 0.9, "{share} of the path: {:?}", pacer.map(|pacer| (pacer.phase, pacer.capacity)));
}

#[test]
fn oscillating_rtt_without_a_queue_does_not_lower_the_pace() {
    for (rtt, sway) in [(302, 4), (600, 6), (100, 2), (40, 2)] {
        let mut path = SimulatedPath::new(1000.0, rtt, 4e6);
        path.sway = Duration::from_millis(sway);
        let mut pacer = Some(Pacer::default());
        path.run(&mut pacer, 20.0);
        let share = path.run(&mut pacer, 60.0);
        assert!(share > 0.8, "{rtt} ms, {sway} ms more or less: {share} of the path");
    }
}

/// A busy host, or a virtual machine, stops for some milliseconds every so often: acknowledgements come late, or packets reach the
/// bottleneck in bursts, whose queue a pace close to the path's rate drains slowly.
#[test]
fn stalls_of_a_busy_host_do_not_hold_the_pace_down() {
    for (mbit, rtt, queue, longest) in
        [(100.0, 300, 3.75e6, 14), (1000.0, 200, 25e6, 12), (100.0, 100, 1.25e6, 10)]
    {
        for seed in 1..=2_u64 {
            let mut path = SimulatedPath::new(mbit, rtt, queue);
            let mut has_eased = false;
            let (mut pacer, mut random, mut acked_at_first) = (Some(Pacer::default()), seed, 0.0);
            while path.now < Duration::from_secs(25) {
                // Knuth's MMIX generator.
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let stall = Duration::from_millis((random >> 48) % (longest + 1));
                let pause = Duration::from_millis(20 + (random >> 33) % 160);
                if random >> 63 == 1 {
                    path.hold_up(stall)
                } else {
                    path.hold_back(stall)
                }
                let until = path.now + pause;
                path.run(&mut pacer, until.as_secs_f64());
                has_eased |= matches!(pacer.as_ref().unwrap().phase, PacerPhase::Ease { .. });
                if until < Duration::from_secs(5) {
                    acked_at_first = path.acked;
                }
            }
            assert!(has_eased, "{mbit} Mbit/s, {rtt} ms");
            let share = (path.acked - acked_at_first) / 20.0 / path.capacity;
            assert!(
                share > 0.9,
                "{mbit} Mbit/s, {rtt} ms: {share} of the path, {} segments lost",
                path.lost / MSS
            );
        }
    }
}
