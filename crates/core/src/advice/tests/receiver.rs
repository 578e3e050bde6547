//! Limits seen at the receiver's end: its window, the server, and slow start.

use super::*;

#[test]
fn receive_window_full_without_a_queue_is_the_limit() {
    let small = |reading: &mut Reading| reading.window = Some(Bytes::mib(3));
    let finding = Course::at(End::Receiver, 200).slow_start(110.0).run(20.0, 120.0, small).finding();
    assert_limit(&finding, LimitedBy::ReceiveWindow, 0.85);
    assert!(finding.advice[1].contains("128 MiB / 200 ms"), "{:?}", finding.advice);
    // No window holds the rate below what it allows.
    let closing = |reading: &mut Reading| reading.window = Some(Bytes::kib(96));
    let finding = Course::at(End::Receiver, 200).slow_start(110.0).run(20.0, 120.0, closing).finding();
    assert_eq!(finding.shares.get(LimitedBy::ReceiveWindow), 0.0, "{finding:?}");
}

#[test]
fn window_held_near_the_bdp_behind_a_queue_is_the_path() {
    let held = |reading: &mut Reading| {
        reading.window = Some(Bytes::new(3_750_000));
        queue(reading, 50);
    };
    let finding = Course::at(End::Receiver, 200).slow_start(110.0).run(20.0, 120.0, held).finding();
    assert_limit(&finding, LimitedBy::Path, 0.85);
}

#[test]
fn even_rate_with_a_stock_buffer_in_flight_is_the_servers_send_buffer() {
    let finding = Course::at(End::Receiver, 200).slow_start(110.0).run(20.0, 110.0, |_| ()).finding();
    assert_limit(&finding, LimitedBy::ServerSendBuffer, 0.8);
    assert!(
        finding.advice[0].starts_with("limited by the server's send buffer for "),
        "{:?}",
        finding.advice
    );
    assert!(finding.advice[1].contains("tcp_wmem on the server to 256 MiB: "), "{:?}", finding.advice);
}

#[test]
fn even_rate_of_a_server_that_paces_itself_is_the_path() {
    let mut course = Course::at(End::Receiver, 200);
    course.attribution = course.attribution.with_pacing_peer(true);
    assert_limit(&course.slow_start(110.0).run(20.0, 110.0, |_| ()).finding(), LimitedBy::Path, 0.8);
}

#[test]
fn even_low_rate_with_an_open_window_is_a_limit_of_the_server() {
    let finding = Course::at(End::Receiver, 20).run(20.0, 20.0, |_| ()).finding();
    assert_limit(&finding, LimitedBy::Server, 0.8);
    assert!(finding.advice[1].contains("--streams 4"), "{:?}", finding.advice);
}

#[test]
fn even_rate_is_one_on_average() {
    let mut course = Course::at(End::Receiver, 50);
    for _ in 0..50 {
        course = course.run(0.1, 70.0, |_| ()).run(0.1, 110.0, |_| ());
    }
    assert_limit(&course.finding(), LimitedBy::Server, 0.8);
}

#[test]
fn jittering_rate_without_a_queue_is_not_the_path() {
    // A small send buffer that is sent in bursts: 12 to 50 Mbit/s in intervals of 100 ms, and no trend.
    let rates = [13.0, 36.0, 22.0, 19.0, 49.0, 31.0, 15.0, 24.0, 38.0, 20.0, 29.0];
    let mut course = Course::at(End::Receiver, 50).slow_start(24.0);
    for round in 0..60_usize {
        course = course.run(0.1, rates[(round * round + round) % rates.len()], |_| ());
    }
    assert_limit(&course.finding(), LimitedBy::Server, 0.6);
}

#[test]
fn bursts_with_gaps_are_a_rate_limit_of_the_server() {
    let mut course = Course::at(End::Receiver, 20);
    for _ in 0..20 {
        course = course.run(0.2, 200.0, |_| ()).run(0.8, 0.0, |_| ());
    }
    assert_limit(&course.finding(), LimitedBy::Server, 0.8);
}

#[test]
fn transfer_of_a_few_round_trips_is_slow_start() {
    let finding = Course::at(End::Receiver, 200).slow_start(1000.0).finding();
    assert_limit(&finding, LimitedBy::SlowStart, 0.95);
}

#[test]
fn fast_transfer_over_a_short_path_is_not_slow_start() {
    let mut course = Course::at(End::Receiver, 0);
    course.reading.min_rtt = Some(Rtt::new(Duration::from_micros(50)));
    course.reading.data_rtt = course.reading.min_rtt;
    assert_limit(&course.run(1.0, 9000.0, |_| ()).finding(), LimitedBy::Path, 0.85);
}

#[test]
fn late_first_byte_is_the_server_and_a_timely_one_slow_start() {
    let late = Course::at(End::Receiver, 20).run(5.0, 0.0, |_| ()).run(1.0, 100.0, |_| ());
    assert_limit(&late.finding(), LimitedBy::Server, 0.7);
    let finding = Course::at(End::Receiver, 200).run(0.6, 0.0, |_| ()).slow_start(500.0).finding();
    assert_limit(&finding, LimitedBy::SlowStart, 0.9);
}
