//! Limits of this host: its disk, its cores, `--limit`, and programs that do not read.

use super::*;

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

#[test]
fn receiver_that_does_not_read_is_the_program() {
    let full =
        |reading: &mut Reading| (reading.unread, reading.window) = (Bytes::mib(3), Some(Bytes::kib(4)));
    assert_limit(&Course::at(End::Receiver, 20).run(10.0, 5.0, full).finding(), LimitedBy::Application, 0.9);
}
