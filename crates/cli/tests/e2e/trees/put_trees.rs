//! Uploads of directory trees.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;

use super::put_all;
use crate::support::{
    Apache, Get, Nginx, Writable, age, assert_equal, content, fetched_and_unchanged, get, make_tree,
    many_files, put,
};

#[test]
fn tree_is_equal_after_put_and_get() {
    let server = Writable::hidden();
    let token = server.token();
    let run = put().args(["-r", "t", &server.url("/a/new/place/"), "--token"]).args([&token]);
    make_tree(&run.path("t"));
    run.run().ok();
    assert_equal(&run.path("t"), &server.path("a/new/place"));
    let back = get().args(["-r", "-o", "t", &server.url("/a/new/place/")]);
    back.run().ok();
    assert_equal(&run.path("t"), &back.path("t"));

    // A repeated run says that nothing has changed, and sends only changed files.
    assert_eq!(back.run().ok().stderr.trim_end(), "20 files unchanged");
    let again = |run: Get, options: &[&str]| {
        run.again(["-r", "t", &server.url("/a/new/place"), "--token"]).args([&token]).args(options)
    };
    let run = again(run, &[]);
    assert_eq!(run.run().ok().stderr.trim_end(), "20 files unchanged");
    let run = again(run, &["-q"]);
    assert_eq!(run.run().ok().stderr, "");
    let run = again(run, &["--json"]);
    let (sent, unchanged) = fetched_and_unchanged(&run.run().ok());
    assert_eq!((sent.len(), unchanged.len()), (0, 20));
    fs::write(run.path("t/a b"), "changed").unwrap();
    fs::write(run.path("t/sub/new"), "new").unwrap();
    let (sent, _) = fetched_and_unchanged(&run.run().ok());
    assert_eq!(sent, ["a%20b", "new"]);
    assert_equal(&run.path("t"), &server.path("a/new/place"));
    // An older file of equal size counts as changed.
    fs::write(run.path("t/a b"), "CHANGED").unwrap();
    let file = fs::File::options().write(true).open(run.path("t/a b")).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(800_000_000)).unwrap();
    age(&run.path("t/sub"), 900_000_000);
    let (sent, _) = fetched_and_unchanged(&run.run().ok());
    assert_eq!(sent, ["a%20b", "large", "new", "zero"]);
    assert_equal(&run.path("t"), &server.path("a/new/place"));
}

#[test]
fn links_and_pipes_are_left_out_with_a_warning() {
    let server = Writable::start();
    let run = put().args(["-r", "t", &server.url("/"), "--token"]).args([server.token()]);
    let run = run.file("t/file", "file").file("t/f.longhaul-part", "part");
    symlink("file", run.path("t/link")).unwrap();
    symlink(".", run.path("t/loop")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, run.path("t/pipe"), rustix::fs::Mode::RUSR).unwrap();
    let ended = run.run().ok();
    for word in ["t/link", "t/loop", "t/pipe", "f.longhaul-part", "symbolic link"] {
        assert!(ended.stderr.contains(word), "{word}: {ended:?}");
    }
    assert_eq!(server.names(), ["file"]);
}

#[test]
fn refused_directory_costs_only_what_it_holds() {
    let server = Writable::start();
    let run = put().args(["-r", "t", &server.url("/"), "--token"]).args([server.token()]);
    // The server accepts no hidden names without --hidden.
    let run = run.file("t/.hidden/f", "f").file("t/file", "file");
    run.run().fails(77, &["/.hidden/", "403"]);
    assert_eq!(server.names(), ["file"]);
    let denied = run.again(["-r", "t", &server.url("/x/")]).run();
    assert_eq!(denied.status.code(), Some(77), "{denied:?}");
}

#[test]
fn many_files_after_a_kill() {
    let server = Writable::start();
    let run = put().args(["-q", "-r", "t", &server.url("/t/"), "--token"]).args([server.token()]);
    many_files(&run.path("t"), 300);
    fs::write(run.path("t/large"), content(8 << 20, 9)).unwrap();
    let has_some = || fs::read_dir(server.path("t/d1")).is_ok_and(|names| names.count() > 10);
    run.signalled(Signal::KILL, "some files are there", has_some);
    // The server frees the names of the killed run when the disk has taken what it was writing.
    let (began, mut ended) = (Instant::now(), run.run());
    while ended.stderr.contains("423 Locked") && began.elapsed() < Duration::from_secs(60) {
        ended = run.run();
    }
    ended.ok();
    assert_equal(&run.path("t"), &server.path("t"));
}

#[test]
fn apache_and_nginx() {
    // After the last change of the files: these servers keep no times.
    for site in [Apache::start(), Nginx::start()].into_iter().flatten() {
        put_all(&site.url("/dav/t/"), &site.path("dav/t"), 4_000_000_000);
    }
}

#[test]
fn several_files_go_at_once_and_share_a_limit() {
    let server = Writable::start();
    let names = ["a", "b", "c", "d"];
    let run = put().args(["--limit", "40Mbit"]).args(names).args([&server.url("/"), "--token"]);
    let run = run.args([server.token()]);
    names.iter().for_each(|name| fs::write(run.path(name), content(2 << 20, 1)).unwrap());
    let ended = run.run().ok();
    // 8 MiB at 5 MB/s.
    assert!(ended.time.as_secs_f64() > 1.2, "{ended:?}");
    assert_eq!(server.names(), names);
}

#[test]
fn source_that_is_no_directory_is_refused() {
    for name in ["missing", "file"] {
        let run = put().args(["-r", name, "http://127.0.0.1:9/"]).file("file", "");
        run.run().fails(66, &[name]);
    }
}
