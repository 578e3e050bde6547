//! Limits that the kernel at the sender's end shows.

use super::*;

#[test]
fn kernel_of_the_sender_names_window_and_buffer() {
    let course = |window| {
        let mut course = Course::at(End::Sender, 50);
        course.reading.window = Some(window);
        course.slow_start(100.0)
    };
    let window = |reading: &mut Reading| {
        sender(reading).busy += TICK;
        sender(reading).window_limited += TICK.mul_f64(0.9);
    };
    let finding = course(Bytes::kib(700)).run(10.0, 100.0, window).finding();
    assert_limit(&finding, LimitedBy::ReceiveWindow, 0.9);
    assert_limit(&course(Bytes::mib(3)).run(10.0, 100.0, window).finding(), LimitedBy::Server, 0.9);
    let buffer = |reading: &mut Reading| {
        sender(reading).busy += TICK;
        sender(reading).buffer_limited += TICK.mul_f64(0.6);
    };
    assert_limit(&course(Bytes::mib(3)).run(10.0, 100.0, buffer).finding(), LimitedBy::SendBuffer, 0.9);
    let mut open = true;
    let closing = |reading: &mut Reading| {
        window(reading);
        open = !open;
        reading.window = Some(if open { Bytes::mib(3) } else { Bytes::kib(10) });
    };
    let finding = Course::at(End::Sender, 50).run(10.0, 100.0, closing).finding();
    assert!(finding.shares.get(LimitedBy::Server) > 0.4, "a window that closes: {finding:?}");
}

/// A refusal with a wait (503): the server stops reading, acknowledges late, and the connection closes.
#[test]
fn window_that_is_unknown_or_of_loopback_is_the_servers() {
    let stopped = |window: Option<Bytes>, rtt: Duration| {
        let mut course = Course::at(End::Sender, 0);
        course.reading.min_rtt = Some(Rtt::new(rtt));
        course.run(2.0, 0.1, |reading| {
            threads(reading);
            sender(reading).busy += TICK;
            sender(reading).window_limited += TICK;
            reading.data_rtt = Some(Rtt::new(Duration::from_millis(40)));
            reading.window = window;
        })
    };
    let (loopback, long) = (Duration::from_micros(10), Duration::from_millis(30));
    for (window, rtt) in
        [(None, loopback), (Some(Bytes::kib(1)), loopback), (None, long), (Some(Bytes::ZERO), long)]
    {
        let finding = stopped(window, rtt).finding();
        assert_limit(&finding, LimitedBy::Server, 0.9);
        assert!(!finding.advice.join(" ").contains("tcp_"), "{finding:?}");
    }
    let mut waiting = stopped(Some(Bytes::kib(64)), loopback);
    waiting.reading.streams = 0;
    let finding = waiting.run(5.0, 0.0, |reading| reading.window = None).finding();
    assert_limit(&finding, LimitedBy::Server, 0.95);
}

#[test]
fn sender_below_its_windows_is_limited_by_its_buffer_unless_it_is_paced() {
    let plant = |pacing: u64| {
        move |reading: &mut Reading| {
            sender(reading).busy += TICK;
            reading.congestion_window = Some(Bytes::kib(850));
            reading.pacing_rate = Some(Rate::bits_per_sec(pacing));
            queue(reading, 8);
        }
    };
    let course = || Course::at(End::Sender, 50).slow_start(40.0);
    assert_limit(&course().run(10.0, 42.0, plant(140_000_000)).finding(), LimitedBy::SendBuffer, 0.85);
    assert_limit(&course().run(10.0, 42.0, plant(45_000_000)).finding(), LimitedBy::Path, 0.85);
    // In flight is what the congestion window allows.
    assert_limit(&course().run(10.0, 120.0, plant(300_000_000)).finding(), LimitedBy::Path, 0.85);
}

#[test]
fn sender_paced_to_what_its_buffer_lets_through_is_limited_by_its_buffer() {
    let plant = |one_in: u64| {
        let mut readings = 0;
        move |reading: &mut Reading| {
            sender(reading).busy += TICK;
            reading.congestion_window = Some(Bytes::kib(850));
            reading.pacing_rate = Some(Rate::bits_per_sec(45_000_000));
            readings += 1;
            reading.send_buffers_empty = readings % one_in == 0;
        }
    };
    let finding =
        |one_in| Course::at(End::Sender, 50).slow_start(40.0).run(10.0, 42.0, plant(one_in)).finding();
    assert_limit(&finding(2), LimitedBy::SendBuffer, 0.85);
    // The program was late for once.
    assert_limit(&finding(10), LimitedBy::Path, 0.85);
}

#[test]
fn sender_without_data_waits_for_the_server_or_is_another_program() {
    let idle = |reading: &mut Reading| sender(reading).busy += TICK / 50;
    let foreign = Course::at(End::Sender, 20).run(10.0, 1.0, idle).finding();
    assert_limit(&foreign, LimitedBy::Application, 0.9);
    let own = |reading: &mut Reading| {
        idle(reading);
        threads(reading);
    };
    assert_limit(&Course::at(End::Sender, 20).run(10.0, 1.0, own).finding(), LimitedBy::Server, 0.9);
}
