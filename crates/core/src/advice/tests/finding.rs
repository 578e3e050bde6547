//! Findings: shares of the time, order of causes, and their words.

use super::*;

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
fn transfer_without_a_reading_has_no_share() {
    let finding = Attribution::new(End::Sender).finding(&KnownLimits::default());
    assert_eq!((finding.limit, finding.advice.len()), (LimitedBy::Path, 0));
    assert_eq!(finding.shares, Shares::default());
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
    let finding = attribution.finding(&KnownLimits::default());
    let expected = "limited by the disk for 80 % of the time: 200 ms to make the file durable, after its last byte had arrived";
    assert_eq!(finding.advice[0], expected);
    assert!(!finding.advice.join(" ").contains("bit/s"), "{finding:?}");
}

/// An empty file on a long path: all of the time goes to connect, and no interval has a rate.
#[test]
fn transfer_that_moved_nothing_has_no_gain() {
    for (end, rtt) in [(End::Receiver, 50), (End::Sender, 300)] {
        let finding = Course::at(end, rtt).run(0.3, 0.0, |_| ()).finding();
        assert!(!finding.advice.join(" ").contains("->"), "{finding:?}");
    }
}

#[test]
fn shares_sum_up_to_the_whole() {
    let finding = Course::at(End::Receiver, 50).slow_start(100.0).run(7.3, 80.0, |r| r.lost += 1).finding();
    let sum: f64 = finding.shares.ranked().iter().map(|(_, share)| share).sum();
    assert!((sum - 1.0).abs() < 1e-4, "{finding:?}");
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

/// Runs at 50 Mbit/s for 10 s under a limit, and returns its cure; `known` is the rate of an earlier transfer.
fn cure_after(
    course: Course,
    known_mbit: Option<u64>,
    plant: impl FnMut(&mut Reading),
    limit: LimitedBy,
) -> String {
    let mut course = course.run(10.0, 50.0, plant);
    course.attribution.end();
    let path_rate = known_mbit.map(|mbit| Rate::bits_per_sec(mbit * 1_000_000));
    let finding = course.attribution.finding(&KnownLimits { path_rate, ..KnownLimits::default() });
    assert_limit(&finding, limit, 0.9);
    finding.advice[1].clone()
}

#[test]
fn limits_of_programs_have_a_cure_and_the_gain_that_intervals_or_earlier_transfers_show() {
    let disk = |reading: &mut Reading| threads(reading).disk += TICK;
    let limit = |reading: &mut Reading| threads(reading).limit += TICK;
    let unread =
        |reading: &mut Reading| (reading.unread, reading.window) = (Bytes::mib(3), Some(Bytes::kib(4)));
    let idle = |reading: &mut Reading| sender(reading).busy += TICK / 50;
    let late = |reading: &mut Reading| {
        idle(reading);
        threads(reading);
    };
    let (receiver, sender) = (End::Receiver, End::Sender);
    type Plant<'a> = &'a dyn Fn(&mut Reading);
    let limits: [(End, Plant<'_>, LimitedBy, &str); 7] = [
        (receiver, &disk, LimitedBy::Disk, "write to a faster file system, or try another --writer"),
        (sender, &disk, LimitedBy::Disk, "read from a faster disk"),
        (receiver, &limit, LimitedBy::Limit, "raise --limit, or leave it out"),
        (sender, &limit, LimitedBy::Limit, "raise --limit, or leave it out"),
        (receiver, &unread, LimitedBy::Application, "have the program read faster"),
        (sender, &idle, LimitedBy::Application, "have the program write sooner"),
        (sender, &late, LimitedBy::Server, "have the server read faster: its load or its disk"),
    ];
    for (end, plant, limit, cure) in limits {
        let at_once = || Course::at(end, 20);
        // Nothing else was seen, and nothing is invented.
        assert_eq!(
            cure_after(at_once(), None, plant, limit),
            format!("{cure}; longhaul probe tells what the path holds")
        );
        assert_eq!(
            cure_after(at_once(), Some(54), plant, limit),
            format!("{cure}; longhaul probe tells what the path holds")
        );
        let earlier = format!("{cure}: 50.0 Mbit/s -> 80.0 Mbit/s, which the path held before");
        assert_eq!(cure_after(at_once(), Some(80), plant, limit), earlier);
        let free = at_once().run(0.5, 100.0, |_| ());
        let shown = format!("{cure}: 50.0 Mbit/s -> 100 Mbit/s, reached while this did not limit");
        assert_eq!(cure_after(free, Some(80), plant, limit), shown);
    }
}

#[test]
fn path_has_a_cure_by_what_is_known_of_it() {
    let bloat = |reading: &mut Reading| queue(reading, 400);
    assert_eq!(
        cure_after(Course::at(End::Receiver, 20), Some(80), bloat, LimitedBy::Path),
        "the queue slows other traffic, not this transfer: pace the sender just below 50.0 Mbit/s, which keeps the rate and empties the queue of 400 ms: RTT 420 ms -> 20 ms"
    );
    let queued = |reading: &mut Reading| queue(reading, 10);
    let cure = |known| cure_after(Course::at(End::Receiver, 20), known, queued, LimitedBy::Path);
    let measured = "no setting makes it faster; longhaul probe tells what the path holds";
    assert_eq!((cure(None).as_str(), cure(Some(52)).as_str()), (measured, measured));
    assert_eq!(
        cure(Some(80)),
        "no setting makes it faster, less traffic beside it may: 50.0 Mbit/s -> 80.0 Mbit/s, which the path held before"
    );
}

#[test]
fn time_that_is_lost_at_the_start_and_at_the_end_is_what_cures_save() {
    let late = Course::at(End::Receiver, 20).run(5.0, 0.0, |_| ()).finding();
    assert_limit(&late, LimitedBy::Server, 0.9);
    assert!(late.advice[1].ends_with("what it does first: up to 4.9 s of 5.0 s saved"), "{late:?}");
    let mut flush = Course::at(End::Receiver, 20).run(1.0, 100.0, |reading| queue(reading, 30));
    flush.attribution.assign(Duration::from_secs(4), LimitedBy::Disk);
    let flush = flush.finding();
    assert!(flush.advice[1].starts_with("use --writer direct"), "{flush:?}");
    assert!(flush.advice[1].ends_with("up to 3.0 s of 4.0 s saved"), "{flush:?}");
    // At 1 ms no round trips are saved, but a connection is.
    let short = Course::at(End::Receiver, 1).run(0.1, 0.0, |_| ()).run(0.1, 100.0, |_| ()).finding();
    assert_limit(&short, LimitedBy::SlowStart, 0.9);
    assert!(short.advice[1].contains("share connections: up to 100 ms of 200 ms saved"), "{short:?}");
}

/// On loopback the kernel's counters name the send buffer, which no larger one cures.
#[test]
fn send_buffer_of_a_short_path_is_left_as_it_is() {
    let mut course = Course::at(End::Sender, 0);
    course.reading.min_rtt = Some(Rtt::new(Duration::from_micros(50)));
    let full = |reading: &mut Reading| {
        sender(reading).busy += TICK;
        sender(reading).buffer_limited += TICK.mul_f64(0.6);
    };
    assert!(
        cure_after(course, None, full, LimitedBy::SendBuffer)
            .starts_with("a larger buffer gains nothing at an RTT of "),
    );
}
