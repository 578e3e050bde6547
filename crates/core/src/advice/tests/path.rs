//! The path: queues that stand, drain, or absorb probes.

use super::*;

#[test]
fn bufferbloat_is_the_path_and_named() {
    let bloat = |reading: &mut Reading| queue(reading, 400);
    let finding = Course::at(End::Receiver, 20).run(10.0, 50.0, bloat).finding();
    assert_limit(&finding, LimitedBy::Path, 0.9);
    assert!(finding.advice[0].contains("raises the RTT from 20 ms to 420"), "{:?}", finding.advice);
}

/// A sender that fills its small buffer in one burst a round trip: the burst waits in the queue, which drains each time.
#[test]
fn queue_that_drains_between_bursts_is_not_the_path() {
    let mut ticks = 0;
    let bursts = |reading: &mut Reading| {
        ticks += 1;
        queue(reading, if ticks % 3 == 0 { 0 } else { 15 });
    };
    let finding = Course::at(End::Receiver, 50).run(10.0, 50.0, bursts).finding();
    assert_limit(&finding, LimitedBy::Server, 0.8);
}

/// BBR on a path of 50 Mbit/s and 50 ms: every eighth round trip it sends a quarter more, which waits in the queue.
fn probing(rate_falls: f64) -> Finding {
    let mut course = Course::at(End::Receiver, 50).slow_start(48.0);
    for _ in 0..15 {
        course = course.run(0.3, 48.3, |reading| queue(reading, 0));
        course = course.run(0.1, 48.3 * (1.0 - rate_falls), |reading| queue(reading, 11));
    }
    course.finding()
}

#[test]
fn sender_that_probes_and_is_held_by_the_bottleneck_is_limited_by_the_path() {
    assert_limit(&probing(0.0), LimitedBy::Path, 0.75);
    // An even sender whose data are delayed by others: as much less arrives as the delay has grown.
    assert_eq!(probing(0.11).limit, LimitedBy::Server, "{:?}", probing(0.11));
}
