//! The limits of all workers together: shared by need, free again after a worker's end, changed
//! while they run.

use std::fs;
use std::path::Path;
use std::time::Instant;

use rustix::process::Signal;

use super::{log_lines, of_plan, plan, status, work};
use crate::support::{Writable, age, assert_equal, content};

/// Serves a tree of equal files.
fn tree(files: usize, size: usize) -> Writable {
    let server = Writable::start();
    fs::create_dir(server.path("t")).unwrap();
    for number in 0..files {
        fs::write(server.path("t").join(number.to_string()), content(size, number as u64)).unwrap();
    }
    age(&server.path("t"), 1_100_000_000);
    server
}

/// Returns the shares of the rate that workers have announced, also those of a killed one.
fn shares(plan: &Path) -> Vec<u64> {
    let state = fs::read_dir(plan).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.is_dir());
    let workers = fs::read_dir(state.unwrap().join("workers")).unwrap();
    let read = |path: &Path| -> Option<u64> {
        let text = fs::read(path).ok()?;
        serde_json::from_slice::<serde_json::Value>(&text).ok()?["uses"][0]["rate"]["share"].as_u64()
    };
    workers.filter_map(|entry| read(&entry.ok()?.path())).collect()
}

#[test]
fn workers_share_the_rate_and_say_that_it_limits_them() {
    const LIMIT: f64 = 16e6;
    let (files, size) = (16, 1_000_000);
    let server = tree(files, size);
    let url = server.url("/t/");
    let options = ["-r", "--unit-files", "1", "--lease", "1s", "--farm-limit", "16Mbit", "-o", "p"];
    let run = plan().args(options).args([&*url, "here"]);
    run.run().ok();
    let workers = [(); 3].map(|()| work(run.dir(), &["-q", "--parallel", "1"]));
    let began = Instant::now();
    let mut running = workers.each_ref().map(|worker| worker.start());
    let mut now = serde_json::Value::Null;
    running[0].until("the limit is seen in a unit", || {
        now = status(run.dir());
        now["explanation"]["limited_by"] == "farm-limit"
    });
    assert_eq!(
        (&now["explanation"]["one_more_host_bps"], &now["limits"]["rate"]),
        (&0.into(), &16_000_000.into())
    );
    assert_eq!(now["hosts"][0]["limited_by"], "farm-limit", "{now}");
    running.into_iter().for_each(|worker| drop(worker.end().ok()));
    let rate = (files * size * 8) as f64 / began.elapsed().as_secs_f64();
    assert!((LIMIT / 2.0..LIMIT * 1.25).contains(&rate), "{rate}");
    assert_equal(&server.path("t"), &run.path("here"));
    let lines = log_lines(&run.path("p"));
    let held = lines.iter().filter(|line| line["report"]["limited_by"] == "farm-limit");
    assert!(held.count() > files / 2, "{lines:?}");
    assert!(lines.iter().all(|line| line["report"]["seconds"].as_f64() > Some(0.0)), "{lines:?}");
}

#[test]
fn uploads_and_copies_share_the_rate_too() {
    const LIMIT: f64 = 16e6;
    let (files, size) = (8, 1_000_000);
    let server = tree(files, size);
    let local = server.path("t").display().to_string();
    let login = ["--token".to_owned(), server.token().display().to_string()];
    let login = login.each_ref().map(|word| &**word);
    for (limit, target) in [("127.0.0.1=16Mbit", server.url("/u/")), ("16Mbit", "here".to_owned())] {
        let options = ["-r", "--unit-files", "1", "--lease", "1s", "--farm-limit", limit, "-o", "p"];
        let run = plan().args(options).args(login).args([&local, &target]);
        run.run().ok();
        let workers = [(); 2].map(|()| work(run.dir(), &[&["-q", "--parallel", "1"], &login[..]].concat()));
        let began = Instant::now();
        let running = workers.each_ref().map(|worker| worker.start());
        running.into_iter().for_each(|worker| drop(worker.end().ok()));
        let rate = (files * size * 8) as f64 / began.elapsed().as_secs_f64();
        assert!(rate < LIMIT * 1.25, "{target}: {rate}");
        let lines = log_lines(&run.path("p"));
        let held = lines.iter().filter(|line| line["report"]["limited_by"] == "farm-limit");
        assert!(held.count() > files / 2, "{target}: {lines:?}");
        assert_eq!(status(run.dir())["done"], files);
    }
    assert_equal(&server.path("t"), &server.path("u"));
}

#[test]
fn share_of_a_killed_worker_is_taken_over_and_the_limit_of_a_host_is_lifted_live() {
    let server = tree(12, 2_000_000);
    let url = server.url("/t/");
    let options = ["-r", "--unit-files", "1", "--lease", "1s", "--farm-limit", "127.0.0.1=8Mbit", "-o", "p"];
    let run = plan().args(options).args([&*url, "here"]);
    run.run().ok();
    let (worker, plan) = (work(run.dir(), &["-q", "--parallel", "1"]), run.path("p"));
    let mut one = worker.start();
    one.until("it has all", || shares(&plan) == [8_000_000]);
    let other = worker.start();
    let is_half = |share: &u64| (3_000_000..=5_000_000).contains(share);
    one.until("each has about half", || shares(&plan).iter().filter(|share| is_half(share)).count() == 2);
    other.signal(Signal::KILL);
    other.end();
    one.until("it has all again", || shares(&plan).contains(&8_000_000));
    assert_eq!(status(run.dir())["done"].as_u64().map(|done| done < 12), Some(true));
    let lifted = of_plan(run.dir(), "limit", &["127.0.0.1=off"]).ok();
    assert_eq!(lifted.stdout, "all workers: no limit\nconnections to each host: 128\n");
    one.end().ok();
    assert_equal(&server.path("t"), &run.path("here"));
}

#[test]
fn connections_are_limited_and_edited_limits_are_named() {
    // More than a first request takes.
    let server = tree(1, 48 << 20);
    let url = server.url("/t/0");
    let run = plan().args(["--farm-connections", "4", "-o", "p", &url, "here"]);
    run.run().ok();
    let plan = run.path("p");
    let state = fs::read_dir(&plan).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.is_dir());
    let limits = state.unwrap().join("limits.json");
    let given = fs::read(&limits).unwrap();
    fs::write(&limits, "{\"rate\":").unwrap();
    work(run.dir(), &[]).run().fails(65, &["limits.json", "plan limit"]);
    of_plan(run.dir(), "limit", &["1Gbit"]).fails(65, &["limits.json", "remove it"]);
    fs::write(&limits, given).unwrap();
    // Long enough for all connections.
    let options = ["--json", "--streams", "8", "--limit", "300Mbit"];
    let done = work(run.dir(), &options).run().ok().events("done");
    assert_eq!(done[0]["streams"], 2, "half is left to others that begin: {done:?}");
    assert_equal(&server.path("t"), &run.path("here"));
}
