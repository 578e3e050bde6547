//! Agents of one queue in PostgreSQL, of which some are killed and stopped at seeded moments, and
//! the database with them.

use std::fmt::Write;
use std::fs;
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Completions, Home, Postgres, RatedSite, RoundWork, content, join_farm, kill_rounds};

const AGENTS: usize = 3;
const FILES: u64 = 30;
/// The rate of all agents together, in bytes per second: all files take 4 s.
const RATE: u64 = 2_000_000;
const LEASE: Duration = Duration::from_secs(4);
/// How often an agent or the database is killed or stopped in a round.
const STRIKES: usize = 2;
/// Maximum time for the queue to complete after the last strike: a file that a stopped agent holds
/// is tried again later and later.
const REST: Duration = Duration::from_secs(180);

#[test]
fn killed_and_stopped_agents_and_databases_lose_nothing() {
    let Some(postgres) = Postgres::start() else { return };
    let small = (0..FILES).map(|number| (format!("f{number}"), content(170_000, number)));
    let site = RatedSite::start(small.chain([("large".to_owned(), content(3_000_000, FILES))]), RATE);
    let homes: Vec<Home> = (0..AGENTS).map(|_| Home::without_agent()).collect();
    let lease = LEASE.as_secs().to_string();
    join_farm(&homes, &["--farm", &postgres.url("farm"), "--farm-lease", &lease]);
    let mut farm = Farm { homes, postgres, site };
    let mut all = RoundWork::default();
    kill_rounds().for_each(|seed| all += farm.play(seed));
    all.judge();
}

struct Farm {
    homes: Vec<Home>,
    postgres: Postgres,
    site: RatedSite,
}

impl Farm {
    fn play(&mut self, seed: u64) -> RoundWork {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let (began, before) = (Instant::now(), self.site.sent());
        let directory = self.homes[0].files().join(seed.to_string());
        fs::create_dir(&directory).unwrap();
        let output = format!("{}/", directory.display());
        let urls = self.site.urls();
        let add: Vec<&str> =
            ["add", "-o", &output].into_iter().chain(urls.iter().map(String::as_str)).collect();
        let last = self.postgres.sql("SELECT coalesce(max(id), 0) FROM longhaul.transfers");
        self.homes[dice.random_range(0..AGENTS)].queue_ok(&add);
        let mut completions = Completions::of(directory.clone());
        let mut stopped: [Option<(Pid, Instant)>; AGENTS] = [None; AGENTS];
        let mut story = format!("round {seed}:");
        for _ in 0..STRIKES {
            completions.watch(Duration::from_millis(dice.random_range(50..1500)));
            let number = dice.random_range(0..AGENTS);
            let what = match dice.random_range(0..3) {
                0 => {
                    stopped[number] = None;
                    self.homes[number].kill(Signal::KILL);
                    self.homes[number].agent(&["--listen", "127.0.0.1:0"]);
                    format!("kill {number}")
                }
                1 => {
                    let pid = self.homes[number].pid().unwrap();
                    kill_process(pid, Signal::STOP).unwrap();
                    stopped[number].get_or_insert((pid, Instant::now()));
                    format!("stop {number}")
                }
                _ => {
                    // For less than a lease, or for more.
                    let outage = LEASE.mul_f64(dice.random_range(0.0..1.5));
                    self.postgres.kill_first_process();
                    completions.watch(outage);
                    self.postgres.run();
                    format!("kill the database for {:.1} s", outage.as_secs_f64())
                }
            };
            let _ = write!(story, " {what} until {:.1} s,", began.elapsed().as_secs_f64());
        }
        let stopped: Vec<_> = stopped.into_iter().flatten().collect();
        for (pid, at) in &stopped {
            completions.watch((2 * LEASE).saturating_sub(at.elapsed()));
            kill_process(*pid, Signal::CONT).unwrap();
        }
        let struck = Instant::now();
        let state = format!(
            "SELECT count(*), count(*) FILTER (WHERE state = 'done') FROM longhaul.transfers WHERE id > {last}"
        );
        let all = urls.len() as u64;
        loop {
            let states = self.postgres.sql(&state);
            if states == format!("{all}|{all}") {
                break;
            }
            let failed = "SELECT string_agg(error, ' ') FROM longhaul.transfers WHERE state = 'failed'";
            let failed = self.postgres.sql(failed);
            assert!(failed.is_empty() && struck.elapsed() < REST, "{story} {states} {failed}");
            completions.watch(Duration::from_millis(200));
        }
        // Neither partial files nor copies are left.
        self.site.is_in(&directory);
        fs::remove_dir_all(&directory).unwrap();
        let sent = self.site.sent() - before;
        let (twice, stops) = (completions.replaced, stopped.len() as u64);
        let work = RoundWork { rounds: 1, units: all, twice, stops, bytes: self.site.size(), sent };
        println!("{story} {work}, {:.1} s", began.elapsed().as_secs_f64());
        work
    }
}
