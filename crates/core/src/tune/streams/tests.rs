//! The tuner on paths in virtual time, held against what it must reach.

mod path;

use path::{Path, Session};

const FOREVER: f64 = 1e15;
/// A send buffer of 4 MB (the stock tcp_wmem), less its bookkeeping.
const STOCK: f64 = 3.2e6;

/// 10 Gbit/s, 200 ms, a queue of one BDP.
fn long_fat(window: f64) -> Path {
    Path::new(10_000.0, 200.0, 250e6, window)
}

/// Returns what a session receives until `end`, after `from`, over what the path carries.
fn share(path: &mut Path, session: &mut Session, from: f64, end: f64) -> f64 {
    let capacity = path.capacity;
    path.run(std::slice::from_mut(session), from);
    let before = session.received;
    path.run(std::slice::from_mut(session), end);
    (session.received - before) / (end - from) / capacity
}

#[test]
fn capped_streams_multiply_until_they_fill_a_long_fat_path() {
    let mut path = long_fat(STOCK);
    let mut session = path.session(0.0, FOREVER);
    share(&mut path, &mut session, 0.0, 20.0);
    // Slow start takes a stream 2.2 s to its window.
    assert!(session.streams_at(5.0) >= 64, "{:?}", session.trace);
    assert!(share(&mut path, &mut session, 20.0, 60.0) > 0.94, "{:?}", session.trace);
}

#[test]
fn a_refusing_server_is_asked_for_no_more() {
    let mut path = long_fat(STOCK).but(|path| path.server_takes = 5);
    let mut session = path.session(0.0, FOREVER);
    share(&mut path, &mut session, 0.0, 50.0);
    assert_eq!((session.streams(), session.changes(1.0)), (5, 0), "{:?}", session.trace);
}

#[test]
fn it_comes_near_the_number_that_is_known_to_fill_the_path() {
    let known = share(&mut long_fat(STOCK), &mut Session::fixed(85, 0.0, FOREVER), 20.0, 60.0);
    let mut path = long_fat(STOCK);
    let mut session = path.session(0.0, FOREVER);
    let own = share(&mut path, &mut session, 20.0, 60.0);
    assert!(own > 0.94 * known, "{own} of {known}: {:?}", session.trace);
}
