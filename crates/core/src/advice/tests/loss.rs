//! Losses: when they limit, for how long, and when they are harmless.

use super::*;

/// Loses `packets` in each reading whose number is `at` modulo `period`.
fn losing(packets: u64, period: u64, at: u64) -> impl FnMut(&mut Reading) {
    let mut readings = 0;
    move |reading| {
        readings += 1;
        reading.packets.lost += if readings % period == at { packets } else { 0 };
    }
}

impl Course {
    pub(super) fn lose(self, packets: u64) -> Self {
        self.but(|reading| reading.packets.lost += packets)
    }

    /// Loses `packets` and continues for `steps` steps at a rate that depends on their number; all
    /// of it `teeth` times.
    fn sawtooth(
        mut self,
        teeth: u32,
        packets: u64,
        (steps, seconds): (u32, f64),
        mbit: fn(f64) -> f64,
    ) -> Self {
        for _ in 0..teeth {
            self = self.lose(packets);
            for step in 0..steps {
                self = self.go(seconds, mbit(step.into()));
            }
        }
        self
    }
}

#[test]
fn loss_without_a_queue_is_the_limit_and_loss_behind_a_queue_the_path() {
    let full = |reading: &mut Reading| {
        reading.packets.lost += 1;
        queue(30)(reading);
    };
    for course in [receiving, sending] {
        course(50).slow_start(100.0).run(20.0, 60.0, losing(1, 1, 0)).assert_limit(Loss, 0.85);
        course(50).slow_start(100.0).run(20.0, 100.0, full).assert_limit(Path, 0.85);
    }
}

#[test]
fn loss_lasts_until_its_recovery_is_over() {
    let once = || receiving(50).slow_start(100.0).lose(7);
    // 432 packets at 100 Mbit/s: CUBIC needs cbrt(432 x 0.75) = 6.9 s, and counts as held back for
    // twice of it.
    let recovering = |tenths: u32| {
        let missing = |tenth: u32| (1.0 - f64::from(tenth) / 69.0).max(0.0);
        let begun = receiving(50).slow_start(100.0).go(1.0, 100.0).lose(7);
        (0..tenths).fold(begun, |course, tenth| course.go(0.1, 100.0 - 30.0 * missing(tenth).powi(3)))
    };
    recovering(120).assert_limit(Loss, 0.8);
    let finding = recovering(600).assert_limit(Server, 0.7);
    assert!((9.0..16.0).contains(&(finding.shares.get(Loss) * 60.0)), "{finding:?}");
    // A window that limits grows; a rate limit of the server, whose burst overflowed a queue, does
    // not.
    once().go(12.0, 70.0).assert_limit(Server, 0.8);
}

#[test]
fn losses_that_lower_the_rate_are_the_limit() {
    // 1.4 % lost: each of 12 packets in flight is lost about every 6 round trips, and all time is
    // recovery.
    let short = sending(1).but(|reading| reading.path.data_rtt = None);
    short.run(5.0, 140.0, losing(17, 1, 0)).assert_limit(Loss, 0.9);
    // 0.2 %: the first loss ends slow start, and each later one comes before the window has
    // recovered.
    receiving(50).slow_start(20.0).run(20.0, 7.0, losing(20, 8, 1)).assert_limit(Loss, 0.85);
    // Slow start reached 90 Mbit/s before losses took the rate to a twentieth of it: no stop and
    // go.
    receiving(50).slow_start(100.0).run(20.0, 3.0, losing(30, 9, 1)).assert_limit(Loss, 0.75);
    // The second loss comes when the first one's effect is over, and is measured by the peak
    // between them.
    let even = receiving(50).slow_start(6.0);
    even.sawtooth(12, 30, (18, 0.1), |step| 4.0 + 0.22 * step).assert_limit(Loss, 0.75);
    // Reno at 28 packets in flight recovers in 0.8 s; its window grows on until the next loss after
    // 4 s.
    let reno = receiving(50).go(1.0, 9.0);
    reno.sawtooth(6, 20, (40, 0.1), |step| 4.5 * (1.0 + 0.038 * step)).assert_limit(Loss, 0.8);
    // The first loss ends slow start just below the path's rate and changes nothing; each later one
    // takes 0.3 of what is left.
    let mut course = receiving(50).slow_start(100.0).lose(800).go(0.6, 171.0);
    for mbit in [130.0, 97.0, 67.0, 50.0] {
        course = course.lose(800).go(1.0, mbit);
    }
    course.go(1.0, 54.0).go(1.0, 58.0).assert_limit(Loss, 0.65);
}

#[test]
fn losses_that_leave_the_rate_are_no_limit() {
    // Packets that another core delivered later, on a path of a tenth of a millisecond: recovery
    // takes milliseconds.
    let cases = [(100, 0.1, 8000.0, 30), (10, 3.0, 10_000.0, 90), (500, 2.0, 940.0, 1)];
    for (rtt_us, seconds, mbit, each) in cases {
        let course = Course::at(End::Receiver, Duration::from_micros(rtt_us));
        let finding = course.run(seconds, mbit, losing(each, 1, 0)).finding();
        assert_eq!(finding.shares.get(Loss), 0.0, "{rtt_us} us: {finding:?}");
        let text = finding.advice.join("; ");
        assert!(!text.contains("loss for") && !text.contains("BBR"), "{text}");
    }
    // A paced sender, and the same losses, each of which takes 0.3 of the rate, which then grows
    // again.
    receiving(50).run(30.0, 20.0, losing(1, 60, 40)).assert_limit(Server, 0.7);
    receiving(50).go(4.0, 20.0).sawtooth(5, 1, (6, 1.0), |step| 14.0 + step).assert_limit(Loss, 0.6);
    // 100 Mbit/s, 10 ms, 1e-4: a loss a second, whose recovery is shorter than four readings; the
    // queue makes up for it.
    let mut lose = losing(1, 9, 0);
    let busy = |reading: &mut Reading| {
        sender(reading).busy += TICK;
        lose(reading);
    };
    sending(10).go(2.0, 96.0).run(30.0, 96.0, busy).assert_limit(Path, 0.7);
    // CUBIC on a short queue: it stands, overflows, and is empty while the window recovers.
    let mut course = receiving(20);
    for _ in 0..6 {
        course = course.run(2.0, 100.0, queue(15)).lose(40).run(1.5, 80.0, queue(0));
    }
    course.assert_limit(Path, 0.9);
    // A full send buffer survives the losses.
    let mut ticks = 0;
    let jitter = |reading: &mut Reading| {
        ticks += 1;
        reading.moved += Bytes::new(if ticks % 2 == 0 { 700_000 } else { 0 });
        reading.packets.lost += if matches!(ticks % 120, 60..62) { 500 } else { 0 };
    };
    receiving(200).run(30.0, 90.0, jitter).assert_limit(ServerSendBuffer, 0.7);
}

#[test]
fn arrivals_of_one_rate_while_packets_are_lost_show_a_policer_or_a_full_queue() {
    let lossy = |burst, queue_ms: [u64; 2], rate: fn(u32) -> f64| {
        let mut course = receiving(100).but(own).slow_start(48.0).go(0.1, burst);
        for interval in 0..32 {
            let queue_ms = queue_ms[usize::from(interval % 6 == 5)];
            course = course.lose(200).run(0.1, rate(interval), queue(queue_ms));
            course = course.run(if interval % 4 == 3 { 1.0 } else { 0.0 }, 47.0, queue(0));
        }
        course
    };
    let policed = lossy(60.0, [2, 2], |_| 48.0).assert_limit(Policer, 0.7);
    let limit = policed.advice[1].split(' ').nth(2).unwrap();
    assert!(Rate::with_unit(limit).is_ok_and(|limit| limit == Rate::mbit(48)), "{policed:?}");
    lossy(48.0, [40, 40], |_| 48.0).assert_limit(Path, 0.6);
    lossy(48.0, [2, 15], |_| 48.0).assert_limit(Path, 0.5);
    let unknown = lossy(48.0, [2, 2], |_| 48.0).assert_limit(Unknown, 0.7);
    assert_advice(&unknown, 0, " packets arrived out of order, which a policer, a short queue and ");
    lossy(60.0, [2, 2], |interval| f64::from(interval * 17 % 48) + 10.0).assert_limit(Loss, 0.7);
}

#[test]
fn overflow_at_the_end_of_slow_start_is_the_path() {
    let lose = |reading: &mut Reading| {
        queue(45)(reading);
        reading.packets.lost += 80;
    };
    let ends = |before_ms| {
        let course = receiving(50).slow_start(40.0).run(0.1, 48.0, queue(before_ms)).run(0.1, 40.0, lose);
        course.run(0.3, 40.0, queue(0)).go(1.0, 30.0).finding()
    };
    let (overflow, random) = (ends(22), ends(2));
    assert!(overflow.shares.get(Path) > overflow.shares.get(Loss), "{overflow:?}");
    assert!(random.shares.get(Unknown) > 0.6 && random.shares.get(Path) == 0.0, "{random:?}");
    // BBR then holds the path's rate without a queue, which a server's limit would explain alike.
    let overflowed = receiving(50).slow_start(40.0).run(0.1, 48.0, queue(22)).run(0.1, 40.0, lose);
    let finding = overflowed.run(0.3, 30.0, lose).run(0.3, 30.0, queue(0)).run(4.0, 48.0, queue(0)).finding();
    assert_eq!(finding.shares.get(Server), 0.0, "{finding:?}");
    receiving(50).slow_start(40.0).go(4.0, 48.0).assert_limit(Server, 0.8);
    // A policer, too, drops what slow start sends; losses at random go on.
    for (bursts, limit) in [(0, Unknown), (1, Unknown), (6, Loss)] {
        let course = receiving(100).slow_start(16.0).lose(40).go(0.1, 8.4);
        let course = course.lose(40).go(0.1, 8.6).go(1.0, 5.0);
        let course = (0..bursts).fold(course, |course, _| course.lose(30).go(1.0, 5.0));
        course.assert_limit(limit, 0.6);
    }
}
