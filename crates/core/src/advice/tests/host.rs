//! Limits of this host: its disk, its cores, `--limit`, and programs that do not read.

use super::*;

const NEARLY_ALL: Duration = Duration::from_millis(95);

#[test]
fn threads_that_wait_or_work_are_the_limit_unless_they_are_few() {
    for course in [receiving, sending] {
        let course = || course(20).go(0.5, 100.0);
        let disk = course().run(10.0, 50.0, |reading| threads(reading).disk += NEARLY_ALL);
        assert_advice(&disk.assert_limit(Disk, 0.9), 1, "50.0 Mbit/s -> 100 Mbit/s");
        course().run(10.0, 50.0, |reading| threads(reading).ran += NEARLY_ALL).assert_limit(Cpu, 0.9);
    }
    // One of four streams waits.
    let one = |reading: &mut Reading| {
        threads(reading).disk += TICK.mul_f64(0.9);
        queue(30)(reading);
    };
    receiving(50).but(|reading| reading.streams = 4).run(10.0, 100.0, one).assert_limit(Path, 0.9);
}

#[test]
fn thread_that_waits_for_a_core_is_the_limit_only_where_data_wait_for_it() {
    let starved = |reading: &mut Reading| {
        threads(reading).starved += NEARLY_ALL;
        queue(30)(reading);
    };
    let lagging = |reading: &mut Reading| {
        starved(reading);
        (reading.unread, reading.window) = (Bytes::mib(2), Some(Bytes::mib(400)));
    };
    let busy = |reading: &mut Reading| {
        starved(reading);
        sender(reading).busy += TICK;
    };
    receiving(20).run(10.0, 50.0, starved).assert_limit(Path, 0.9);
    receiving(20).run(10.0, 50.0, lagging).assert_limit(Cpu, 0.9);
    sending(20).run(10.0, 50.0, busy).assert_limit(Path, 0.9);
}

/// A wait for a core shows in schedstat when it ends, ten intervals late.
#[test]
fn bytes_that_lie_unread_wait_for_a_core() {
    let mut course = receiving(20).run(1.0, 100.0, |reading| reading.threads = Some(ThreadTimes::default()));
    for _ in 0..10 {
        let ends = |reading: &mut Reading| threads(reading).starved += Duration::from_secs(1);
        course = course.but(|reading| reading.unread = Bytes::mib(8)).go(0.9, 0.0).run(0.1, 100.0, ends);
    }
    course.assert_limit(Cpu, 0.8);
}

#[test]
fn another_program_that_leaves_data_in_its_socket_is_the_limit() {
    let left = |kib| receiving(20).run(10.0, 50.0, move |reading| reading.unread = Bytes::kib(kib));
    left(500).assert_limit(Application, 0.9);
    left(40).assert_limit(Server, 0.8);
}
