//! Kills the agent at random moments: nothing is lost, nothing is fetched twice, every file is right.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rustix::process::Signal;

use crate::support::{Home, content, names, same, serve};

/// Default number of kills, and seed of what is fetched and when it is killed; LONGHAUL_KILLS and LONGHAUL_KILL_SEED override them.
const KILLS: usize = 6;
const SEED: u64 = 1;
/// Maximum time for the queue to complete after the last kill.
const REST: Duration = Duration::from_secs(300);

#[test]
fn killed_agent_loses_nothing_and_fetches_nothing_twice() {
    let kills = std::env::var("LONGHAUL_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let seed = std::env::var("LONGHAUL_KILL_SEED").map_or(SEED, |text| text.parse().unwrap());
    let mut dice = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let home = Home::new();
    let site = home.path("site");
    fs::create_dir(&site).unwrap();
    let (_server, url) = serve(&site, &[]);
    let mut expected: HashMap<String, Vec<u8>> = HashMap::new();
    // The inode of each file when it was first complete.
    let mut complete: HashMap<String, u64> = HashMap::new();
    for round in 0..kills {
        // Two files per round, most of which complete before the next round: some kills hit the end of a file.
        for number in 0..2 {
            let name = format!("f{round}-{number}");
            let bytes = content(dice.random_range(0..6_000_000), (round * 2 + number) as u64);
            fs::write(site.join(&name), &bytes).unwrap();
            home.add(&format!("{url}/{name}"), &["--limit", "200Mbit"]);
            expected.insert(name, bytes);
        }
        std::thread::sleep(Duration::from_millis(dice.random_range(0..400)));
        if dice.random() {
            // The kill hits the addition, which must nevertheless happen exactly once.
            let (name, bytes) = (format!("g{round}"), content(300_000, round as u64));
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
        note_complete(&home, &mut complete);
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
    note_complete(&home, &mut complete);
    for (name, bytes) in &expected {
        same(home.files().join(name), bytes);
    }
    let names = names(&home.files());
    assert_eq!(names.len(), expected.len(), "no file twice: {names:?}");
}

/// Records the complete files: a later replacement would be a second fetch.
fn note_complete(home: &Home, complete: &mut HashMap<String, u64>) {
    for entry in fs::read_dir(home.files()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name.contains(".longhaul-") {
            continue;
        }
        let inode = entry.metadata().unwrap().ino();
        assert_eq!(*complete.entry(name.clone()).or_insert(inode), inode, "{name} was fetched twice");
    }
}
