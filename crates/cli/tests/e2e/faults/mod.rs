//! The fault harness: seeded schedules of faults over real sockets and a real disk. Invariant after
//! every run: the final name holds either its earlier content or one whole build, as the exit code
//! says.
//!
//! The verdict of a seed does not depend on the speed of the machine: a seed that fails once is a
//! defect.
//!
//! `LONGHAUL_FAULT_SEEDS` sets the number of seeds or a range (`2000..2300`), `LONGHAUL_FAULT_SEED`
//! a single, verbose one; likewise `LONGHAUL_FTP_FAULT_SEEDS` for FTP servers, and
//! `LONGHAUL_RAW_PUT_SEEDS` for clients that lie.

mod answer;
mod client;
mod content;
mod dice;
mod disk;
mod fault;
mod ftp;
mod generate;
mod invariant;
mod peer;
mod put;
mod relay;
mod run;
mod schedule;
mod server;

use std::panic::catch_unwind;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::support::{seeds, skip};
use put::raw_client::{self, RawSchedule};
use run::Outcome;
use schedule::Schedule;

/// Concurrent schedules: they mostly wait for timeouts.
const AT_ONCE: usize = 8;

/// Schedules of one kind: execution, format, and the environment variable of a single seed; with an
/// S that of their number.
struct Kind {
    play: fn(u64, &Path) -> Outcome,
    shown: fn(u64) -> String,
    variable: &'static str,
    usual: u64,
}

const HTTP: Kind = Kind {
    play: |seed, dir| match generate::schedule(seed) {
        Schedule::Get(schedule) => run::play(&schedule, dir),
        Schedule::Put(schedule) => put::play(&schedule, dir),
    },
    shown: |seed| format!("{:?}", generate::schedule(seed)),
    variable: "LONGHAUL_FAULT_SEED",
    usual: 200,
};

const FTP: Kind = Kind {
    play: ftp::play,
    shown: |seed| format!("{:?}", ftp::schedule(seed)),
    variable: "LONGHAUL_FTP_FAULT_SEED",
    usual: 60,
};

const RAW_PUT: Kind = Kind {
    play: raw_client::play,
    shown: |seed| format!("{:?}", RawSchedule::new(seed)),
    variable: "LONGHAUL_RAW_PUT_SEED",
    usual: 40,
};

impl Kind {
    fn play(&self, seed: u64) -> Outcome {
        // On the disk, not in a tmpfs: the writers must run on a real file system.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        // Built in advance, which takes longer than a client's timeout.
        content::content(0);
        (self.play)(seed, dir.path())
    }

    /// Plays a seed; returns what fails, in one line.
    fn failure(&self, seed: u64, is_verbose: bool) -> Option<String> {
        let began = Instant::now();
        let outcome = catch_unwind(|| self.play(seed)).unwrap_or_else(|_| {
            Outcome::Played(Err("the harness itself panics, as reported above".to_owned()), String::new())
        });
        let (result, log) = match outcome {
            Outcome::Played(result, log) => (result, log),
            Outcome::Skipped(why) => {
                skip(&format!("{why}: seed {seed}"));
                return None;
            }
        };
        let took = began.elapsed().as_secs_f64();
        if is_verbose || took >= 15.0 {
            println!("seed {seed} took {took:.1} s");
        }
        let what = match result {
            Ok(()) if is_verbose => "nothing".to_owned(),
            Ok(()) => return None,
            Err(ref what) => what.clone(),
        };
        let tail: Vec<_> = log.lines().skip(log.lines().count().saturating_sub(60)).collect();
        println!(
            "\n==== seed {seed} ====\n{}\nfound: {what}\nserver:\n{}\nrepeat with: {}={seed} cargo test -p longhaul --test e2e faults:: -- --nocapture\n",
            (self.shown)(seed),
            tail.join("\n"),
            self.variable
        );
        result.err().map(|what| format!("  seed {seed}: {}", what.lines().next().unwrap_or_default()))
    }

    fn play_all(&self) {
        let single = seeds(self.variable).map(|seeds| seeds.end);
        let is_other = |kind: &Kind| kind.variable != self.variable && seeds(kind.variable).is_some();
        if single.is_none() && [HTTP, FTP, RAW_PUT].iter().any(is_other) {
            return;
        }
        let all = seeds(&format!("{}S", self.variable)).unwrap_or(0..self.usual);
        // Parallel runs of one seed expose timing faults sooner.
        let seeds = single.map_or_else(|| all.collect(), |seed| vec![seed; AT_ONCE]);
        let (next, began, failures) = (AtomicUsize::new(0), Instant::now(), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    while let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::SeqCst)) {
                        let failure = self.failure(seed, single.is_some());
                        failures.lock().unwrap().extend(failure);
                    }
                });
            }
        });
        println!("{} seeds in {:.1} s", seeds.len(), began.elapsed().as_secs_f64());
        println!("runs: {:?}", run::RUNS.lock().unwrap());
        let failures = failures.into_inner().unwrap();
        assert!(
            failures.is_empty(),
            "{} seeds fail; their schedules are above\n{}",
            failures.len(),
            failures.join("\n")
        );
    }
}

#[test]
fn no_fault_puts_a_wrong_file_under_the_final_name() {
    HTTP.play_all();
}

#[test]
fn no_fault_of_an_ftp_server_puts_a_wrong_file_under_the_final_name() {
    FTP.play_all();
}

#[test]
fn a_lying_client_puts_no_mixture_under_the_final_name() {
    RAW_PUT.play_all();
}
