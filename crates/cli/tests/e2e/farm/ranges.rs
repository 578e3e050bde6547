//! A huge file in ranges, by several workers: equal bytes, or an error that names what differs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::process::Signal;

use super::{Get, of_plan, plan, status, work};
use crate::support::{
    File, Scripted, Server, Writable, age, content, fetched_and_unchanged, longhaul, names, response, same,
    sha256,
};

const SIZE: usize = (20 << 20) + 12_345;

#[test]
fn ranges_of_one_file_are_fetched_by_three_workers_and_joined() {
    let server = Writable::hidden();
    let bytes = content(SIZE, 5);
    fs::write(server.path("f"), &bytes).unwrap();
    age(&server.path(""), 1_100_000_000);
    let url = server.url("/f");
    let run = plan().args(["--unit-size", "1MiB", "-o", "p", &url, "here"]);
    assert!(run.run().ok().stdout.contains("p: 22 units of 1 file"));
    let workers = [(); 3].map(|()| work(run.dir(), &["-q", "--limit", "20Mbit"]));
    let running: Vec<_> = workers.iter().map(|worker| worker.start()).collect();
    running.into_iter().for_each(|worker| drop(worker.end().ok()));
    let mut shared = Command::new("grep");
    let shared =
        shared.args(["-rl", "--include=*.log", "\"done\""]).arg(run.path("p")).output().unwrap().stdout;
    let shared = String::from_utf8(shared).unwrap();
    assert!(shared.lines().count() >= 2, "one worker has done all: {shared}");
    same(run.path("here/f"), &bytes);
    let found = fs::metadata(run.path("here/f")).unwrap();
    assert_eq!((found.mtime(), found.mode() & 0o400), (1_100_000_000, 0o400));
    assert_eq!(names(&run.path("here")), ["f"]);
    let now = status(run.dir());
    assert_eq!((&now["done"], &now["bytes_done"], &now["files"]), (&22.into(), &now["bytes"], &1.into()));
    assert_eq!(now["bytes"], SIZE);
    let verified = of_plan(run.dir(), "verify", &[]).ok();
    assert!(verified.stdout.contains("1 file is as planned"), "{verified:?}");
    assert_eq!(of_plan(run.dir(), "manifest", &[]).ok().stdout, format!("{}  f\n", sha256(&bytes)));
    // A file that is there is not fetched in ranges.
    let run = run.again(["--unit-size", "1MiB", "-o", "q", &url, "here"]);
    assert!(run.run().ok().stdout.contains("q: 1 unit of 1 file"));
    let again = longhaul("work").args([run.path("q").to_str().unwrap(), "--json"]).run().ok();
    assert_eq!(fetched_and_unchanged(&again), (vec![], vec!["f".to_owned()]));
}

#[test]
fn source_that_is_changed_between_ranges_is_named_and_never_mixed() {
    let server = Writable::start();
    let (planned, changed) = (content(SIZE, 5), content(SIZE, 6));
    // What proves the ranges to be of one file: the time of the plan, or the first range's entity
    // tag and the checksum.
    for by_time in [true, false] {
        fs::write(server.path("f"), &planned).unwrap();
        age(&server.path(""), 1_100_000_000);
        let url = server.url("/f");
        let list = format!("{url}\n size={SIZE}\n checksum=sha256={}\n", sha256(&planned));
        let run = plan().file("list", list).args(["--unit-size", "1MiB", "-o", "p"]);
        let run = if by_time { run.args([&*url, "here"]) } else { run.args(["-i", "list", "here"]) };
        run.run().ok();
        let some_done = || status(run.dir())["done"].as_u64().is_some_and(|done| done > 2);
        let slow = work(run.dir(), &["--limit", "20Mbit", "--parallel", "1"]);
        slow.signalled(Signal::TERM, "some ranges are there", some_done).fails(75, &["run it"]);
        fs::write(server.path("f"), &changed).unwrap();
        age(&server.path(""), 1_200_000_000);
        work(run.dir(), &[]).run().fails(1, &["a unit has failed"]);
        let why = status(run.dir())["failures"][0]["why"].as_str().unwrap().to_owned();
        assert!(why.contains("/f was changed"), "{why}");
        assert!(by_time || why.contains("other ranges of it were"), "{why}");
        assert!(!run.path("here/f").exists());
        // The source is as it was planned again.
        fs::write(server.path("f"), &planned).unwrap();
        age(&server.path(""), 1_100_000_000);
        of_plan(run.dir(), "retry", &[]).ok();
        work(run.dir(), &[]).run().ok();
        same(run.path("here/f"), &planned);
    }
}

#[test]
fn shared_file_that_is_lost_is_not_begun_anew_without_its_ranges() {
    let server = Writable::start();
    fs::write(server.path("f"), content(SIZE, 5)).unwrap();
    age(&server.path(""), 1_100_000_000);
    let run = plan().args(["--unit-size", "1MiB", "-o", "p", &server.url("/f"), "here"]);
    run.run().ok();
    let some_done = || status(run.dir())["done"].as_u64().is_some_and(|done| done > 2);
    let slow = work(run.dir(), &["--limit", "20Mbit", "--parallel", "1"]);
    slow.signalled(Signal::TERM, "some ranges are there", some_done).fails(75, &["run it"]);
    let staging = names(&run.path("here")).remove(0);
    for name in ["file-21", "file-21.identity"] {
        fs::remove_file(run.path("here").join(&staging).join(name)).unwrap();
    }
    work(run.dir(), &[]).run().fails(1, &["a unit has failed"]);
    let why = status(run.dir())["failures"][0]["why"].as_str().unwrap().to_owned();
    assert!(why.contains("it is missing: make the plan anew"), "{why}");
    assert!(!run.path("here/f").exists());
}

/// Plans a file in ranges of 8 MiB; returns its server, its bytes and the plan `p`.
fn planned_in_ranges() -> (Writable, Vec<u8>, Get) {
    let server = Writable::start();
    let bytes = content(SIZE, 5);
    fs::write(server.path("f"), &bytes).unwrap();
    age(&server.path(""), 1_100_000_000);
    let run = plan().args(["--unit-size", "8MiB", "--lease", "1s", "-o", "p", &server.url("/f"), "here"]);
    run.run().ok();
    (server, bytes, run)
}

/// Returns whether a worker receives.
fn receives(run: &Get) -> bool {
    status(run.dir())["workers"][0]["rate"].as_u64().is_some_and(|rate| rate > 0)
}

#[test]
fn worker_that_is_continued_after_the_file_has_its_name_keeps_its_time() {
    let (_server, bytes, run) = planned_in_ranges();
    let mut late = work(run.dir(), &["--limit", "10Mbit", "--parallel", "1"]).start();
    late.until("it receives", || receives(&run));
    late.signal(Signal::STOP);
    work(run.dir(), &[]).run().ok();
    let modified = || fs::metadata(run.path("here/f")).unwrap().mtime();
    assert_eq!(modified(), 1_100_000_000);
    late.signal(Signal::CONT);
    assert_eq!(late.end().status.code(), Some(0));
    assert_eq!(modified(), 1_100_000_000);
    same(run.path("here/f"), &bytes);
}

#[test]
fn file_is_cut_only_if_its_server_shows_that_ranges_combine() {
    let bytes = content(SIZE, 9);
    let strong = File::new(bytes.clone());
    let weak = File { etag: None, fields: "ETag: W/\"1\"\r\n".to_owned(), ..strong.clone() };
    let files = [("/strong", strong.clone()), ("/weak", weak), ("/whole", File { ranges: false, ..strong })];
    let mirror = Server::of(File::new(bytes.clone()));
    let elsewhere = format!("302 Found\r\nLocation: {}", mirror.url("/f").replace("127.0.0.1", "localhost"));
    let server =
        Server::replying(move |request| match files.iter().find(|(path, _)| *path == request.target) {
            Some((_, file)) => file.response(request),
            None => response(&elsewhere, "").into_bytes(),
        });
    let ftp = |replies| Scripted::answering(bytes.clone(), replies);
    let sites = [
        Scripted::honest(bytes.clone()),
        // Without a time, and without offsets.
        ftp([("FEAT", "211-\r\n SIZE\r\n REST STREAM\r\n211 End"), ("MLST", "500 no"), ("MDTM", "500 no")]),
        ftp([("FEAT", "211-\r\n SIZE\r\n MDTM\r\n211 End"), ("MLST", "500 no"), ("REST", "502 no")]),
    ];
    let of_server = ["/strong", "/weak", "/whole", "/elsewhere"].map(|path| server.url(path));
    let urls = of_server.into_iter().chain(sites.iter().map(Scripted::url));
    for (url, units) in urls.zip([22, 1, 1, 1, 22, 1, 1]) {
        let list = format!("{url}\n out=f\n size={SIZE}\n checksum=sha256={}\n", sha256(&bytes));
        let run = plan().file("list", list).args(["-i", "list", "--unit-size", "1MiB", "-o", "p", "here"]);
        let made = run.run().ok();
        assert_eq!(status(run.dir())["units"], units, "{url}");
        assert_eq!(made.stderr.contains("one worker fetches it"), units == 1, "{made:?}");
        work(run.dir(), &[]).run().ok();
        same(run.path("here/f"), &bytes);
    }
}

#[test]
fn one_file_of_a_list_is_asked_for_at_each_server_until_one_answers() {
    let file = File::new(content(SIZE, 9));
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let server = Server::replying(move |request| match counted.fetch_add(1, Ordering::Relaxed) {
        0 => response("404 Not Found", "").into_bytes(),
        _ => file.response(request),
    });
    let sum = sha256(b"");
    let entry =
        |number| format!("{}\n size={SIZE}\n checksum=sha256={sum}\n", server.url(&format!("/{number}")));
    let list: String = (0..5).map(entry).collect();
    let run = plan().file("list", list).args(["-i", "list", "--unit-size", "1MiB", "-o", "p", "here"]);
    let made = run.run().ok();
    assert!(made.stderr.contains("/0 is not cut into ranges"), "{made:?}");
    assert_eq!((asked.load(Ordering::Relaxed), &status(run.dir())["units"]), (2, &(1 + 4 * 22).into()));
}

#[test]
fn file_with_another_checksum_gets_no_name_whether_a_list_or_the_server_states_it() {
    // The digest of an empty file.
    let digest = "Repr-Digest: sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:\r\n";
    let dated = "Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n";
    for by_list in [true, false] {
        let fields = if by_list { String::new() } else { [dated, digest].concat() };
        let server = Server::of(File { fields, ..File::new(content(SIZE, 7)) });
        let url = server.url("/f");
        let list = format!("{url}\n size={SIZE}\n checksum=sha256={}\n", sha256(b""));
        let run = plan().file("list", list).args(["--unit-size", "1MiB", "-o", "p"]);
        let run = if by_list { run.args(["-i", "list", "here"]) } else { run.args([&*url, "here"]) };
        let planned = run.run().ok();
        work(run.dir(), &[]).run().fails(1, &["a unit has failed"]);
        let failure = status(run.dir())["failures"][0].clone();
        assert_eq!(failure["unit"], 21, "{failure}, {planned:?}");
        let why = failure["why"].as_str().unwrap();
        assert!(why.contains("has the digest") && why.contains("/file-21"), "{failure}");
        assert!(!run.path("here/f").exists());
    }
}

#[test]
fn range_that_fails_is_tried_again_and_never_taken_from_the_whole_file() {
    let bytes = content(SIZE, 7);
    let file = File::new(bytes.clone());
    // The server fails at ranges before or within them; requests for the whole file succeed.
    for within in [false, true] {
        let (is_out, answered) = (Arc::new(AtomicBool::new(false)), AtomicUsize::new(0));
        let (out, served) = (is_out.clone(), file.clone());
        let server = Server::new(move |peer| {
            while let Some(request) = peer.read_request() {
                let (head, body) = served.answer(&request);
                let fails = out.load(Ordering::Relaxed) && request.field("range").is_some();
                if fails && !within {
                    peer.send(response("404 Not Found", ""));
                } else if fails {
                    if answered.fetch_add(1, Ordering::Relaxed) == 0 {
                        peer.send(head);
                        peer.send(&body[..body.len() / 2]);
                    }
                    return peer.close();
                } else if !peer.send(head) || !peer.send(body) {
                    return;
                }
            }
        });
        let list =
            format!("{}\n out=f\n size={SIZE}\n checksum=sha256={}\n", server.url("/f"), sha256(&bytes));
        let run = plan().file("list", list).args(["-i", "list", "--unit-size", "8MiB", "-o", "p", "here"]);
        run.run().ok();
        is_out.store(true, Ordering::Relaxed);
        work(run.dir(), &["--retries", "1", "--streams", "1"]).run().fails(1, &["failed"]);
        let now = status(run.dir());
        // The unit that joins the ranges has not failed.
        assert!(now["failures"].as_array().unwrap().iter().all(|failure| failure["unit"] != 3), "{now}");
        assert!(server.requests().iter().all(|request| request.field("range").is_some()), "{within}");
        is_out.store(false, Ordering::Relaxed);
        work(run.dir(), &[]).run().ok();
        same(run.path("here/f"), &bytes);
    }
}

#[test]
fn stopped_worker_leaves_what_it_has_of_a_range_to_the_next_one() {
    let (_server, bytes, run) = planned_in_ranges();
    let mut slow = work(run.dir(), &["--limit", "10Mbit", "--streams", "1"]).start();
    slow.until("it receives", || receives(&run));
    // As Slurm signals it: once itself, and once by its script.
    slow.signal(Signal::TERM);
    slow.signal(Signal::TERM);
    slow.end().fails(75, &["run it again"]);
    assert_eq!(status(run.dir())["done"], 0);
    let left = work(run.dir(), &["--json"]).run().ok();
    let fetched =
        |done: &serde_json::Value| done["bytes"].as_u64().unwrap() - done["resumed"].as_u64().unwrap();
    let fetched: u64 = left.events("done").iter().map(fetched).sum();
    assert!(fetched > 0 && fetched < SIZE as u64, "{fetched}");
    let now = status(run.dir());
    assert_eq!(now["bytes_done"], now["bytes"]);
    same(run.path("here/f"), &bytes);
}

#[test]
fn server_that_no_longer_proves_its_ranges_uses_up_the_attempts_of_one_unit() {
    let is_weak = Arc::new(AtomicBool::new(false));
    let (bytes, now_weak) = (content(SIZE, 7), is_weak.clone());
    let file = File::new(bytes.clone());
    let server = Server::replying(move |request| {
        let mut file = file.clone();
        if now_weak.load(Ordering::Relaxed) {
            (file.etag, file.fields) = (None, "ETag: W/\"1\"\r\n".to_owned());
        }
        file.response(request)
    });
    let list = format!("{}\n out=f\n size={SIZE}\n checksum=sha256={}\n", server.url("/f"), sha256(&bytes));
    let run = plan().file("list", list).args(["-i", "list", "--unit-size", "1MiB", "-o", "p", "here"]);
    run.run().ok();
    is_weak.store(true, Ordering::Relaxed);
    for attempts in [1, 2, 3, 3] {
        work(run.dir(), &[]).run().fails(1, &["a unit has failed"]);
        let now = status(run.dir());
        let failure = &now["failures"][0];
        assert_eq!((&failure["unit"], &failure["attempts"]), (&21.into(), &attempts.into()), "{now}");
        assert!(failure["why"].as_str().unwrap().contains("neither a strong entity tag"), "{now}");
        assert_eq!(now["failed"], 1, "{now}");
    }
    is_weak.store(false, Ordering::Relaxed);
    of_plan(run.dir(), "retry", &[]).ok();
    work(run.dir(), &[]).run().ok();
    same(run.path("here/f"), &bytes);
}
