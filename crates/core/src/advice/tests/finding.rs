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
    let finding = Attribution::new(End::Sender).finding(&HostLimits::default());
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
    let finding = attribution.finding(&HostLimits::default());
    let expected = "limited by the disk for 80 % of the time: 200 ms to make the file durable, after its last byte had arrived";
    assert_eq!(finding.advice[0], expected);
    assert!(!finding.advice.join(" ").contains("bit/s"), "{finding:?}");
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
