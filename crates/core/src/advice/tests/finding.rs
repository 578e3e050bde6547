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
    let short = receiving(0).but(|reading| reading.path.min_rtt = None).go(0.1, 0.0).finding();
    assert_advice(&short, 0, "of 100 ms in all, most went to connect, to the first answer and to slow start");
}

#[test]
fn dominant_cause_of_a_mixture_comes_first_and_the_other_is_named() {
    let lossy = |reading: &mut Reading| reading.packets.lost += 1;
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

/// Runs at 50 Mbit/s for 10 s under a limit, and returns its cure.
fn cure_after(
    course: Course,
    known: KnownLimits,
    plant: impl FnMut(&mut Reading),
    limit: LimitedBy,
) -> String {
    let mut course = course.run(10.0, 50.0, plant);
    course.attribution.end();
    let finding = course.attribution.finding(&known);
    assert_limit(&finding, limit, 0.9);
    finding.advice[1].clone()
}

/// A path that held `mbit` Mbit/s in an earlier transfer.
fn held(mbit: Option<u64>) -> KnownLimits {
    let path_rate = mbit.map(|mbit| Rate::bits_per_sec(mbit * 1_000_000));
    KnownLimits { path_rate, ..KnownLimits::default() }
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
    let named = KnownLimits { to_pipe: true, limit_is_pace: true, ..KnownLimits::default() };
    let farms = KnownLimits { limit_is_farms: true, ..KnownLimits::default() };
    let limits: [(Ends, Plant<'_>, KnownLimits, LimitedBy, &str); 9] = [
        (receiving, &disk, held(None), Disk, "write to a faster file system"),
        (receiving, &disk, named, Disk, "have the program that reads the output read faster"),
        (sending, &disk, held(None), Disk, "read from a faster disk"),
        (receiving, &limit, held(None), Limit, "raise --limit, or leave it out"),
        (sending, &limit, named, Limit, "raise --pace, or leave it out"),
        (receiving, &limit, farms, Limit, "raise the farm's limit, or leave it out"),
        (receiving, &unread, held(None), Application, "have the program read faster"),
        (sending, &idle, held(None), Application, "have the program write sooner"),
        (sending, &late, held(None), Server, "have the server read faster: its load or its disk"),
    ];
    for (course, plant, known, limit, cure) in limits {
        for (before, mbit, gain) in [
            // No higher rate is known, and none is invented.
            (0.0, None, "; longhaul probe tells what the path holds"),
            (0.0, Some(54), "; longhaul probe tells what the path holds"),
            (0.0, Some(80), ": 50.0 Mbit/s -> 80.0 Mbit/s, which the path held before"),
            (0.5, Some(80), ": 50.0 Mbit/s -> 100 Mbit/s, reached while this did not limit"),
        ] {
            let known = KnownLimits { path_rate: held(mbit).path_rate, ..known };
            let found = cure_after(course(20).go(before, 100.0), known, plant, limit);
            assert_eq!(found, format!("{cure}{gain}"));
        }
    }
    // What waited in the socket has not arrived at the rate at which it is read.
    let waiting = receiving(20).run(0.4, 8.0, |reading| {
        threads(reading).ran += TICK;
        reading.unread += Bytes::kib(500);
    });
    let read = waiting.run(0.3, 90.0, |reading| reading.unread = reading.unread - Bytes::kib(600));
    assert!(!cure_after(read, held(None), disk, Disk).contains("->"));
}

#[test]
fn window_is_cured_by_the_setting_that_bounds_it() {
    let other = |_: &mut Reading| ();
    let unscaled = |reading: &mut Reading| reading.unscaled = true;
    let none = KnownLimits::default();
    let rmem = |mib| KnownLimits { tcp_rmem_max: Some(Bytes::mib(mib)), ..none };
    let set = |kib, most| {
        let (recv_buffer, rmem_max) = (Some(Bytes::kib(kib)), Some(Bytes::kib(most)));
        KnownLimits { recv_buffer, rmem_max, ..rmem(6) }
    };
    let large = |reading: &mut Reading| {
        (reading.path.in_flight, reading.window) = (reading.window, Some(Bytes::mib(512)));
    };
    let scaling = |on| KnownLimits { window_scaling: Some(on), ..set(64, 208) };
    let clamped = KnownLimits { window_clamp: Some(Bytes::kib(140)), ..rmem(1024) };
    let unprivileged = KnownLimits { rmem_max: Some(Bytes::kib(208)), ..rmem(1024) };
    let cases: [(KnownLimits, Plant<'_>, &str); 12] = [
        (set(128, 208), &own, "raise --recv-buffer above 128 KiB, or leave it out; longhaul"),
        (set(512, 208), &own, "raise net.core.rmem_max on this host, which cuts --recv-buffer from 512"),
        (rmem(1), &own, "raise net.ipv4.tcp_rmem on this host from 1 MiB to 256 MiB; longhaul"),
        (
            rmem(1024),
            &own,
            "net.ipv4.tcp_rmem permits 1 GiB, of which 128 KiB is used: does --recv-buffer 1MiB gain? ",
        ),
        (
            unprivileged,
            &own,
            "net.ipv4.tcp_rmem permits 1 GiB, of which 128 KiB is used: does --recv-buffer 1MiB gain, with net.core.rmem_max raised from 208 KiB to 1 MiB?",
        ),
        (clamped, &own, "does --recv-buffer 1MiB gain, instead of the clamp that shortens queues?"),
        (rmem(1024), &other, "raise what the program sets (SO_RCVBUF), if it sets any: net.ipv4.tcp_rmem"),
        (none, &other, "raise the receiver's buffer: net.ipv4.tcp_rmem, or what its program sets"),
        (scaling(false), &unscaled, "set net.ipv4.tcp_window_scaling to 1 on this host; without it"),
        (scaling(true), &unscaled, "set net.ipv4.tcp_window_scaling to 1 on the other host, "),
        (none, &unscaled, "set net.ipv4.tcp_window_scaling to 1 on the host whose SYN lacks the option"),
        (rmem(2048), &large, "the kernel permits no larger buffer: does using 2 connections gain?"),
    ];
    for (known, plant, cure) in cases {
        let course = receiving(20).but(|reading| reading.window = Some(Bytes::kib(128)));
        let found = cure_after(course, known, plant, ReceiveWindow);
        assert!(found.starts_with(cure), "{cure}: {found}");
    }
}

#[test]
fn cures_contradict_no_setting() {
    let crowded = receiving(20).but(|reading| reading.streams = 256);
    let found = cure_after(crowded, held(None), own, Server);
    assert_eq!(found, "does a higher limit at the server gain? longhaul probe tells what the path holds");
    let known = KnownLimits { tcp_wmem_max: Some(Bytes::gib(1)), ..held(None) };
    let buffered = |reading: &mut Reading| {
        own(reading);
        super::sender::buffer_limited(reading);
    };
    let found = cure_after(sending(20), known, buffered, SendBuffer);
    let words = "net.ipv4.tcp_wmem permits 1 GiB, of which 122.1 KiB is used: does --streams 2 gain? ";
    assert!(found.starts_with(words), "{found}");
}

#[test]
fn run_of_several_files_has_one_diagnosis() {
    let timed = |times: &[u32], files: &[(&str, LimitedBy, u64)]| {
        let mut run = RunDiagnosis::default();
        run.add_rtt(files[0].0, Rtt::new(TICK / 2));
        for ((server, limit, kib), number) in files.iter().zip(0..) {
            let finding = &Finding {
                limit: *limit,
                shares: Shares::of([(*limit, TICK * 4), (SlowStart, TICK)]),
                advice: vec!["of itself".into()],
                change: Some(format!("change {limit}")),
                ..Finding::default()
            };
            let (time, ended) = (TICK * times[number as usize % times.len()], TICK * (2 + number));
            run.add(&FileOfRun { server, ended, time, moved: Bytes::kib(*kib), finding });
        }
        run.finding()
    };
    let run = |files: &[_]| timed(&[2], files);
    let small = run(&[("h", SlowStart, 10); 400]);
    assert_advice(&small, 0, "400 files of 10 KiB on average took 200 ms (4 round trips of 50 ms) ");
    assert_advice(&small, 1, "does --parallel 8 gain, or one archive of the files?");
    assert_advice(&run(&[("h", Disk, 10)]), 0, "of itself");
    let mixed = run(&[("h", Disk, 10), ("h", Loss, 9), ("h", Disk, 10)]);
    assert_advice(&mixed, 1, "change disk");
    assert_advice(&mixed, 2, "also limited by packet loss for 27 %, the round trips of each file for 20 %");
    // Small files are slower than large ones, wherever they are.
    let of_sizes = run(&[("a", Path, 1000), ("b", Server, 10), ("b", Server, 10)]);
    assert!(!of_sizes.advice.concat().contains("another server"), "{of_sizes:?}");
    let slow = timed(&[2, 9, 7], &[("a", Path, 9), ("b", Server, 10), ("b", Server, 10)]);
    let words = "b had 89 % of the files' time: 800 ms for each of its 2 files, and for one of that size elsewhere (RTT 50 ms) 200 ms";
    assert_advice(&slow, 1, words);
}

#[test]
fn path_has_a_cure_by_what_is_known_of_it() {
    let cure = |known, ms| cure_after(receiving(20), held(known), queue(ms), Path);
    let bloat = "the queue delays all traffic there by up to 400 ms: fq_codel or CAKE at the bottleneck shortens it, which makes this transfer no faster";
    let full = "no setting makes it faster: the sender keeps the bottleneck's queue filled";
    let shared = "the path held 80.0 Mbit/s before: does other traffic share it now?";
    for (known, ms, expected) in
        [(Some(80), 400, bloat), (None, 10, full), (Some(52), 10, full), (Some(80), 10, shared)]
    {
        assert_eq!(cure(known, ms), expected, "{known:?}, {ms} ms");
    }
}

#[test]
fn time_that_is_lost_is_what_cures_save_and_no_buffer_of_a_short_path() {
    let late = receiving(20).go(5.0, 0.0).assert_limit(Server, 0.9);
    assert!(late.advice[1].ends_with("what it does first: up to 4.9 s of 5.0 s saved"), "{late:?}");
    let mut flush = receiving(20).run(1.0, 100.0, queue(30));
    let span = flush.attribution.assign(Duration::from_secs(4), Witness::Flush).unwrap();
    assert_eq!((span.from, span.to, span.limit), (Duration::from_secs(1), Duration::from_secs(4), Disk));
    let flush = flush.assert_limit(Disk, 0.7);
    let words = "for 75 % of the time: 3.0 s to make the file durable, after its last byte had arrived";
    assert_advice(&flush, 0, words);
    assert!(flush.advice[1].starts_with("does --writer direct gain, "), "{flush:?}");
    assert!(flush.advice[1].ends_with("the end? up to 3.0 s of 4.0 s saved"), "{flush:?}");
    // At 1 ms no round trips are saved, but a connection is.
    let short = receiving(1).go(0.1, 0.0).go(0.1, 100.0).assert_limit(SlowStart, 0.9);
    assert_advice(&short, 1, "share its connections: up to 100 ms of 200 ms saved");
    // On loopback the kernel's counters name the send buffer, which no larger one cures.
    let rtt = Some(Rtt::new(Duration::from_micros(50)));
    let course = sending(0).but(|reading| reading.path.min_rtt = rtt);
    let cure = cure_after(course, held(None), super::sender::buffer_limited, SendBuffer);
    assert!(cure.starts_with("a larger buffer gains nothing at an RTT of "), "{cure}");
}
