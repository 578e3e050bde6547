//! Several workers of one plan: what they fetch, and what is said of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{log_lines, of_plan, plan, status, work};
use crate::support::{
    File, Get, Server, Writable, age, assert_equal, content, fetched_and_unchanged, in_own_mounts, longhaul,
    make_tree, many_files, names, response, same, sha256,
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
    assert!(Command::new("mkfifo").arg(run.path("here/a b")).status().unwrap().success());
    of_plan(run.dir(), "manifest", &[]).fails(74, &["a b: it is not a file"]);
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
    let bytes = content(6 << 20, 3);
    let (_server, run) = stopped_within_a_file(&bytes);
    let resumed = work(run.dir(), &["--json"]).run().ok();
    assert!(resumed.events("done")[0]["resumed"].as_u64().unwrap() > 0, "{resumed:?}");
    same(run.path("here/f"), &bytes);
    assert_eq!(names(&run.path("here")), ["f"]);
}

#[test]
fn worker_that_is_continued_after_its_lease_does_not_complete_its_unit_once_more() {
    let bytes = content(200_000, 3);
    let (server, gate) = Server::held(&File::new(bytes.clone()), 100_000);
    let list = format!("{}\n size=200000\n", server.url("/f"));
    let run = plan().file("list", list).args(["-i", "list", "--lease", "1s", "-o", "p", "here"]);
    run.run().ok();
    let mut late = work(run.dir(), &["-q"]).start();
    late.until("it requests the file", || !server.requests().is_empty());
    late.signal(Signal::STOP);
    // It finds the rest of the file in its socket when it is continued.
    gate.open();
    work(run.dir(), &[]).run().ok();
    late.signal(Signal::CONT);
    late.end().ok();
    let lines = log_lines(&run.path("p"));
    assert_eq!(lines.iter().filter(|line| line["result"] == "done").count(), 1, "{lines:?}");
    same(run.path("here/f"), &bytes);
    assert_eq!(names(&run.path("here")), ["f"]);
}

#[test]
fn source_that_was_changed_while_no_worker_ran_is_not_mixed_into_a_partial_file() {
    let (server, run) = stopped_within_a_file(&content(6 << 20, 3));
    fs::write(server.path("f"), content(6 << 20, 4)).unwrap();
    age(&server.path(""), 1_200_000_000);
    work(run.dir(), &[]).run().fails(1, &["a unit has failed"]);
    assert!(!run.path("here/f").exists());
}

/// Runs a worker on the plan of one file, and stops it within the file.
fn stopped_within_a_file(bytes: &[u8]) -> (Writable, Get) {
    let server = Writable::start();
    fs::write(server.path("f"), bytes).unwrap();
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
    (server, run)
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
    // The names of one tree, and other contents.
    let copied = Command::new("cp").args(["-a", "t", "u"]).current_dir(server.path("")).status();
    assert!(copied.unwrap().success());
    let files = files_below(&server.path("u"));
    files.iter().for_each(|file| fs::write(server.path("u").join(file), "another version").unwrap());
    let local = |name| server.path(name).display().to_string();
    for [one, other] in [[server.url("/t/"), server.url("/u/")], [local("t"), local("u")]] {
        let run = plan().args(["-r", "--unit-files", "7", "-o", "p", &one, "here"]);
        run.run().ok();
        let target = run.path("here").display().to_string();
        let other = plan().args(["-r", "--unit-files", "5", "-o", "p", &other, &target]);
        other.run().ok();
        let workers = [work(run.dir(), &["-q"]), work(other.dir(), &["-q"])];
        let running: Vec<_> = workers.iter().map(|worker| worker.start()).collect();
        running.into_iter().for_each(|worker| drop(worker.end().ok()));
        assert_eq!(files_below(&run.path("here")), files);
        for file in &files {
            let read = |root: PathBuf| fs::read(root.join(file)).unwrap();
            let found = read(run.path("here"));
            assert!([server.path("t"), server.path("u")].map(read).contains(&found), "{file:?} is mixed");
        }
    }
}

/// Returns the paths of all files below a directory, sorted.
fn files_below(root: &Path) -> Vec<PathBuf> {
    let found = Command::new("find").args([".", "-type", "f"]).current_dir(root).output().unwrap();
    let mut files: Vec<PathBuf> =
        String::from_utf8(found.stdout).unwrap().lines().map(PathBuf::from).collect();
    files.sort();
    files
}

#[test]
fn entries_without_size_and_time_are_looked_up() {
    let page = "<title>Index of /d/</title><a href='a'>a</a><a href='b'>b</a><a href='none'>none</a>";
    let server = Server::replying(move |request| {
        let fields = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n".to_owned();
        match request.target.as_str() {
            "/d/" => response("200 OK\r\nContent-Type: text/html", page).into_bytes(),
            "/d/a" | "/d/b" => {
                let file = File { fields, ..File::new(b"12345".to_vec()) };
                let (head, body) = file.answer(request);
                let body = if request.head.starts_with("HEAD") { &[][..] } else { body };
                [head.as_bytes(), body].concat()
            }
            _ => response("404 Not Found", "").into_bytes(),
        }
    });
    let run = plan().args(["-r", "-o", "p", &server.url("/d/"), "here"]);
    run.run().fails(66, &["not planned", "/d/none"]);
    let now = status(run.dir());
    assert_eq!((&now["files"], &now["bytes"], &now["left_out"]), (&2.into(), &10.into(), &1.into()));
    let worked = work(run.dir(), &[]).run().ok();
    assert!(worked.stderr.contains("could not be planned: 1"), "{worked:?}");
    let run = run.again(["-r", "-o", "q", &server.url("/d/"), "here"]);
    run.run().fails(66, &["not planned"]);
    let again = longhaul("work").args([run.path("q").to_str().unwrap(), "--json"]).run().ok();
    assert_eq!(fetched_and_unchanged(&again).0, [""; 0]);
}

#[test]
fn host_without_a_login_does_not_use_up_the_attempts_of_all_units() {
    let server = Server::answering(response("401 Unauthorized", ""));
    let list: String = (0..8).map(|number| format!("{}\n", server.url(&format!("/{number}")))).collect();
    let run = plan().file("list", list).args(["-i", "list", "--unit-files", "1", "-o", "p", "here"]);
    run.run().ok();
    work(run.dir(), &["--parallel", "1"]).run().fails(1, &["units have failed"]);
    // The next unit is claimed before the third one ends.
    assert!((3..=4).contains(&status(run.dir())["failed"].as_u64().unwrap()));
}

#[test]
fn worker_without_the_target_ends_and_writes_nothing() {
    let server = Writable::start();
    fs::write(server.path("f"), "f").unwrap();
    let run = plan().args(["-o", "p", &server.url("/f"), "here"]);
    run.run().ok();
    fs::rename(run.path("here"), run.path("elsewhere")).unwrap();
    work(run.dir(), &[]).run().fails(66, &["here is missing", "mount"]);
    of_plan(run.dir(), "verify", &[]).fails(66, &["mount"]);
    assert!(!run.path("here").exists());
    // An empty mount point.
    fs::create_dir(run.path("here")).unwrap();
    work(run.dir(), &[]).run().fails(66, &["mount"]);
    assert_eq!(names(&run.path("here")), [""; 0]);
    fs::remove_dir(run.path("here")).unwrap();
    fs::rename(run.path("elsewhere"), run.path("here")).unwrap();
    let at = run.path("here").display().to_string();
    let script = format!(
        "busy=$(echo {at}/.longhaul-*)/busy && mkdir $busy && mount -t tmpfs none $busy && exec \"$@\""
    );
    if let Some(busy) = in_own_mounts(work(run.dir(), &[]), &script) {
        let ended = busy.run().ok();
        assert!(ended.stderr.contains("all units are done"), "{ended:?}");
    }
    work(run.dir(), &[]).run().ok();
    assert_eq!(names(&run.path("here")), ["f"]);
}

#[test]
fn worker_whose_disk_is_full_ends_and_another_one_continues() {
    let server = Writable::start();
    fs::write(server.path("f"), content(4 << 20, 1)).unwrap();
    for source in [server.url("/f"), server.path("f").display().to_string()] {
        let run = plan().args(["-o", "p", &source, "here"]);
        run.run().ok();
        let script = format!(
            "cd {} && plan=$(echo .longhaul-*) && mount -t tmpfs -o size=1m none . && cd .. && mkdir here/$plan \
             && touch here/$plan/plan && exec \"$@\"",
            run.path("here").display()
        );
        let Some(full) = in_own_mounts(work(run.dir(), &[]), &script) else { return };
        full.run().fails(1, &["a unit has failed"]);
        let now = status(run.dir());
        assert!(now["failures"][0]["why"].as_str().unwrap().contains("space"), "{now}");
        work(run.dir(), &[]).run().ok();
        same(run.path("here/f"), &content(4 << 20, 1));
    }
}
