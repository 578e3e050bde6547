//! Kills the agent at random moments: nothing is lost, nothing is fetched twice, every file is
//! right.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rustix::process::Signal;

use crate::support::{Completions, Home, chosen_kill_rounds, content, names, same, serve};

/// Default number of kills; LONGHAUL_KILL_ROUNDS overrides it, and the seed of what is fetched and
/// when it is killed.
const KILLS: Range<u64> = 1..7;
/// Maximum time for the queue to complete after the last kill.
const REST: Duration = Duration::from_secs(300);

#[test]
fn killed_agent_loses_nothing_and_fetches_nothing_twice() {
    let kills = chosen_kill_rounds().unwrap_or(KILLS);
    let seed = kills.start;
    let mut dice = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let home = Home::new();
    let site = home.path("site");
    fs::create_dir(&site).unwrap();
    let (_server, url) = serve(&site, &[]);
    let mut expected: HashMap<String, Vec<u8>> = HashMap::new();
    let mut completions = Completions::of(home.files());
    for round in kills {
        // Two files per round, most of which complete before the next round: some kills hit the end
        // of a file.
        for number in 0..2 {
            let name = format!("f{round}-{number}");
            let bytes = content(dice.random_range(0..6_000_000), round * 2 + number);
            fs::write(site.join(&name), &bytes).unwrap();
            home.add(&format!("{url}/{name}"), &["--limit", "200Mbit"]);
            expected.insert(name, bytes);
        }
        std::thread::sleep(Duration::from_millis(dice.random_range(0..400)));
        if dice.random() {
            // The kill hits the addition, which must nevertheless happen exactly once.
            let (name, bytes) = (format!("g{round}"), content(300_000, round));
            fs::write(site.join(&name), &bytes).unwrap();
            let files = format!("{}/", home.files().display());
            let mut add = home.command();
            let mut add = add.args(["queue", "add", &format!("{url}/{name}"), "-o", &files]).spawn().unwrap();
            expected.insert(name, bytes);
            std::thread::sleep(Duration::from_millis(dice.random_range(0..30)));
            home.kill(Signal::KILL);
            assert!(add.wait().unwrap().success(), "seed {seed}");
        }
        home.kill(Signal::KILL);
        completions.note();
    }
    let began = Instant::now();
    loop {
        let all = home.list();
        assert_eq!(all.len(), expected.len(), "every transfer once");
        if all.iter().all(|transfer| transfer["state"] == "done") {
            break;
        }
        let failed = all.iter().find(|one| one["state"] == "failed" || one["state"] == "waiting-link");
        assert!(failed.is_none(), "seed {seed}: {failed:?}");
        assert!(began.elapsed() < REST, "seed {seed}: {all:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    completions.note();
    assert_eq!(completions.replaced, 0, "seed {seed}: files that were fetched twice");
    for (name, bytes) in &expected {
        same(home.files().join(name), bytes);
    }
    let names = names(&home.files());
    assert_eq!(names.len(), expected.len(), "no file twice: {names:?}");
}
