//! Limits that the kernel at the sender's end shows.

use super::*;

/// The kernel waits for the receive window for 0.9 of the time.
fn window_limited(reading: &mut Reading) {
    sender(reading).busy += TICK;
    sender(reading).window_limited += TICK.mul_f64(0.9);
}

/// The kernel waits for data in its buffer for 0.6 of the time.
pub(super) fn buffer_limited(reading: &mut Reading) {
    sender(reading).busy += TICK;
    sender(reading).buffer_limited += TICK.mul_f64(0.6);
}

#[test]
fn kernel_of_the_sender_names_window_and_buffer_and_its_option_the_pace() {
    let course = |window| sending(50).but(|reading| reading.window = Some(window)).slow_start(100.0);
    course(Bytes::kib(700)).run(10.0, 100.0, window_limited).assert_limit(ReceiveWindow, 0.9);
    course(Bytes::mib(3)).run(10.0, 100.0, window_limited).assert_limit(Server, 0.9);
    course(Bytes::mib(3)).run(10.0, 100.0, buffer_limited).assert_limit(SendBuffer, 0.9);
    let mut served = course(Bytes::mib(3));
    served.attribution = served.attribution.with_client_peer(true);
    let read = served.run(10.0, 100.0, window_limited).assert_limit(Application, 0.9);
    assert_advice(&read, 0, "it did not read what had arrived");
    for pace in [SenderPace::Requested(Rate::mbit(52)), SenderPace::Shared(Rate::mbit(104))] {
        let mut paced = course(Bytes::mib(3)).but(|reading| reading.streams = 2);
        paced.attribution = paced.attribution.with_pace(Some(pace));
        let held =
            paced.run(10.0, 100.0, |reading| sender(reading).busy += TICK * 2).assert_limit(Limit, 0.9);
        assert_advice(&held, 1, "raise --pace, or leave it out");
    }
    // What a slow, even reader leaves of its window is full.
    let begun = course(Bytes::kib(1300)).run(1.0, 80.0, window_limited);
    let rest = begun.but(|reading| reading.window = Some(Bytes::kib(512)));
    rest.run(10.0, 80.0, window_limited).assert_limit(Server, 0.85);
    // What delays the data may be a queue, or a reader, of which a window that shrinks tells.
    for (kib, limit) in [(260, Server), (310, Unknown)] {
        let begun = course(Bytes::kib(310)).but(queue(50)).run(0.5, 15.0, window_limited);
        let rest = begun.but(|reading| reading.window = Some(Bytes::kib(kib)));
        rest.run(10.0, 15.0, window_limited).assert_limit(limit, 0.7);
    }
    // It acknowledges late, too, where the window is not closed; some seconds later that is a
    // queue.
    for (seconds, limit) in [(2.0, Server), (20.0, Path)] {
        let reads = course(Bytes::mib(3)).run(1.0, 100.0, window_limited).run(seconds, 100.0, |reading| {
            queue(10)(reading);
            sender(reading).busy += TICK;
            sender(reading).window_limited += TICK.mul_f64(0.1);
        });
        reads.assert_limit(limit, 0.7);
    }
    // A window that grows under autotuning was smaller for a part of each interval.
    let mut kib = 700;
    let grows = |reading: &mut Reading| {
        window_limited(reading);
        kib += 20;
        reading.window = Some(Bytes::kib(kib));
    };
    course(Bytes::kib(700)).run(2.0, 100.0, grows).assert_limit(ReceiveWindow, 0.6);
    // From the middle on, only its variation tells.
    for (varies, limit) in [(0, ReceiveWindow), (24, Unknown)] {
        let mut observed = sending(50);
        observed.attribution = Attribution::from(End::Sender, observed.now, &observed.reading);
        let mut readings = 0;
        let reads = |reading: &mut Reading| {
            window_limited(reading);
            readings += 1;
            reading.window = Some(Bytes::kib(512 + readings % 2 * varies));
        };
        observed.run(10.0, 80.0, reads).assert_limit(limit, 0.85);
    }
}

/// A refusal with a wait (503): the server stops reading, acknowledges late, and the connection
/// closes.
#[test]
fn window_that_is_unknown_or_of_loopback_is_the_servers() {
    let stopped = |window: Option<Bytes>, rtt: Duration| {
        Course::at(End::Sender, rtt).run(2.0, 0.1, |reading| {
            threads(reading);
            sender(reading).busy += TICK;
            sender(reading).window_limited += TICK;
            reading.path.data_rtt = Some(Rtt::new(Duration::from_millis(40)));
            reading.window = window;
        })
    };
    let (loopback, long) = (Duration::from_micros(10), Duration::from_millis(30));
    let cases = [(None, loopback), (Some(Bytes::kib(1)), loopback), (None, long), (Some(Bytes::ZERO), long)];
    for (window, rtt) in cases {
        let finding = stopped(window, rtt).assert_limit(Server, 0.9);
        assert!(!finding.advice.join(" ").contains("tcp_"), "{finding:?}");
    }
    let waiting = stopped(Some(Bytes::kib(64)), loopback).but(|reading| reading.streams = 0);
    waiting.run(5.0, 0.0, |reading| reading.window = None).assert_limit(Server, 0.95);
}

#[test]
fn sender_below_its_windows_is_limited_by_its_buffer_unless_it_is_paced() {
    let course = |pacing: u64| {
        sending(50).slow_start(40.0).but(|reading| {
            reading.sender.congestion_window = Some(Bytes::kib(850));
            reading.sender.pacing = Some(Rate::bits_per_sec(pacing * 1_000_000));
        })
    };
    let of_others = |reading: &mut Reading| {
        sender(reading).busy += TICK;
        queue(8)(reading);
    };
    let queued = |reading: &mut Reading| {
        threads(reading);
        of_others(reading);
    };
    course(140).run(10.0, 42.0, queued).assert_limit(SendBuffer, 0.85);
    // Another program may have had no more to send.
    course(140).run(10.0, 42.0, of_others).assert_limit(Application, 0.85);
    course(45).run(10.0, 42.0, queued).assert_limit(Path, 0.85);
    // In flight is what the congestion window allows.
    course(300).run(10.0, 120.0, queued).assert_limit(Path, 0.85);
    // Paced to what the buffer lets through, which is seen empty in one of some readings.
    for (one_in, limit) in [(2, SendBuffer), (10, Path)] {
        let mut readings = 0;
        let emptied = |reading: &mut Reading| {
            threads(reading);
            sender(reading).busy += TICK;
            readings += 1;
            reading.sender.buffers_empty = readings % one_in == 0;
        };
        course(45).run(10.0, 42.0, emptied).assert_limit(limit, 0.85);
    }
}
