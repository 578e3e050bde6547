//! One session without competing sessions.

use super::super::MOST_INITIAL_STREAMS;
use super::*;
use crate::tune::streams::Remembered;
use crate::units::{Rate, Rtt};
use std::time::Duration;

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
fn capped_streams_multiply_until_they_fill_a_long_fat_path() {
    for (queue, least) in [(250e6, 0.95), (2e6, 0.9)] {
        let mut path = long_fat(STOCK).but(|path| path.buffer = queue);
        let mut session = path.session(0.0, FOREVER);
        share(&mut path, &mut session, 0.0, 20.0);
        // Slow start takes 2.2 s to reach the window, and half a second shows that the goodput no longer grows.
        assert!(session.streams_at(5.0) >= 64, "{:?}", session.trace);
        let got = share(&mut path, &mut session, 20.0, 60.0);
        assert!(got > least, "{got} with a queue of {queue}: {:?}", session.trace);
    }
}

#[test]
fn several_streams_leave_slow_start_sooner_than_one() {
    for (size, most) in [(GIB, 0.85), (8.0 * GIB, 0.95)] {
        let time = |mut session: SimulatedSession| {
            let mut path = long_fat(OPEN);
            path.run(std::slice::from_mut(&mut session), 60.0);
            path.now()
        };
        let (one, own) =
            (time(SimulatedSession::fixed(1, 0.0, size)), time(long_fat(OPEN).session(0.0, size)));
        assert!(own < most * one, "{own} s where one stream takes {one} s");
    }
}

#[test]
fn few_streams_remain_if_one_fills_the_path() {
    for (mut path, few) in [
        (long_fat(OPEN), 3),
        (SimulatedPath::new(1000.0, 30.0, 1e6, OPEN), 4),
        (SimulatedPath::new(10_000.0, 0.5, 1e6, OPEN), 1),
    ] {
        let one = best_fixed(&path, &[1], 20.0, 120.0);
        let mut session = path.session(0.0, FOREVER);
        let got = share(&mut path, &mut session, 20.0, 120.0);
        assert!(got > 0.96 * one && session.streams() <= few, "{got} of {one}: {:?}", session.trace);
    }
}

#[test]
fn sender_with_a_known_window_adds_streams_before_slow_start_ends() {
    let time = |window, session: fn(&SimulatedPath) -> SimulatedSession| {
        let mut path = long_fat(window);
        let mut session = session(&path);
        path.run(std::slice::from_mut(&mut session), 60.0);
        (path.now(), session.trace)
    };
    // The first streams carry less than half of the line.
    let (known, trace) = time(STOCK / 2.0, |path| path.sending(0.0, 8.0 * GIB));
    let (unknown, other) = time(STOCK / 2.0, |path| path.session(0.0, 8.0 * GIB));
    assert!(known < unknown - 0.4, "{known} {trace:?} {unknown} {other:?}");
    let (_, trace) = time(STOCK, |path| path.sending(0.0, 8.0 * GIB));
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
        let run = |mut session: SimulatedSession| {
            let mut path = path.clone();
            path.run(std::slice::from_mut(&mut session), 20.0);
            session.trace
        };
        let (known, unknown) = (run(path.sending(0.0, FOREVER)), run(path.session(0.0, FOREVER)));
        assert_eq!(known, unknown, "{mbit} Mbit/s, {rtt_ms} ms");
    }
}

#[test]
fn random_losses_raise_the_number_of_streams() {
    let mut path = SimulatedPath::new(1000.0, 100.0, 12e6, OPEN).but(|path| path.accidents = 1e-4);
    let twenty = best_fixed(&path, &[20], 20.0, 100.0);
    let mut session = path.session(0.0, FOREVER);
    let got = share(&mut path, &mut session, 20.0, 100.0);
    assert!(got > 0.8 && got > 1.5 * twenty, "{got} where 20 get {twenty}: {:?}", session.trace);
}

#[test]
fn slow_disk_limits_the_number_of_streams() {
    // 19 streams of 16 MB/s fill the disk.
    let mut path = long_fat(STOCK).but(|path| path.disk = 3e8);
    let mut session = path.session(0.0, FOREVER);
    let got = share(&mut path, &mut session, 20.0, 60.0);
    assert!(got > 0.95 * 0.24 && (18..=22).contains(&session.streams()), "{got}: {:?}", session.trace);
    assert!(session.trace.iter().all(|(_, streams)| *streams <= MOST_INITIAL_STREAMS), "{:?}", session.trace);
}

/// Each stream is capped, so that more streams would gain with a faster CPU; it carries a third of the path, and less
/// with each further stream.
#[test]
fn starved_cpu_sheds_streams_and_never_adds_any() {
    let starved = || long_fat(STOCK).but(|path| path.cpu = (4e8, 0.004));
    let run = |mut path: SimulatedPath| {
        let mut session = path.session(0.0, FOREVER);
        share(&mut path, &mut session, 0.0, 60.0);
        session
    };
    let (seen, unseen) = (run(starved()), run(starved().but(|path| path.counts_pressure = false)));
    assert!(seen.trace.iter().all(|(_, streams)| *streams <= MOST_INITIAL_STREAMS), "{:?}", seen.trace);
    assert!(seen.streams() <= 24, "{:?}", seen.trace);
    assert!(
        seen.received > 1.02 * unseen.received,
        "{} {}: {:?}",
        seen.received,
        unseen.received,
        unseen.trace
    );
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

fn remembered(rtt_ms: u64, mbit: u64, streams: usize) -> Option<Remembered> {
    let rate = Rate::bits_per_sec(mbit * 1_000_000);
    Some(Remembered { rtt: Rtt::new(Duration::from_millis(rtt_ms)), rate, streams })
}

#[test]
fn remembered_path_is_full_at_once() {
    let mut path = long_fat(STOCK);
    let mut session = path.remembering(0.0, FOREVER, remembered(200, 10_000, 82));
    let got = share(&mut path, &mut session, 3.0, 30.0);
    assert!(
        got > 0.97 && session.trace.iter().all(|(_, n)| (70..=100).contains(n)),
        "{got}: {:?}",
        session.trace
    );
}

#[test]
fn changed_remembered_path_costs_little() {
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
fn concluded_number_of_streams_is_the_number_that_the_path_needs() {
    let mut path = long_fat(STOCK);
    let mut session = path.session(0.0, FOREVER);
    share(&mut path, &mut session, 0.0, 2.0);
    assert!(session.tuner.as_ref().unwrap().conclusion().is_none(), "in the midst of slow start");
    share(&mut path, &mut session, 2.0, 50.0);
    let found = session.tuner.unwrap().conclusion().unwrap();
    let gbit = found.rate.as_bits_per_sec() as f64 / 1e9;
    assert!((9.0..10.5).contains(&gbit) && (70..=100).contains(&found.streams), "{found:?}");
}

#[test]
fn small_remainder_uses_one_stream() {
    let mut path = long_fat(STOCK);
    let mut session = path.session(0.0, 12e6);
    share(&mut path, &mut session, 0.0, 30.0);
    assert_eq!((session.left, session.streams(), session.trace.len()), (0.0, 1, 1));
}

#[test]
fn server_limit_of_connections_is_not_exceeded() {
    let mut path = long_fat(STOCK).but(|path| path.server_takes = 5);
    let mut session = path.session(0.0, FOREVER);
    share(&mut path, &mut session, 0.0, 50.0);
    assert_eq!((session.streams(), session.changes(1.0)), (5, 0), "{:?}", session.trace);
}
