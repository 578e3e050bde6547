//! Workers that are killed and stopped at random moments: nothing is lost, every file is right.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rustix::process::Signal;

use super::{log_lines, of_plan, plan, status, work};
use crate::support::{Running, Writable, age, assert_equal, content, names};

/// Default number of rounds, and seed of their moments; LONGHAUL_KILLS and LONGHAUL_KILL_SEED override them.
const ROUNDS: usize = 20;
const SEED: u64 = 1;
/// Maximum time for the plan to complete after the last round.
const REST: Duration = Duration::from_secs(120);

#[test]
fn killed_and_stopped_workers_lose_nothing() {
    let rounds = std::env::var("LONGHAUL_KILLS").map_or(ROUNDS, |text| text.parse().unwrap());
    let seed = std::env::var("LONGHAUL_KILL_SEED").map_or(SEED, |text| text.parse().unwrap());
    let mut dice = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let server = Writable::start();
    fs::create_dir(server.path("t")).unwrap();
    // A unit takes a worker about half a second.
    for number in 0..3 * rounds {
        fs::write(server.path("t").join(number.to_string()), content(600_000, number as u64)).unwrap();
    }
    // One that is fetched in ranges.
    fs::write(server.path("t/huge"), content(rounds << 19, SEED)).unwrap();
    age(&server.path("t"), 1_100_000_000);
    let run =
        plan().args(["-r", "--unit-size", "1MiB", "--lease", "1s", "-o", "p", &server.url("/t/"), "here"]);
    run.run().ok();
    let workers = work(run.dir(), &["-q", "--limit", "20Mbit"]);
    let mut stopped: Vec<Running> = Vec::new();
    for round in 0..rounds {
        let (one, other) = (workers.start(), workers.start());
        std::thread::sleep(Duration::from_millis(dice.random_range(50..700)));
        one.signal(Signal::KILL);
        if round % 5 == 0 {
            // It wakes up long after its lease has passed to another worker.
            other.signal(Signal::STOP);
            stopped.push(other);
        } else {
            other.signal(Signal::KILL);
        }
    }
    let began = Instant::now();
    let [last, second] = [(); 2].map(|()| workers.start());
    while began.elapsed() < Duration::from_secs(3) {
        std::thread::sleep(Duration::from_millis(100));
    }
    stopped.iter().for_each(|worker| worker.signal(Signal::CONT));
    for worker in stopped.into_iter().chain([last, second]) {
        let ended = worker.end();
        assert_eq!(ended.status.code(), Some(0), "seed {seed}: {ended:?}");
    }
    assert!(began.elapsed() < REST);
    let now = status(run.dir());
    assert_eq!((&now["done"], &now["failed"]), (&now["units"], &0.into()), "seed {seed}: {now}");
    let lines = log_lines(&run.path("p"));
    let of = |result: &str| lines.iter().filter(move |line| line["result"] == result).collect::<Vec<_>>();
    let (done, units) = (of("done"), now["units"].as_u64().unwrap() as usize);
    let taken_over = done.iter().filter(|line| line["epoch"].as_u64() > Some(1)).count();
    assert!(taken_over > 0, "seed {seed}: no unit was taken over");
    // A stopped worker may complete what it had under way once more, and nothing else.
    assert!(done.len() - units < units / 2, "seed {seed}: {} units were done twice", done.len() - units);
    assert!(of("failed").is_empty(), "seed {seed}: {lines:?}");
    of_plan(run.dir(), "verify", &[]).ok();
    assert_equal(&server.path("t"), &run.path("here"));
    // Workers that were continued have written ranges into the file after it had got its name and its time.
    assert_eq!(fs::metadata(run.path("here/huge")).unwrap().mtime(), 1_100_000_000, "seed {seed}");
    assert!(
        names(&run.path("here")).iter().all(|name| !name.starts_with('.')),
        "the staging directory is left"
    );
}
