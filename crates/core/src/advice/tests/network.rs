//! Limits seen at the receiver's end: its window, queues of the path, the server, and slow start.

use super::*;

/// A transfer that slow start brings to 110 Mbit/s at an RTT of 200 ms.
fn long() -> Course {
    receiving(200).slow_start(110.0)
}

#[test]
fn receive_window_full_without_a_queue_is_the_limit() {
    let window = |bytes| move |reading: &mut Reading| reading.window = Some(bytes);
    let finding = long().run(20.0, 120.0, window(Bytes::mib(3))).assert_limit(ReceiveWindow, 0.85);
    assert_advice(&finding, 1, "raise the receiver's buffer: net.ipv4.tcp_rmem, ");
    // No window holds the rate below what it allows.
    let finding = long().run(20.0, 120.0, window(Bytes::kib(96))).finding();
    assert_eq!(finding.shares.get(ReceiveWindow), 0.0, "{finding:?}");
    // Near the BDP, behind a queue.
    let held = long().but(window(Bytes::new(3_750_000)));
    held.run(20.0, 120.0, queue(50)).assert_limit(Path, 0.85);
}

#[test]
fn even_rate_with_a_stock_buffer_in_flight_is_the_servers_send_buffer_unless_it_paces_itself() {
    let finding = long().go(20.0, 110.0).assert_limit(ServerSendBuffer, 0.8);
    assert!(finding.advice[0].starts_with("limited by the server's send buffer for "), "{finding:?}");
    assert_advice(&finding, 1, "does using 2 connections gain, or a larger net.ipv4.tcp_wmem ");
    let rate = |mbit| Pace::Rate(Rate::mbit(mbit));
    for (stated, requested, limit, cure) in [
        (Pace::Auto, None, Path, "longhaul probe tells what the path holds"),
        (
            rate(115),
            Some(rate(300)),
            Server,
            "ask the server's operator to raise serve --pace above 115 Mbit/s",
        ),
        (rate(115), None, Server, "ask the server's operator to raise serve --pace above 115 Mbit/s"),
        (rate(115), Some(rate(115)), Limit, "raise --pace, or leave it out"),
        (rate(200), Some(rate(200)), ServerSendBuffer, "does using 2 connections gain"),
        (Pace::Off, Some(Pace::Off), ServerSendBuffer, "does using 2 connections gain"),
    ] {
        let mut course = receiving(200);
        course.attribution = course.attribution.with_pace(SenderPace::of(stated, requested));
        let finding = course.slow_start(110.0).go(20.0, 110.0).assert_limit(limit, 0.8);
        assert_advice(&finding, 1, cure);
    }
    // Its bursts are late where threads wait, and a reply begins with a large one.
    let mut late = receiving(20);
    late.attribution = late.attribution.with_pace(SenderPace::of(rate(20), None));
    let rates = [60.0].into_iter().chain([6.0, 38.0, 1.0, 35.0].into_iter().cycle().take(60));
    rates.fold(late, |course, mbit| course.go(0.1, mbit)).assert_limit(Server, 0.8);
    // A server that pauses sends as much at other rates.
    let rates = [67.0, 153.0].into_iter().cycle().take(100);
    rates.fold(long(), |course, mbit| course.go(0.2, mbit)).assert_limit(Unknown, 0.7);
    // Half a round trip shows single bursts.
    let mut course = long().go(20.0, 110.0).run(0.1, 0.0, queue(90));
    assert_eq!(course.attribution.end().unwrap().limit, ServerSendBuffer);
    // More than a stock buffer: nothing shows why.
    let finding = receiving(200).slow_start(400.0).go(20.0, 400.0).assert_limit(Unknown, 0.8);
    assert_advice(&finding, 1, "longhaul probe tells what the path holds, and a record at the server");
}

#[test]
fn low_rate_with_an_open_window_is_a_limit_of_the_server() {
    let finding = receiving(20).go(20.0, 20.0).assert_limit(Server, 0.8);
    assert_advice(&finding, 1, "does using 4 connections gain, or a higher limit at the server?");
    // Bursts with gaps.
    let mut bursts = receiving(20);
    for _ in 0..20 {
        bursts = bursts.go(0.2, 200.0).go(0.8, 0.0);
    }
    bursts.assert_limit(Server, 0.8);
    // One among flows that fill a bottleneck loses packets, and pauses while others have their
    // turn.
    let late = |age_ms| {
        move |reading: &mut Reading| {
            queue(300)(reading);
            reading.packets.age = Duration::from_millis(age_ms);
        }
    };
    let bursts = |course: Course, age_ms| {
        (0..8).fold(course, |course, _| course.run(0.2, 200.0, late(0)).run(0.8, 5.0, late(age_ms)))
    };
    bursts(receiving(20), 400).assert_limit(Server, 0.65);
    bursts(receiving(20), 100).assert_limit(Path, 0.65);
    bursts(receiving(20).lose(9), 100).assert_limit(Path, 0.65);
    // A small send buffer that is sent in bursts: 12 to 50 Mbit/s in intervals of 100 ms, and no
    // trend.
    let rates = [13.0, 36.0, 22.0, 19.0, 49.0, 31.0, 15.0, 24.0, 38.0, 20.0, 29.0];
    let mut jitter = receiving(50).slow_start(24.0);
    for round in 0..60_usize {
        jitter = jitter.go(0.1, rates[(round * round + round) % rates.len()]);
    }
    jitter.assert_limit(Server, 0.6);
}

#[test]
fn transfer_of_a_few_round_trips_is_slow_start() {
    receiving(200).slow_start(1000.0).assert_limit(SlowStart, 0.95);
    // What reaches this host only is sent so slowly: there is no path.
    Course::at(End::Receiver, Duration::from_micros(10)).go(5.0, 30.0).assert_limit(Server, 0.85);
    // Not over a short path.
    Course::at(End::Receiver, Duration::from_micros(50)).go(1.0, 9000.0).assert_limit(Unknown, 0.85);
    // A late first byte is the server, and a timely one slow start.
    receiving(20).go(5.0, 0.0).go(1.0, 100.0).assert_limit(Server, 0.7);
    receiving(200).go(0.6, 0.0).slow_start(500.0).assert_limit(SlowStart, 0.9);
    // It has ended where the rate doubles no more, whether that grows on or falls below what the
    // path has carried.
    let grown =
        (0..12).fold(receiving(100).slow_start(16.0), |course, n| course.go(0.1, 16.0 * 1.2_f64.powi(n)));
    grown.assert_limit(Unknown, 0.7);
    let mut course = receiving(100);
    course.attribution = course.attribution.with_pace(Some(SenderPace::Path));
    let slowed = course.slow_start(600.0).go(4.0, 150.0).assert_limit(Server, 0.6);
    assert_advice(&slowed, 0, "it sends, below what the path has carried without a loss or a queue, ");
}

#[test]
fn bufferbloat_is_the_path_and_named_and_a_queue_that_drains_between_bursts_is_not() {
    let finding = receiving(20).run(10.0, 50.0, queue(400)).assert_limit(Path, 0.9);
    assert_advice(&finding, 0, "raises the RTT from 20 ms to 420");
    // A sender that fills its small buffer in one burst a round trip: the burst waits in the queue.
    let mut ticks = 0;
    let mut bursts = |reading: &mut Reading| {
        ticks += 1;
        queue(if ticks % 3 == 0 { 0 } else { 15 })(reading);
    };
    // An interval has two of them or three.
    let rates = [40.0, 60.0].into_iter().cycle().take(100);
    rates.fold(receiving(50), |course, mbit| course.run(0.1, mbit, &mut bursts)).assert_limit(Server, 0.7);
}

/// nginx with a limit of 10 MB/s sends 2 MiB and waits for the rest of 200 ms. A flow among others
/// pauses, too.
#[test]
fn sender_that_pauses_delays_its_data_without_a_queue() {
    let sends = |course: Course, pause_ms| {
        let mut ticks = 0;
        course.run(10.0, 80.0, move |reading| {
            ticks += 1;
            queue(79)(reading);
            reading.packets.age = Duration::from_millis(if ticks % 2 == 0 { pause_ms } else { 4 });
        })
    };
    // A relay in the client's host, which passes on a window in each round trip to the server.
    let relay = Course::at(End::Receiver, Duration::from_micros(50));
    sends(relay, 170).assert_limit(Server, 0.85);
    // However shortly it pauses, there is no bottleneck on the way to it.
    sends(Course::at(End::Receiver, Duration::from_micros(10)), 50).assert_limit(Server, 0.85);
    // A window that is filled in one burst a round trip.
    let filled = receiving(105).but(|reading| reading.window = Some(Bytes::new(1_100_000)));
    sends(filled, 170).assert_limit(ReceiveWindow, 0.85);
    // Flows that share a bottleneck pause and lose packets, too.
    sends(receiving(105).lose(9), 170).assert_limit(Unknown, 0.85);
    sends(receiving(105), 84).assert_limit(Unknown, 0.85);
    receiving(105).but(|reading| reading.path.data_rtt = None).go(10.0, 20.0).assert_limit(Unknown, 0.85);
    let paused = sends(receiving(105), 170).assert_limit(Server, 0.85);
    assert_advice(&paused, 0, "it pauses between bursts, and sends 80.0 Mbit/s over one connection");
    let queued = sends(receiving(105), 50).assert_limit(Path, 0.85).witnesses.remove(0);
    let rtts = [queued.min_rtt, queued.data_rtt].map(|rtt| rtt.unwrap().get().as_millis());
    assert_eq!((queued.witness, rtts), (Witness::StandingQueue, [105, 184]));
}

/// BBR on a path of 50 Mbit/s and 50 ms: every eighth round trip it sends a quarter more, which
/// waits in the queue.
#[test]
fn sender_that_probes_and_is_held_by_the_bottleneck_is_limited_by_the_path() {
    let probing = |rate_falls: f64| {
        let mut course = receiving(50).slow_start(48.0);
        for _ in 0..15 {
            course = course.run(0.3, 48.3, queue(0)).run(0.1, 48.3 * (1.0 - rate_falls), queue(11));
        }
        course
    };
    probing(0.0).assert_limit(Path, 0.75);
    // At a low rate, or where packets are not counted, the rates of intervals are no evidence.
    for counted in [true, false] {
        let mut ticks = 0;
        let jittery = |reading: &mut Reading| {
            ticks += 1;
            queue(if ticks % 4 == 0 { 11 } else { 0 })(reading);
            reading.packets.arrived *= u64::from(counted);
        };
        let mbit = if counted { 2.0 } else { 48.0 };
        let even = receiving(50).run(10.0, mbit, jittery).finding();
        assert_eq!(even.shares.get(Path), 0.0, "{even:?}");
    }
    // An even sender whose data are delayed by others: as much less arrives as the delay has grown.
    let delayed = probing(0.11).finding();
    assert_eq!(delayed.limit, Server, "{delayed:?}");
}
