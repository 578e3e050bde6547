//! Workers that are killed and stopped at seeded moments: nothing is lost, every file is right,
//! little is done twice.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::Signal;

use super::{log_lines, of_plan, plan, status, work};
use crate::support::{Get, RatedSite, RoundWork, Running, content, is_root, kill_rounds, on_other_host};

const WORKERS: usize = 4;
/// Small files, each a unit; beside them is one of 8 ranges.
const FILES: u64 = 64;
/// The rate of all workers together, in bytes per second: all files take 4 s.
const RATE: u64 = 4_500_000;
const LEASE: Duration = Duration::from_secs(2);
/// How often workers are killed or stopped in a round.
const STRIKES: usize = 3;

#[test]
fn killed_and_stopped_workers_lose_nothing() {
    let small = (0..FILES).map(|number| (format!("f{number}"), content(150_000, number)));
    let site = RatedSite::start(small.chain([("huge".to_owned(), content(8 << 20, FILES))]), RATE);
    let mut all = RoundWork::default();
    kill_rounds().for_each(|seed| all += play(seed, &site));
    all.judge();
}

/// A worker; one with an odd number is on another host, where its end is not seen.
struct Member {
    number: usize,
    running: Running,
    stopped: Option<Instant>,
}

impl Member {
    fn start(number: usize, command: &Get) -> Self {
        Self { number, running: command.start(), stopped: None }
    }

    fn signal(&self, signal: Signal) {
        match self.number % 2 == 1 && is_root() {
            true => self.running.signal_child(signal),
            false => self.running.signal(signal),
        }
    }

    /// Continues a stopped worker, after twice the lease.
    fn resume(&self) {
        if let Some(at) = self.stopped {
            std::thread::sleep((2 * LEASE).saturating_sub(at.elapsed()));
            self.signal(Signal::CONT);
        }
    }
}

fn play(seed: u64, site: &RatedSite) -> RoundWork {
    let mut dice = ChaCha8Rng::seed_from_u64(seed);
    let (began, before) = (Instant::now(), site.sent());
    let run = plan().args(["-r", "--unit-files", "1", "--unit-size", "1MiB", "--lease", "2s", "-o", "p"]);
    let run = run.args([&*site.url(""), "here"]);
    run.run().ok();
    let command = |number: usize| match number % 2 == 1 {
        true => on_other_host(work(run.dir(), &["-q"])),
        false => work(run.dir(), &["-q"]),
    };
    let commands: Vec<Get> = (0..WORKERS).map(command).collect();
    let start = |number: usize| Member::start(number, &commands[number]);
    let mut members: Vec<Member> = (0..WORKERS).map(start).collect();
    let (mut story, mut stops) = (format!("round {seed}:"), 0);
    for _ in 0..STRIKES {
        std::thread::sleep(Duration::from_millis(dice.random_range(50..1000)));
        let is_kill = dice.random_bool(0.6);
        let victims: BTreeSet<usize> =
            (0..dice.random_range(1..=2)).map(|_| dice.random_range(0..WORKERS)).collect();
        let what = if is_kill { "kill" } else { "stop" };
        let _ = write!(story, " {what} {victims:?} at {:.1} s,", began.elapsed().as_secs_f64());
        for number in victims {
            if is_kill {
                members[number].signal(Signal::KILL);
                members[number] = start(number);
            } else if members[number].stopped.is_none() {
                members[number].signal(Signal::STOP);
                members[number].stopped = Some(Instant::now());
                stops += 1;
            }
        }
    }
    members.iter().for_each(Member::resume);
    for member in members {
        let ended = member.running.end();
        assert_eq!(ended.status.code(), Some(0), "{story} {ended:?}");
    }
    let now = status(run.dir());
    assert_eq!((&now["done"], &now["failed"]), (&now["units"], &0.into()), "{story} {now}");
    let lines = log_lines(&run.path("p"));
    let count = |result: &str| lines.iter().filter(|line| line["result"] == result).count() as u64;
    assert_eq!(count("failed"), 0, "{story} {lines:?}");
    of_plan(run.dir(), "verify", &[]).ok();
    // No staging directory is left.
    site.is_in(&run.path("here"));
    // Workers that were continued may have written ranges into the file after it had got its name
    // and its time.
    assert_eq!(fs::metadata(run.path("here/huge")).unwrap().mtime(), RatedSite::MODIFIED, "{story}");
    let units = now["units"].as_u64().unwrap();
    let (twice, sent) = (count("done") - units, site.sent() - before);
    let work = RoundWork { rounds: 1, units, twice, stops, bytes: site.size(), sent };
    println!("{story} {work}, {:.1} s", began.elapsed().as_secs_f64());
    work
}
