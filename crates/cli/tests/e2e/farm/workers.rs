//! Several workers of one plan: what they fetch, and what is said of it.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{of_plan, plan, status, work};
use crate::support::{
    Writable, age, assert_equal, content, fetched_and_unchanged, in_own_mounts, longhaul, make_tree,
    many_files, names, same, sha256,
};

#[test]
fn tree_is_fetched_by_three_workers_and_checked() {
    let server = Writable::hidden();
    make_tree(&server.path("t"));
    many_files(&server.path("t/many"), 120);
    let url = server.url("/t/");
    let run = plan().args(["-r", "--unit-files", "10", "-o", "p", &url, "here"]);
    let made = run.run().ok();
    assert!(made.stdout.contains("p: 14 units of 140 files"), "{made:?}");
    let before = status(run.dir());
    assert_eq!((&before["units"], &before["done"], &before["files"]), (&14.into(), &0.into(), &140.into()));
    let workers = [(); 3].map(|()| work(run.dir(), &["-q"]));
    let running: Vec<_> = workers.iter().map(|worker| worker.start()).collect();
    running.into_iter().for_each(|worker| drop(worker.end().ok()));
    assert_equal(&server.path("t"), &run.path("here"));
    let after = status(run.dir());
    assert_eq!(
        (&after["done"], &after["failed"], &after["workers"]),
        (&14.into(), &0.into(), &serde_json::json!([]))
    );
    work(run.dir(), &[]).run().ok();
    of_plan(run.dir(), "verify", &[]).ok();
    fs::write(run.path("sums"), of_plan(run.dir(), "manifest", &[]).ok().stdout).unwrap();
    let mut check = Command::new("sha256sum");
    let check = check.args(["-c", "--quiet", "../sums"]).current_dir(run.path("here")).output().unwrap();
    assert!(check.status.success(), "{check:?}");
    fs::remove_file(run.path("here/a b")).unwrap();
    fs::write(run.path("here/many/d1/f1"), "").unwrap();
    let wrong = of_plan(run.dir(), "verify", &[]).fails(65, &["2 of 140 files"]);
    assert!(wrong.stdout.contains("a b is missing") && wrong.stdout.contains("instead of 1"), "{wrong:?}");
    // A new plan costs what differs only.
    let run = run.again(["-r", "-o", "q", &url, "here"]);
    run.run().ok();
    let again = longhaul("work").args([run.path("q").to_str().unwrap(), "--json"]).run().ok();
    assert_eq!(fetched_and_unchanged(&again).0, ["a%20b", "f1"]);
    assert_equal(&server.path("t"), &run.path("here"));
}

#[test]
fn stopped_worker_leaves_its_partial_file_to_the_next_one() {
    let server = Writable::start();
    let bytes = content(6 << 20, 3);
    fs::write(server.path("f"), &bytes).unwrap();
    // A file that may still be written to has no strong validator.
    age(&server.path(""), 1_100_000_000);
    let run = plan().args(["-o", "p", &server.url("/f"), "here"]);
    run.run().ok();
    let slow = work(run.dir(), &["--limit", "10Mbit"]);
    // Some of the 5 seconds that the file takes.
    let mut opened = None;
    let has_part = || {
        let found = Command::new("find").arg(run.path("here")).output().unwrap().stdout;
        if String::from_utf8_lossy(&found).contains("longhaul-part") {
            opened.get_or_insert_with(Instant::now);
        }
        opened.is_some_and(|at| at.elapsed() > Duration::from_secs(1))
    };
    let stopped = slow.signalled(Signal::TERM, "a part is on the disk", has_part);
    stopped.fails(75, &["run it again"]);
    assert_eq!(status(run.dir())["workers"], serde_json::json!([]));
    let resumed = work(run.dir(), &["--json"]).run().ok();
    assert!(resumed.events("done")[0]["resumed"].as_u64().unwrap() > 0, "{resumed:?}");
    same(run.path("here/f"), &bytes);
    assert_eq!(names(&run.path("here")), ["f"]);
}

#[test]
fn what_fails_is_told_with_its_reason_and_tried_again_after_a_retry() {
    let server = Writable::start();
    fs::write(server.path("a"), "first").unwrap();
    fs::write(server.path("b"), "other").unwrap();
    age(&server.path(""), 1_100_000_000);
    let list = format!(
        "{}\n out=x/a\n size=5\n checksum=sha256={}\n{}\n checksum=sha256={}\n",
        server.url("/a"),
        sha256(b"first"),
        server.url("/b"),
        sha256(b"planned"),
    );
    let run = plan().file("list", list).args(["-i", "list", "--unit-files", "1", "-o", "p", "here"]);
    run.run().ok();
    for attempt in 1..=3 {
        work(run.dir(), &[]).run().fails(1, &["a unit has failed", "plan status"]);
        let now = status(run.dir());
        assert_eq!((&now["done"], &now["failures"][0]["attempts"]), (&1.into(), &attempt.into()));
        assert!(now["failures"][0]["why"].as_str().unwrap().contains("sha256"), "{now}");
    }
    work(run.dir(), &[]).run().fails(1, &["a unit has failed"]);
    assert_eq!(status(run.dir())["failures"][0]["given_up"], true);
    fs::write(server.path("b"), "planned").unwrap();
    of_plan(run.dir(), "retry", &[]).ok();
    work(run.dir(), &[]).run().ok();
    same(run.path("here/x/a"), b"first");
    same(run.path("here/b"), b"planned");
}

#[test]
fn source_that_was_changed_since_is_named_and_not_mixed() {
    let server = Writable::start();
    for (planned, changed, time) in [("12345", "123456", 1_100_000_000), ("12345", "54321", 1_200_000_000)] {
        fs::write(server.path("f"), planned).unwrap();
        age(&server.path(""), 1_100_000_000);
        let run = plan().args(["-o", "p", &server.url("/f"), "here"]);
        run.run().ok();
        fs::write(server.path("f"), changed).unwrap();
        age(&server.path(""), time);
        work(run.dir(), &[]).run().fails(1, &["a unit has failed"]);
        let now = status(run.dir());
        let why = now["failures"][0]["why"].as_str().unwrap();
        assert!(why.contains("bytes that are expected") || why.contains("was changed"), "{why}");
        assert!(!run.path("here/f").exists());
    }
}

#[test]
fn two_plans_onto_one_target_harm_no_file() {
    let server = Writable::start();
    many_files(&server.path("t"), 60);
    let url = server.url("/t/");
    let run = plan().args(["-r", "--unit-files", "7", "-o", "p", &url, "here"]);
    run.run().ok();
    let other = plan().args(["-r", "--unit-files", "5", "-o", "p", &url, run.path("here").to_str().unwrap()]);
    other.run().ok();
    let workers = [work(run.dir(), &["-q"]), work(other.dir(), &["-q"])];
    let running: Vec<_> = workers.iter().map(|worker| worker.start()).collect();
    running.into_iter().for_each(|worker| drop(worker.end().ok()));
    assert_equal(&server.path("t"), &run.path("here"));
}

#[test]
fn worker_whose_disk_is_full_ends_and_another_one_continues() {
    let server = Writable::start();
    fs::write(server.path("f"), content(4 << 20, 1)).unwrap();
    let run = plan().args(["-o", "p", &server.url("/f"), "here"]);
    run.run().ok();
    let script = format!("mount -t tmpfs -o size=1m none {} && exec \"$@\"", run.path("here").display());
    let Some(full) = in_own_mounts(work(run.dir(), &[]), &script) else { return };
    full.run().fails(1, &["a unit has failed"]);
    let now = status(run.dir());
    assert!(now["failures"][0]["why"].as_str().unwrap().contains("space"), "{now}");
    work(run.dir(), &[]).run().ok();
    same(run.path("here/f"), &content(4 << 20, 1));
}
