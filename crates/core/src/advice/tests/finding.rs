//! Findings: shares of the time, order of causes, and their words.

use super::*;

type Plant<'a> = &'a dyn Fn(&mut Reading);

#[test]
fn transfer_too_short_to_tune_has_shares_and_no_advice() {
    for (rtt, took, moved, advises) in
        [(1, 50, 185, false), (200, 700, 185, false), (1, 700, 185, true), (200, 700, 5_000_000, true)]
    {
        let mut course = receiving(rtt);
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
fn transfer_that_moved_nothing_has_no_share_or_no_gain() {
    let finding = Attribution::new(End::Sender).finding(&KnownLimits::default());
    assert_eq!((finding.limit, finding.advice.len(), finding.shares), (Unknown, 0, Shares::default()));
    // An empty file on a long path: all of the time goes to connect, and no interval has a rate.
    for course in [receiving(50), sending(300)] {
        let finding = course.go(0.3, 0.0).finding();
        assert!(!finding.advice.join(" ").contains("->"), "{finding:?}");
    }
}

#[test]
fn short_transfer_has_words() {
    let finding = receiving(0).but(|reading| reading.min_rtt = None).go(0.1, 0.0).finding();
    let [advice] = &finding.advice[..] else { panic!("{finding:?}") };
    let words = "of 100 ms in all, most went to connect, to the first answer and to slow start";
    assert!(advice.ends_with(words), "{finding:?}");
}

#[test]
fn intervals_cover_the_time_without_gap_and_shares_sum_up_to_the_whole() {
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
    let finding = receiving(50).slow_start(100.0).run(7.3, 80.0, |reading| reading.lost += 1).finding();
    let sum: f64 = finding.shares.ranked().iter().map(|(_, share)| share).sum();
    assert!((sum - 1.0).abs() < 1e-4, "{finding:?}");
}

#[test]
fn dominant_cause_of_a_mixture_comes_first_and_the_other_is_named() {
    let lossy = |reading: &mut Reading| reading.lost += 1;
    let disk = |reading: &mut Reading| threads(reading).disk += TICK;
    let small = |reading: &mut Reading| reading.window = Some(Bytes::new(700_000));
    let causes: [(LimitedBy, Plant<'_>); 4] =
        [(Loss, &lossy), (Disk, &disk), (Path, &queue(30)), (ReceiveWindow, &small)];
    for (first, most) in causes {
        for (second, less) in causes.into_iter().filter(|(other, _)| *other != first) {
            // The shorter one first: what it leaves behind must not outlive it.
            let course = receiving(50).slow_start(90.0).run(6.0, 100.0, less).but(queue(0));
            let course = course.but(|reading| reading.window = Some(Bytes::mib(600)));
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
    type Ends = fn(u64) -> Course;
    let limits: [(Ends, Plant<'_>, LimitedBy, &str); 7] = [
        (receiving, &disk, Disk, "write to a faster file system, or try another --writer"),
        (sending, &disk, Disk, "read from a faster disk"),
        (receiving, &limit, Limit, "raise --limit, or leave it out"),
        (sending, &limit, Limit, "raise --limit, or leave it out"),
        (receiving, &unread, Application, "have the program read faster"),
        (sending, &idle, Application, "have the program write sooner"),
        (sending, &late, Server, "have the server read faster: its load or its disk"),
    ];
    for (course, plant, limit, cure) in limits {
        for (before, known, gain) in [
            // No higher rate is known, and none is invented.
            (0.0, None, "; longhaul probe tells what the path holds"),
            (0.0, Some(54), "; longhaul probe tells what the path holds"),
            (0.0, Some(80), ": 50.0 Mbit/s -> 80.0 Mbit/s, which the path held before"),
            (0.5, Some(80), ": 50.0 Mbit/s -> 100 Mbit/s, reached while this did not limit"),
        ] {
            let course = course(20).go(before, 100.0);
            assert_eq!(cure_after(course, known, plant, limit), format!("{cure}{gain}"));
        }
    }
}

#[test]
fn path_has_a_cure_by_what_is_known_of_it() {
    let cure = |known, ms| cure_after(receiving(20), known, queue(ms), Path);
    let bloat = "the queue slows other traffic, not this transfer: pace the sender just below 50.0 Mbit/s, which keeps the rate and empties the queue of 400 ms: RTT 420 ms -> 20 ms";
    let measured = "no setting makes it faster; longhaul probe tells what the path holds";
    let held = "no setting makes it faster, less traffic beside it may: 50.0 Mbit/s -> 80.0 Mbit/s, which the path held before";
    for (known, ms, expected) in
        [(Some(80), 400, bloat), (None, 10, measured), (Some(52), 10, measured), (Some(80), 10, held)]
    {
        assert_eq!(cure(known, ms), expected, "{known:?}, {ms} ms");
    }
}

#[test]
fn time_that_is_lost_is_what_cures_save_and_no_buffer_of_a_short_path() {
    let late = receiving(20).go(5.0, 0.0).assert_limit(Server, 0.9);
    assert!(late.advice[1].ends_with("what it does first: up to 4.9 s of 5.0 s saved"), "{late:?}");
    let mut flush = receiving(20).run(1.0, 100.0, queue(30));
    let span = flush.attribution.assign(Duration::from_secs(4), Disk).unwrap();
    assert_eq!((span.from, span.to, span.limit), (Duration::from_secs(1), Duration::from_secs(4), Disk));
    let flush = flush.assert_limit(Disk, 0.7);
    let words = "limited by the disk for 75 % of the time: 3.0 s to make the file durable, after its last byte had arrived";
    assert_eq!(flush.advice[0], words);
    assert!(flush.advice[1].starts_with("use --writer direct"), "{flush:?}");
    assert!(flush.advice[1].ends_with("up to 3.0 s of 4.0 s saved"), "{flush:?}");
    // At 1 ms no round trips are saved, but a connection is.
    let short = receiving(1).go(0.1, 0.0).go(0.1, 100.0).assert_limit(SlowStart, 0.9);
    assert_advice(&short, 1, "share connections: up to 100 ms of 200 ms saved");
    // On loopback the kernel's counters name the send buffer, which no larger one cures.
    let rtt = Some(Rtt::new(Duration::from_micros(50)));
    let course = sending(0).but(|reading| reading.min_rtt = rtt);
    let cure = cure_after(course, None, super::sender::buffer_limited, SendBuffer);
    assert!(cure.starts_with("a larger buffer gains nothing at an RTT of "), "{cure}");
}
