//! Plans whose target is a server: local files, uploaded by several workers.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Get, of_plan, plan, status, work};
use crate::support::{
    Apache, Server, Vsftpd, Writable, age, assert_equal, content, fetched_and_unchanged, longhaul, make_tree,
    many_files, response, same,
};

/// Returns the options of a login at the server.
fn login(server: &Writable) -> [String; 2] {
    ["--token".to_owned(), server.token().display().to_string()]
}

#[test]
fn tree_is_uploaded_by_three_workers_and_checked() {
    let server = Writable::hidden();
    let login = login(&server);
    let login = login.each_ref().map(|word| &**word);
    let run = plan().args(["-r", "--unit-files", "10", "-o", "p"]).args(login);
    let run = run.args(["t", &server.url("/new/place")]);
    make_tree(&run.path("t"));
    many_files(&run.path("t/many"), 60);
    let made = run.run().ok();
    assert!(made.stdout.contains("units of 80 files") && made.stdout.contains("/new/place/"), "{made:?}");
    // Without the login, nothing is sent and few attempts are used up.
    let denied = work(run.dir(), &["-q", "--parallel", "1"]).run();
    assert_eq!(denied.status.code(), Some(1), "{denied:?}");
    of_plan(run.dir(), "retry", &[]).ok();
    let workers = [(); 3].map(|()| work(run.dir(), &[&["-q"], &login[..]].concat()));
    let running: Vec<_> = workers.iter().map(|worker| worker.start()).collect();
    running.into_iter().for_each(|worker| drop(worker.end().ok()));
    assert_equal(&run.path("t"), &server.path("new/place"));
    let now = status(run.dir());
    assert_eq!((&now["done"], &now["bytes_done"]), (&now["units"], &now["bytes"]));
    assert!(of_plan(run.dir(), "verify", &login).ok().stdout.contains("80 files are as planned"));
    fs::write(run.path("sums"), of_plan(run.dir(), "manifest", &[]).ok().stdout).unwrap();
    let mut check = Command::new("sha256sum");
    check.args(["-c", "--quiet"]).arg(run.path("sums")).current_dir(server.path("new/place"));
    assert!(check.status().unwrap().success());
    // A new plan costs what differs only, and what the server lacks or has changed is named.
    fs::write(run.path("t/a b"), "changed").unwrap();
    of_plan(run.dir(), "manifest", &[]).fails(65, &["a b was changed", "make a new plan"]);
    let to = server.url("/new/place/");
    let run = run.again(["-r", "-o", "q"]).args(login).args(["t", &to]);
    run.run().ok();
    let again = longhaul("work").args([run.path("q").to_str().unwrap(), "--json"]).args(login).run().ok();
    let (sent, unchanged) = fetched_and_unchanged(&again);
    assert_eq!((sent, unchanged.len()), (vec!["a%20b".to_owned()], 79));
    fs::write(server.path("new/place/sub/zero"), "x").unwrap();
    fs::remove_file(server.path("new/place/.hidden")).unwrap();
    let wrong = of_plan(run.dir(), "verify", &login).fails(65, &["3 of 80 files"]);
    assert!(wrong.stdout.contains(".hidden is missing") && wrong.stdout.contains("1 bytes"), "{wrong:?}");
}

#[test]
fn apache_and_vsftpd_receive_trees_of_several_sources() {
    let (apache, vsftpd) = (Apache::start(), Vsftpd::start());
    let apache = apache.iter().map(|site| (site.url("/dav/t"), site.path("dav/t")));
    let vsftpd = vsftpd.iter().map(|site| (site.url("t"), site.path("t")));
    for (url, there) in apache.chain(vsftpd) {
        let run = plan().args(["-r", "-o", "p", "one", "two", "f", &url]).file("f", "f");
        many_files(&run.path("one"), 10);
        many_files(&run.path("two/below"), 10);
        run.run().ok();
        let workers = [(); 2].map(|()| work(run.dir(), &["-q"]));
        let running: Vec<_> = workers.iter().map(|worker| worker.start()).collect();
        running.into_iter().for_each(|worker| drop(worker.end().ok()));
        assert_equal(&run.path("one"), &there.join("one"));
        assert_equal(&run.path("two"), &there.join("two"));
        same(there.join("f"), b"f");
        of_plan(run.dir(), "verify", &[]).ok();
    }
}

/// Plans the upload of `f` to `/d/` of a server.
fn planned(server: &Writable, bytes: &[u8]) -> Get {
    let run = plan().file("f", bytes).args(["-o", "p", "f", &server.url("/d/")]).args(login(server));
    age(run.dir(), 1_100_000_000);
    run.run().ok();
    run
}

#[test]
fn upload_of_a_stopped_or_killed_worker_is_resumed_by_the_next_one() {
    let bytes = content(6 << 20, 3);
    for (signal, code) in [(Signal::TERM, Some(75)), (Signal::KILL, None)] {
        let server = Writable::start();
        let run = planned(&server, &bytes);
        let login = login(&server);
        let login = login.each_ref().map(|word| &**word);
        let slow = work(run.dir(), &[&["--limit", "10Mbit", "--streams", "1"], &login[..]].concat());
        // Some of the 5 seconds that the file takes.
        let mut began = None;
        let has_some = || {
            if holds(&server.path(""), 64 << 10) {
                began.get_or_insert_with(Instant::now);
            }
            began.is_some_and(|at| at.elapsed() > Duration::from_secs(1))
        };
        assert_eq!(slow.signalled(signal, "it sends", has_some).status.code(), code);
        // The server may still keep the name for the upload of the killed one.
        let done = work(run.dir(), &[&["--json"], &login[..]].concat()).run().ok();
        assert!(done.events("done")[0]["resumed"].as_u64().unwrap() > 0, "{done:?}");
        same(server.path("d/f"), &bytes);
    }
}

/// Returns whether the files below a directory have more bytes than this on the disk.
fn holds(directory: &Path, bytes: u64) -> bool {
    let found = Command::new("du").args(["-s", "--block-size=1"]).arg(directory).output().unwrap();
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    text.split_whitespace().next().and_then(|size| size.parse().ok()).is_some_and(|size: u64| size > bytes)
}

#[test]
fn local_source_that_was_changed_since_is_not_uploaded() {
    let server = Writable::start();
    for (change, word) in [("123456", "6 bytes instead of 5"), ("54321", "instead of @1100000000")] {
        let run = planned(&server, b"12345");
        fs::write(run.path("f"), change).unwrap();
        let login = login(&server);
        let worked = work(run.dir(), &login.each_ref().map(|word| &**word)).run();
        assert!(worked.fails(1, &["a unit has failed"]).stderr.contains(word));
        assert!(!server.path("d/f").exists());
    }
}

#[test]
fn state_that_was_checked_is_sent_whatever_has_its_name_when_the_server_is_ready() {
    let run = plan().file("f", "").file("other", "other").args(["-o", "p", "f"]);
    let names = ["other", "f"].map(|name| run.path(name));
    let lengths = Arc::new(Mutex::new(Vec::new()));
    let sent = Arc::clone(&lengths);
    let server = Server::replying(move |request| {
        let status = match request.head.split(' ').next() {
            Some("MKCOL") => "405 Method Not Allowed",
            Some("PUT") => {
                let mut sent = sent.lock().unwrap();
                sent.push(request.field("content-length").unwrap().to_owned());
                // Another program replaces the source while the worker waits.
                match fs::rename(&names[0], &names[1]) {
                    Ok(()) => "423 Locked",
                    Err(_) => "201 Created",
                }
            }
            Some("HEAD") if sent.lock().unwrap().len() > 1 => "200 OK",
            Some("OPTIONS") => "200 OK",
            _ => "404 Not Found",
        };
        response(status, "").into_bytes()
    });
    let run = run.args([server.url("/")]);
    run.run().ok();
    work(run.dir(), &[]).run().ok();
    assert_eq!(*lengths.lock().unwrap(), ["0", "0"]);
    same(run.path("f"), b"other");
}

#[test]
fn checksum_of_a_list_is_compared_though_the_server_has_a_file_of_equal_size_and_time() {
    let server = Writable::start();
    let run = planned(&server, b"12345");
    let login = login(&server);
    let login = login.each_ref().map(|word| &**word);
    work(run.dir(), &login).run().ok();
    let right = "827ccb0eea8a706c4c34a16891f84e7b";
    for (checksum, code) in [(right.replace('8', "9"), 1), (right.to_owned(), 0)] {
        let [list, made] = ["list", &checksum].map(|name| run.path(name).display().to_string());
        let text = format!("file://{}\n checksum=md5={checksum}\n", run.path("f").display());
        fs::write(&list, text).unwrap();
        plan().args(["-i", &list, "-o", &made]).args(login).args([server.url("/d/")]).run().ok();
        let worked = longhaul("work").args([&*made, "--json"]).args(login).run();
        assert_eq!(worked.status.code(), Some(code), "{worked:?}");
        let said = if code == 0 { "\"unchanged\":true" } else { "instead of md5:" };
        assert!(worked.stdout.contains(said) || worked.stderr.contains(said), "{worked:?}");
    }
}

#[test]
fn two_plans_onto_one_server_harm_no_file() {
    let server = Writable::start();
    let login = login(&server);
    let login = login.each_ref().map(|word| &**word);
    let planned = [1, 2].map(|seed| {
        let run = plan().args(["-r", "--unit-files", "7", "-o", "p", "t", &server.url("/d/")]).args(login);
        let files = (0..30).map(|number| format!("t/f{number}"));
        let run = files.fold(run, |run, name| run.file(&name, content(4000, seed)));
        run.run().ok();
        run
    });
    let workers = planned.each_ref().map(|run| work(run.dir(), &[&["-q"], &login[..]].concat()));
    let running: Vec<_> = workers.iter().map(|worker| worker.start()).collect();
    running.into_iter().for_each(|worker| drop(worker.end().ok()));
    for number in 0..30 {
        let found = fs::read(server.path(&format!("d/f{number}"))).unwrap();
        assert!([1, 2].map(|seed| content(4000, seed)).contains(&found), "f{number} is mixed");
    }
}

#[test]
fn server_that_is_full_fails_the_unit_and_has_the_file_after_a_retry() {
    let is_full = Arc::new(AtomicBool::new(true));
    let full = Arc::clone(&is_full);
    let server = Server::replying(move |request| {
        let status = match request.head.split(' ').next() {
            Some("MKCOL") => "405 Method Not Allowed",
            Some("PUT") if full.load(Ordering::Relaxed) => "507 Insufficient Storage",
            Some("PUT") => "201 Created",
            Some("HEAD") if !full.load(Ordering::Relaxed) => "200 OK",
            Some("OPTIONS") => "200 OK",
            _ => "404 Not Found",
        };
        response(status, "").into_bytes()
    });
    let names = ["a", "b", "c", "d", "e"];
    let run = names.iter().fold(plan(), |run, name| run.file(name, ""));
    let run = run.args(["-o", "p", "--unit-files", "1"]).args(names).args([server.url("/")]);
    run.run().ok();
    let worked = work(run.dir(), &["--parallel", "1"]).run().fails(1, &["failed"]);
    assert!(worked.stderr.contains("507"), "{worked:?}");
    // The next unit is claimed before the first one ends.
    let now = status(run.dir());
    assert!(now["done"] == 0 && (1..=2).contains(&now["failed"].as_u64().unwrap()), "{now}");
    is_full.store(false, Ordering::Relaxed);
    of_plan(run.dir(), "retry", &[]).ok();
    work(run.dir(), &[]).run().ok();
    assert_eq!(status(run.dir())["done"], 5);
}
