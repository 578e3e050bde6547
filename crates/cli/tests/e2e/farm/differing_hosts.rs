//! Hosts that differ: in their clocks, and in the version of the program.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Get, log_lines, plan, status, work};
use crate::support::{RatedSite, at_once, content, on_other_host, other_clock};

/// Plans the files of a site, each a unit.
fn planned(site: &RatedSite, lease: &str) -> Get {
    let run = plan().args(["-r", "--unit-files", "1", "--lease", lease, "-o", "p", &site.url(""), "here"]);
    run.run().ok();
    run
}

#[test]
fn workers_whose_clocks_are_an_hour_apart_take_over_units_of_a_lost_one_alone() {
    let (Some(ahead), Some(behind)) = (other_clock("+1h"), other_clock("-1h")) else { return };
    let files = (0..40).map(|number| (format!("f{number}"), content(200_000, number)));
    // A few seconds of work.
    let site = RatedSite::start(files, 4_000_000);
    at_once(0..2, |lost| {
        let run = planned(&site, "4s");
        let with = |clock: &[(&'static str, String)]| {
            let worker = work(run.dir(), &["-q"]);
            clock.iter().fold(worker, |worker, (name, value)| worker.env(name, value))
        };
        let mut workers = [with(&ahead), with(&behind), with(&[])];
        workers.swap(0, lost);
        let [first, second, third] = workers;
        let mut first = on_other_host(first).start();
        let others = [second.start(), third.start()];
        let is_held = || status(run.dir())["workers"].as_array().is_some_and(|workers| workers.len() == 3);
        first.until("each worker has a unit", is_held);
        first.signal_child(Signal::KILL);
        others.into_iter().for_each(|worker| drop(worker.end().ok()));
        site.is_in(&run.path("here"));
        let lines = log_lines(&run.path("p"));
        let done = || lines.iter().filter(|line| line["result"] == "done");
        assert_eq!(done().count(), 40, "{lines:?}");
        let taken_over = done().filter(|line| line["epoch"].as_u64() > Some(1)).count();
        // Workers whose clocks were compared would lose all units again and again.
        assert!((1..20).contains(&taken_over), "{taken_over} units: {lines:?}");
    });
}

/// A worker of a later version, whose files have what this version does not read.
struct LaterWorker {
    state: PathBuf,
}

impl LaterWorker {
    const NAME: &str = "later-7-0000beef";

    fn beat(&self, beat: u64) {
        let heartbeat = json!({
            "worker": Self::NAME, "host": "later", "process": { "machine": "its own", "id": 7, "started": 9 },
            "program": "99.0.0", "beat": beat, "units": [0], "uses": [{ "host": { "name": "h" } }],
            "progress": { "bytes": 1, "rate": 1, "phase": "new" }, "load": 3,
        });
        let written = self.state.join("workers/.new");
        fs::write(&written, heartbeat.to_string()).unwrap();
        fs::rename(written, self.state.join("workers").join(Self::NAME)).unwrap();
    }

    fn log(&self, lines: &[Value]) {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(self.state.join("log").join(format!("{}.log", Self::NAME)), text).unwrap();
    }
}

#[test]
fn unit_of_a_worker_of_a_later_version_is_left_to_it_while_it_beats_and_counts_as_done() {
    let files = (0..4).map(|number| (format!("f{number}"), content(1000, number)));
    let site = RatedSite::start(files, 1_000_000);
    let run = planned(&site, "2s");
    let mut entries = fs::read_dir(run.path("p")).unwrap().map(|entry| entry.unwrap().path());
    let state = entries.find(|path| path.is_dir()).unwrap();
    let units = fs::read_to_string(run.path("p/units.jsonl")).unwrap();
    let unit: Value = serde_json::from_str(units.lines().next().unwrap()).unwrap();
    let name = unit["files"][0]["path"].as_str().unwrap();
    let number = name.strip_prefix('f').unwrap().parse().unwrap();
    let later = LaterWorker { state };
    later.beat(1);
    let claim = later.state.join("claims/0.1");
    symlink(LaterWorker::NAME, &claim).unwrap();
    let ends = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            // Bounded, as the scope waits for this thread also if the test fails.
            for beat in 2..600 {
                if !ends.load(Ordering::Relaxed) {
                    later.beat(beat);
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        });
        let mut worker = work(run.dir(), &[]).start();
        worker.until("all other units are done", || status(run.dir())["done"] == 3);
        std::thread::sleep(Duration::from_secs(4));
        let file = run.path("here").join(name);
        assert!(!worker.has_ended() && !file.exists(), "the later one is taken for lost");
        fs::write(file, content(1000, number)).unwrap();
        later.log(&[
            json!({ "unit": 0, "epoch": 1, "result": "checked", "by": { "sum": 1 } }),
            json!({ "unit": 0, "epoch": 1, "result": "done", "bytes": 1000, "report": { "host": 7 }, "copies": 2 }),
        ]);
        fs::remove_file(&claim).unwrap();
        worker.end().ok();
        ends.store(true, Ordering::Relaxed);
    });
    site.is_in(&run.path("here"));
    let now = status(run.dir());
    assert_eq!((&now["done"], &now["bytes_done"]), (&4.into(), &4000.into()));
}
