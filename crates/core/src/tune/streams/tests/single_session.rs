//! One session without competing sessions.

use super::super::{CountTuner, MAX_INITIAL_STREAMS, StreamTuner, StreamTunerStart};
use super::*;

#[test]
fn papers_path_is_full_before_apt_has_measured_two_chunks() {
    for (rtt_ms, streams) in [(100.0, 19..=22), (20.0, 4..=6)] {
        let mut path = papers(rtt_ms);
        let best = best_fixed(&path, &[1, 2, 4, 5, 6, 8, 16, 20, 24, 32], 6.0, 60.0);
        let mut session = path.session(0.0, FOREVER);
        // Two chunks of 3 s each.
        share(&mut path, &mut session, 0.0, 6.0);
        assert!(streams.contains(&session.streams()), "{:?}", session.trace);
        let got = share(&mut path, &mut session, 6.0, 60.0);
        assert!(got >= 0.95 * best, "{got} of {best} at {rtt_ms} ms: {:?}", session.trace);
    }
}

#[test]
fn capped_streams_multiply_until_they_fill_a_long_fat_path_and_are_concluded() {
    for (queue, least) in [(250e6, 0.95), (2e6, 0.9)] {
        let mut path = long_fat(STOCK).but(|path| path.buffer = queue);
        let mut session = path.session(0.0, FOREVER);
        share(&mut path, &mut session, 0.0, 2.0);
        assert!(session.tuner.as_ref().unwrap().conclusion().is_none(), "in the midst of slow start");
        let got = share(&mut path, &mut session, 20.0, 60.0);
        // Slow start takes 2.2 s to reach the window, and half a second shows that the goodput no
        // longer grows.
        assert!(session.streams_at(5.0) >= 64, "{:?}", session.trace);
        assert!(got > least, "{got} with a queue of {queue}: {:?}", session.trace);
        let found = session.tuner.unwrap().conclusion().unwrap();
        let gbit = found.rate.as_bits_per_sec() as f64 / 1e9;
        assert!((9.0..10.5).contains(&gbit) && (70..=100).contains(&found.streams), "{queue}: {found:?}");
    }
}

#[test]
fn several_streams_leave_slow_start_sooner_than_one() {
    for (size, most) in [(GIB, 0.85), (8.0 * GIB, 0.95)] {
        let path = long_fat(OPEN);
        let (own, _) = time(path.clone(), path.session(0.0, size), 60.0);
        let (one, _) = time(path, SimulatedSession::fixed(1, 0.0, size), 60.0);
        assert!(own < most * one, "{own} s where one stream takes {one} s");
    }
}

#[test]
fn few_streams_remain_if_one_fills_the_path() {
    for (path, few) in [
        (long_fat(OPEN), 3),
        (SimulatedPath::new(1000.0, 30.0, 1e6, OPEN), 4),
        (SimulatedPath::new(10_000.0, 0.5, 1e6, OPEN), 1),
    ] {
        let one = best_fixed(&path, &[1], 20.0, 120.0);
        let (got, session) = alone(path, 20.0, 120.0);
        assert!(got > 0.96 * one && session.streams() <= few, "{got} of {one}: {:?}", session.trace);
    }
}

#[test]
fn sender_with_a_known_window_adds_streams_before_slow_start_ends() {
    // The first streams carry less than half of the line.
    let path = || long_fat(STOCK / 2.0);
    let (known, trace) = time(path(), path().sending(0.0, 8.0 * GIB), 60.0);
    let (unknown, other) = time(path(), path().session(0.0, 8.0 * GIB), 60.0);
    assert!(known < unknown - 0.4, "{known} {trace:?} {unknown} {other:?}");
    let (_, trace) = time(long_fat(STOCK), long_fat(STOCK).sending(0.0, 8.0 * GIB), 60.0);
    // The path holds 250 MB, in windows of 3.2 MB, plus a margin.
    assert!(trace.iter().all(|(_, streams)| *streams <= 85), "{trace:?}");
}

#[test]
fn known_window_adds_no_streams_to_a_path_that_few_streams_fill() {
    for (mbit, rtt_ms, queue) in [
        (100.0, 20.0, 250e3),
        (100.0, 200.0, 2.5e6),
        (1000.0, 100.0, 12e6),
        (1000.0, 302.0, 1e6),
        (1000.0, 302.0, 38e6),
    ] {
        let path = SimulatedPath::new(mbit, rtt_ms, queue, 4e6);
        let known = time(path.clone(), path.sending(0.0, FOREVER), 20.0);
        let unknown = time(path.clone(), path.session(0.0, FOREVER), 20.0);
        assert_eq!(known, unknown, "{mbit} Mbit/s, {rtt_ms} ms");
    }
}

#[test]
fn random_losses_raise_the_number_of_streams() {
    let path = SimulatedPath::new(1000.0, 100.0, 12e6, OPEN).but(|path| path.accidents = 1e-4);
    let twenty = best_fixed(&path, &[20], 20.0, 100.0);
    let (got, session) = alone(path, 20.0, 100.0);
    assert!(got > 0.8 && got > 1.5 * twenty, "{got} where 20 get {twenty}: {:?}", session.trace);
}

#[test]
fn slow_disk_or_cpu_limits_the_number_of_streams() {
    // 19 streams of 16 MB/s fill the disk.
    let (got, session) = alone(long_fat(STOCK).but(|path| path.disk = 3e8), 20.0, 60.0);
    assert!(got > 0.95 * 0.24 && (18..=22).contains(&session.streams()), "{got}: {:?}", session.trace);
    assert!(session.trace.iter().all(|(_, streams)| *streams <= MAX_INITIAL_STREAMS), "{:?}", session.trace);
    // Each stream is capped, so that more streams would gain with a faster CPU; it carries a third
    // of the path, and less with each further stream.
    let starved = || long_fat(STOCK).but(|path| path.cpu = (4e8, 0.004));
    let (_, seen) = alone(starved(), 0.0, 60.0);
    let (_, unseen) = alone(starved().but(|path| path.counts_pressure = false), 0.0, 60.0);
    assert!(seen.trace.iter().all(|(_, streams)| *streams <= MAX_INITIAL_STREAMS), "{:?}", seen.trace);
    assert!(seen.streams() <= 24, "{:?}", seen.trace);
    let (own, other) = (seen.received, unseen.received);
    assert!(own > 1.02 * other, "{own} {other}: {:?}", unseen.trace);
}

#[test]
fn number_of_streams_follows_cross_traffic() {
    let mut path = papers(100.0).but(|path| path.left_by_others = vec![(40.0, 0.4), (100.0, 1.0)]);
    let mut session = path.session(0.0, FOREVER);
    share(&mut path, &mut session, 0.0, 50.0);
    let crowded = share(&mut path, &mut session, 50.0, 100.0) / 0.4;
    assert!(crowded > 0.9 && session.streams() < 16, "{crowded}: {:?}", session.trace);
    let free = share(&mut path, &mut session, 136.0, 160.0);
    assert!(free > 0.95, "{free}: {:?}", session.trace);
}

#[test]
fn remembered_path_is_full_at_once_and_a_changed_one_costs_little() {
    let mut path = long_fat(STOCK);
    let mut session = path.remembering(0.0, FOREVER, remembered(200, 10_000, 82));
    let got = share(&mut path, &mut session, 3.0, 30.0);
    let trace = session.trace;
    assert!(got > 0.97 && trace.iter().all(|(_, n)| (70..=100).contains(n)), "{got}: {trace:?}");
    // The path has a tenth of the rate, and needs a tenth of the streams.
    let mut slower = SimulatedPath::new(1000.0, 200.0, 5e6, STOCK);
    let mut session = slower.remembering(0.0, FOREVER, remembered(200, 10_000, 82));
    let got = share(&mut slower, &mut session, 10.0, 60.0);
    assert!(got > 0.9 && session.streams() < 50, "{got}: {:?}", session.trace);
    // The remembered number is one stream.
    let mut capped = long_fat(STOCK);
    let mut session = capped.remembering(0.0, FOREVER, remembered(200, 10_000, 1));
    let got = share(&mut capped, &mut session, 20.0, 60.0);
    assert!(got > 0.9, "{got}: {:?}", session.trace);
}

#[test]
fn small_remainder_or_a_limit_of_the_server_keeps_the_number_low() {
    let mut path = long_fat(STOCK);
    let mut session = path.session(0.0, 12e6);
    share(&mut path, &mut session, 0.0, 30.0);
    assert_eq!((session.left, session.streams(), session.trace.len()), (0.0, 1, 1));
    let (_, session) = alone(long_fat(STOCK).but(|path| path.server_takes = 5), 0.0, 50.0);
    assert_eq!((session.streams(), session.changes(1.0)), (5, 0), "{:?}", session.trace);
}

#[test]
fn number_that_a_cap_held_back_at_the_begin_is_taken_when_the_cap_is_raised() {
    let rtt = Rtt::new(Duration::from_millis(100));
    let start = StreamTunerStart { rtt, left: Bytes::gib(1), most: 128, remembered: None, bound: None };
    let mut tuner = StreamTuner::new(&start);
    for (cap, streams) in [(1, 1), (16, 16), (4, 4), (64, 33)] {
        tuner.set_cap(cap, Duration::ZERO);
        assert_eq!(tuner.streams(), streams, "{cap}");
    }
}
