//! Each cause planted alone, and mixtures, in virtual time.

mod loss;

use std::time::Duration;

use super::*;
use crate::units::{Bytes, Rate, Rtt};

const TICK: Duration = Duration::from_millis(100);

/// A made-up transfer, changed from tick to tick.
struct Course {
    attribution: Attribution,
    now: Duration,
    reading: Reading,
}

impl Course {
    fn at(end: End, rtt_ms: u64) -> Self {
        let rtt = Some(Rtt::new(Duration::from_millis(rtt_ms)));
        let window = Some(Bytes::mib(600));
        let reading = Reading { streams: 1, min_rtt: rtt, data_rtt: rtt, window, ..Reading::default() };
        Self { attribution: Attribution::new(end), now: Duration::ZERO, reading }
    }

    /// Goes on for `seconds` at `mbit`; `change` changes each reading.
    fn run(mut self, seconds: f64, mbit: f64, mut change: impl FnMut(&mut Reading)) -> Self {
        for _ in 0..(seconds * 10.0).round() as u64 {
            self.now += TICK;
            self.reading.moved += Rate::bits_per_sec((mbit * 1e6) as u64).bytes_in(TICK);
            change(&mut self.reading);
            self.attribution.observe(self.now, &self.reading);
        }
        self
    }

    /// Doubles the rate each round trip until `mbit` are reached.
    fn slow_start(mut self, mbit: f64) -> Self {
        let rtt = self.reading.min_rtt.unwrap_or_default().get().as_secs_f64().max(0.1);
        let mut rate = 2.0;
        while rate < mbit {
            self = self.run(rtt, rate, |_| ());
            rate *= 2.0;
        }
        self
    }

    fn finding(mut self) -> Finding {
        self.attribution.end();
        self.attribution.finding(&HostLimits::default())
    }
}

fn queue(reading: &mut Reading, ms: u64) {
    reading.data_rtt = reading.min_rtt.map(|rtt| Rtt::new(rtt.get() + Duration::from_millis(ms)));
}

fn threads(reading: &mut Reading) -> &mut ThreadTimes {
    reading.threads.get_or_insert_default()
}

fn sender(reading: &mut Reading) -> &mut SenderTimes {
    reading.sender.get_or_insert_default()
}

#[track_caller]
fn assert_limit(finding: &Finding, limit: LimitedBy, least: f64) {
    assert_eq!(finding.limit, limit, "{finding:?}");
    assert!(finding.shares.get(limit) >= least, "{finding:?}");
    assert!(finding.advice[0].contains(" % of the time: "), "{finding:?}");
}

#[test]
fn transfer_too_short_to_tune_has_shares_and_no_advice() {
    for (rtt, took, moved, advises) in
        [(1, 50, 185, false), (200, 700, 185, false), (1, 700, 185, true), (200, 700, 5_000_000, true)]
    {
        let mut course = Course::at(End::Receiver, rtt);
        course.now = Duration::from_millis(took);
        course.reading.moved = Bytes::new(moved);
        threads(&mut course.reading).disk = Duration::from_millis(took - 5);
        course.attribution.observe(course.now, &course.reading);
        let finding = course.finding();
        assert_eq!(!finding.advice.is_empty(), advises, "{rtt} ms, {took} ms, {moved}: {finding:?}");
        assert!(finding.shares.get(finding.limit) > 0.0, "{finding:?}");
    }
}

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
fn bursts_with_gaps_are_a_rate_limit_of_the_server() {
    let mut course = Course::at(End::Receiver, 20);
    for _ in 0..20 {
        course = course.run(0.2, 200.0, |_| ()).run(0.8, 0.0, |_| ());
    }
    assert_limit(&course.finding(), LimitedBy::Server, 0.8);
}

#[test]
fn late_first_byte_is_the_server_and_a_timely_one_slow_start() {
    let late = Course::at(End::Receiver, 20).run(5.0, 0.0, |_| ()).run(1.0, 100.0, |_| ());
    assert_limit(&late.finding(), LimitedBy::Server, 0.7);
    let finding = Course::at(End::Receiver, 200).run(0.6, 0.0, |_| ()).slow_start(500.0).finding();
    assert_limit(&finding, LimitedBy::SlowStart, 0.9);
}

#[test]
fn bufferbloat_is_the_path_and_named() {
    let bloat = |reading: &mut Reading| queue(reading, 400);
    let finding = Course::at(End::Receiver, 20).run(10.0, 50.0, bloat).finding();
    assert_limit(&finding, LimitedBy::Path, 0.9);
    assert!(finding.advice[0].contains("raises the RTT from 20 ms to 420"), "{:?}", finding.advice);
}

#[test]
fn threads_that_wait_or_work_are_the_limit() {
    let most = TICK.mul_f64(0.95);
    let plant =
        |change: fn(&mut ThreadTimes, Duration)| move |reading: &mut Reading| change(threads(reading), most);
    for end in [End::Receiver, End::Sender] {
        let course = || Course::at(end, 20).run(0.5, 100.0, |_| ());
        let disk = course().run(10.0, 50.0, plant(|times, time| times.disk += time)).finding();
        assert_limit(&disk, LimitedBy::Disk, 0.9);
        assert!(disk.advice[1].contains("50.0 Mbit/s -> 100 Mbit/s"), "{:?}", disk.advice);
        let limit = course().run(10.0, 50.0, plant(|times, time| times.limit += time)).finding();
        assert_limit(&limit, LimitedBy::Limit, 0.9);
        let cpu = course().run(10.0, 50.0, plant(|times, time| times.ran += time)).finding();
        assert_limit(&cpu, LimitedBy::Cpu, 0.9);
    }
}

#[test]
fn thread_that_waits_for_a_core_is_the_limit_only_where_data_wait_for_it() {
    let starved = |reading: &mut Reading| {
        threads(reading).starved += TICK.mul_f64(0.95);
        queue(reading, 30);
    };
    let finding = Course::at(End::Receiver, 20).run(10.0, 50.0, starved).finding();
    assert_limit(&finding, LimitedBy::Path, 0.9);
    let lagging = |reading: &mut Reading| {
        starved(reading);
        (reading.unread, reading.window) = (Bytes::mib(2), Some(Bytes::mib(400)));
    };
    assert_limit(&Course::at(End::Receiver, 20).run(10.0, 50.0, lagging).finding(), LimitedBy::Cpu, 0.9);
    let busy = |reading: &mut Reading| {
        starved(reading);
        sender(reading).busy += TICK;
    };
    assert_limit(&Course::at(End::Sender, 20).run(10.0, 50.0, busy).finding(), LimitedBy::Path, 0.9);
}

#[test]
fn waits_of_one_of_four_streams_are_no_limit() {
    let one = |reading: &mut Reading| {
        reading.streams = 4;
        threads(reading).disk += TICK.mul_f64(0.9);
        queue(reading, 30);
    };
    assert_limit(&Course::at(End::Receiver, 50).run(10.0, 100.0, one).finding(), LimitedBy::Path, 0.9);
}

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

#[test]
fn receiver_that_does_not_read_is_the_program() {
    let full =
        |reading: &mut Reading| (reading.unread, reading.window) = (Bytes::mib(3), Some(Bytes::kib(4)));
    assert_limit(&Course::at(End::Receiver, 20).run(10.0, 5.0, full).finding(), LimitedBy::Application, 0.9);
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
fn dominant_cause_of_a_mixture_comes_first_and_the_other_is_named() {
    let lossy = |reading: &mut Reading| reading.lost += 1;
    let disk = |reading: &mut Reading| threads(reading).disk += TICK;
    let narrow = |reading: &mut Reading| queue(reading, 30);
    let small = |reading: &mut Reading| reading.window = Some(Bytes::new(700_000));
    type Plant<'a> = &'a dyn Fn(&mut Reading);
    let causes: [(LimitedBy, Plant<'_>); 4] = [
        (LimitedBy::Loss, &lossy),
        (LimitedBy::Disk, &disk),
        (LimitedBy::Path, &narrow),
        (LimitedBy::ReceiveWindow, &small),
    ];
    for (first, most) in causes {
        for (second, less) in causes.into_iter().filter(|(other, _)| *other != first) {
            // The shorter one first: what it leaves behind must not outlive it.
            let course = Course::at(End::Receiver, 50).slow_start(90.0).run(6.0, 100.0, less);
            let mut course = course;
            let rtt = course.reading.min_rtt;
            (course.reading.data_rtt, course.reading.window) = (rtt, Some(Bytes::mib(600)));
            let finding = course.run(34.0, 100.0, most).finding();
            assert_eq!(finding.limit, first, "{first} after {second}: {finding:?}");
            assert!(finding.shares.get(second) > 0.1, "{first} after {second}: {finding:?}");
            assert!(finding.advice.last().unwrap().starts_with("also limited by "), "{finding:?}");
        }
    }
}

#[test]
fn time_after_the_last_reading_is_assigned() {
    let mut course = Course::at(End::Receiver, 20).run(1.0, 100.0, |reading| queue(reading, 30));
    let span = course.attribution.assign(Duration::from_secs(4), LimitedBy::Disk).unwrap();
    assert_eq!(
        (span.from, span.to, span.limit),
        (Duration::from_secs(1), Duration::from_secs(4), LimitedBy::Disk)
    );
    assert_limit(&course.finding(), LimitedBy::Disk, 0.7);
}

#[test]
fn intervals_cover_the_time_without_gap() {
    let mut attribution = Attribution::new(End::Receiver);
    let mut covered = Duration::ZERO;
    let reading = |tick: u64| Reading {
        moved: Bytes::kib(tick * 100),
        min_rtt: Some(Rtt::new(Duration::from_millis(250))),
        streams: 1,
        ..Reading::default()
    };
    for tick in 1..=47 {
        if let Some(span) = attribution.observe(TICK * tick, &reading(u64::from(tick))) {
            assert_eq!(span.from, covered);
            assert!(span.to - span.from >= Duration::from_millis(250), "{span:?}");
            covered = span.to;
        }
    }
    assert_eq!(attribution.end().map(|span| span.from), Some(covered));
    assert_eq!(attribution.end(), None, "nothing is left");
}

#[test]
fn transfer_without_a_reading_has_no_share() {
    let finding = Attribution::new(End::Sender).finding(&HostLimits::default());
    assert_eq!((finding.limit, finding.advice.len()), (LimitedBy::Path, 0));
    assert_eq!(finding.shares, Shares::default());
}

#[test]
fn shares_sum_up_to_the_whole() {
    let finding = Course::at(End::Receiver, 50).slow_start(100.0).run(7.3, 80.0, |r| r.lost += 1).finding();
    let sum: f64 = finding.shares.ranked().iter().map(|(_, share)| share).sum();
    assert!((sum - 1.0).abs() < 1e-4, "{finding:?}");
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
fn even_rate_is_one_on_average() {
    let mut course = Course::at(End::Receiver, 50);
    for _ in 0..50 {
        course = course.run(0.1, 70.0, |_| ()).run(0.1, 110.0, |_| ());
    }
    assert_limit(&course.finding(), LimitedBy::Server, 0.8);
}

#[test]
fn short_transfer_and_the_time_of_fsync_have_words() {
    let mut course = Course::at(End::Receiver, 0);
    course.reading.min_rtt = None;
    let finding = course.run(0.1, 0.0, |_| ()).finding();
    assert!(
        finding.advice[0]
            .ends_with("of 100 ms in all, most went to connect, to the first answer and to slow start"),
        "{finding:?}"
    );
    assert_eq!(finding.advice.len(), 1, "{finding:?}");
    let mut attribution = Attribution::new(End::Receiver);
    attribution.observe(Duration::from_millis(50), &Reading::default());
    attribution.end();
    attribution.assign(Duration::from_millis(250), LimitedBy::Disk);
    let finding = attribution.finding(&HostLimits::default());
    let expected = "limited by the disk for 80 % of the time: 200 ms to make the file durable, after its last byte had arrived";
    assert_eq!(finding.advice[0], expected);
    assert!(!finding.advice.join(" ").contains("bit/s"), "{finding:?}");
}

/// A wait for a core shows in schedstat when it ends, ten intervals late.
#[test]
fn bytes_that_lie_unread_wait_for_a_core() {
    let mut course = Course::at(End::Receiver, 20).run(1.0, 100.0, |reading| {
        threads(reading);
    });
    for _ in 0..10 {
        course.reading.unread = Bytes::mib(8);
        course = course
            .run(0.9, 0.0, |_| ())
            .run(0.1, 100.0, |reading| threads(reading).starved += Duration::from_secs(1));
    }
    assert_limit(&course.finding(), LimitedBy::Cpu, 0.8);
}
