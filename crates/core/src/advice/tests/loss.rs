//! Losses: when they limit, for how long, and when they are harmless.

use super::*;

#[test]
fn loss_without_a_queue_is_the_limit_and_loss_behind_a_queue_the_path() {
    let lossy = |reading: &mut Reading| reading.lost += 1;
    for end in [End::Receiver, End::Sender] {
        let random = Course::at(end, 50).slow_start(100.0).run(20.0, 60.0, lossy).finding();
        assert_limit(&random, LimitedBy::Loss, 0.85);
        let full = |reading: &mut Reading| {
            lossy(reading);
            queue(reading, 30);
        };
        let finding = Course::at(end, 50).slow_start(100.0).run(20.0, 100.0, full).finding();
        assert_limit(&finding, LimitedBy::Path, 0.85);
    }
}

#[test]
fn loss_lasts_until_its_recovery_is_over() {
    let once = |reading: &mut Reading| reading.lost = 7;
    // 432 packets at 100 Mbit/s: CUBIC needs cbrt(432 x 0.75) = 6.9 s, and counts as held back for twice of it.
    let finding = Course::at(End::Receiver, 50).slow_start(100.0).run(12.0, 70.0, once).finding();
    assert_limit(&finding, LimitedBy::Loss, 0.85);
    let finding = Course::at(End::Receiver, 50).slow_start(100.0).run(60.0, 70.0, once).finding();
    assert_limit(&finding, LimitedBy::Server, 0.7);
    assert!((9.0..16.0).contains(&(finding.shares.get(LimitedBy::Loss) * 60.0)), "{finding:?}");
}

/// Packets that another core delivered later, on a path of a tenth of a millisecond: recovery takes milliseconds.
#[test]
fn packets_out_of_order_on_a_short_path_are_no_limit() {
    for (rtt_us, seconds, mbit, each) in
        [(100, 0.1, 8000.0, 30), (10, 3.0, 10_000.0, 90), (500, 2.0, 940.0, 1)]
    {
        let mut course = Course::at(End::Receiver, 0);
        course.reading.min_rtt = Some(Rtt::new(Duration::from_micros(rtt_us)));
        let finding = course.run(seconds, mbit, |reading| reading.lost += each).finding();
        assert_eq!(finding.shares.get(LimitedBy::Loss), 0.0, "{rtt_us} us: {finding:?}");
        let text = finding.advice.join("; ");
        assert!(!text.contains("loss for") && !text.contains("BBR"), "{text}");
    }
}

/// 1.4 % lost: each of 12 packets in flight is lost about every 6 round trips, and all time is recovery.
#[test]
fn much_loss_on_a_short_path_is_the_limit() {
    let mut course = Course::at(End::Sender, 1);
    course.reading.data_rtt = None;
    let finding = course.run(5.0, 140.0, |reading| reading.lost += 17).finding();
    assert_limit(&finding, LimitedBy::Loss, 0.9);
}

#[test]
fn loss_that_does_not_slow_a_paced_sender_is_not_its_limit() {
    let mut ticks = 0;
    let seldom = |reading: &mut Reading| {
        ticks += 1;
        reading.lost += u64::from(ticks % 60 == 40);
    };
    let finding = Course::at(End::Receiver, 50).run(30.0, 20.0, seldom).finding();
    assert_limit(&finding, LimitedBy::Server, 0.7);
    // The same losses, each of which takes 0.3 of the rate, which then grows again.
    let mut course = Course::at(End::Receiver, 50).run(4.0, 20.0, |_| ());
    for _ in 0..5 {
        course.reading.lost += 1;
        for tenth in 0..6 {
            course = course.run(1.0, 14.0 + f64::from(tenth), |_| ());
        }
    }
    assert_limit(&course.finding(), LimitedBy::Loss, 0.6);
}

/// 100 Mbit/s, 10 ms, 1e-4: a loss a second, whose recovery is shorter than four readings; the queue of the bottleneck makes up for it.
#[test]
fn losses_that_leave_the_rate_are_no_limit_however_short_their_recovery() {
    let mut ticks = 0;
    let harmless = |reading: &mut Reading| {
        ticks += 1;
        reading.lost += u64::from(ticks % 9 == 0);
    };
    let finding = Course::at(End::Sender, 10).run(2.0, 96.0, |_| ()).run(30.0, 96.0, harmless).finding();
    assert_limit(&finding, LimitedBy::Path, 0.7);
}

/// 0.2 %: the first loss ends slow start, and each later one comes before the window has recovered.
#[test]
fn losses_that_follow_one_another_are_not_measured_by_the_rate_that_they_have_left() {
    let mut ticks = 0;
    let frequent = |reading: &mut Reading| {
        ticks += 1;
        reading.lost += u64::from(ticks % 8 == 1) * 20;
    };
    let finding = Course::at(End::Receiver, 50).slow_start(20.0).run(20.0, 7.0, frequent).finding();
    assert_limit(&finding, LimitedBy::Loss, 0.85);
}

/// Slow start had reached 90 Mbit/s before losses took the rate to a twentieth of it.
#[test]
fn low_rate_after_a_fast_start_is_no_stop_and_go() {
    let mut ticks = 0;
    let lossy = |reading: &mut Reading| {
        ticks += 1;
        reading.lost += u64::from(ticks % 9 == 1) * 30;
    };
    let finding = Course::at(End::Receiver, 50).slow_start(100.0).run(20.0, 3.0, lossy).finding();
    assert_limit(&finding, LimitedBy::Loss, 0.8);
}

/// The second loss comes when the first one's effect is over, and is measured by the peak between them.
#[test]
fn sawtooth_of_losses_is_loss_however_even_its_mean() {
    let mut course = Course::at(End::Receiver, 50).slow_start(6.0);
    for _ in 0..12 {
        course.reading.lost += 30;
        for tick in 0..18 {
            course = course.run(0.1, 4.0 + 0.22 * f64::from(tick), |_| ());
        }
    }
    assert_limit(&course.finding(), LimitedBy::Loss, 0.75);
}

/// CUBIC on a short queue: it stands, overflows, and is empty while the window recovers.
#[test]
fn recovery_from_an_overflow_is_the_path() {
    let mut course = Course::at(End::Receiver, 20);
    for _ in 0..6 {
        course = course.run(2.0, 100.0, |reading| queue(reading, 15));
        course.reading.lost += 40;
        course = course.run(1.5, 80.0, |reading| reading.data_rtt = reading.min_rtt);
    }
    assert_limit(&course.finding(), LimitedBy::Path, 0.9);
}

#[test]
fn loss_that_a_full_send_buffer_survives_is_not_its_limit() {
    let mut ticks = 0;
    let jitter = |reading: &mut Reading| {
        ticks += 1;
        reading.moved += Bytes::new(if ticks % 2 == 0 { 700_000 } else { 0 });
        reading.lost += if matches!(ticks % 120, 60..62) { 500 } else { 0 };
    };
    let finding = Course::at(End::Receiver, 200).run(30.0, 90.0, jitter).finding();
    assert_limit(&finding, LimitedBy::ServerSendBuffer, 0.7);
}

/// Reno at 28 packets in flight recovers in 0.8 s; the next loss comes after 4 s.
#[test]
fn window_that_grows_on_after_a_loss_is_still_limited_by_it() {
    let mut course = Course::at(End::Receiver, 50).run(1.0, 9.0, |_| ());
    for _ in 0..6 {
        course.reading.lost += 20;
        for tick in 0..40 {
            course = course.run(0.1, 4.5 * (1.0 + 0.038 * f64::from(tick)), |_| ());
        }
    }
    assert_limit(&course.finding(), LimitedBy::Loss, 0.8);
}

#[test]
fn overflow_at_the_end_of_slow_start_is_the_path() {
    let lose = |reading: &mut Reading| {
        queue(reading, 45);
        reading.lost += 80;
    };
    let ends = |before_ms| {
        let course = Course::at(End::Receiver, 50).slow_start(40.0);
        let course = course.run(0.1, 48.0, |reading| queue(reading, before_ms)).run(0.1, 40.0, lose);
        course.run(0.3, 40.0, |reading| queue(reading, 0)).run(1.0, 30.0, |_| ()).finding()
    };
    let (overflow, random) = (ends(22), ends(2));
    assert!(overflow.shares.get(LimitedBy::Path) > overflow.shares.get(LimitedBy::Loss), "{overflow:?}");
    assert!(random.shares.get(LimitedBy::Loss) > random.shares.get(LimitedBy::Path), "{random:?}");
}

/// The first loss ends slow start just below the path's rate and changes nothing; each later one takes 0.3 of what is left.
#[test]
fn losses_after_a_harmless_one_are_measured_by_the_rate_that_it_has_left() {
    let lose = |mut course: Course| {
        course.reading.lost += 800;
        course
    };
    let mut course = lose(Course::at(End::Receiver, 50).slow_start(100.0)).run(0.6, 171.0, |_| ());
    for mbit in [130.0, 97.0, 67.0, 50.0] {
        course = lose(course).run(1.0, mbit, |_| ());
    }
    assert_limit(&course.run(2.0, 50.0, |_| ()).finding(), LimitedBy::Loss, 0.7);
}
