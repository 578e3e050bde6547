//! Interrupted transfers resume: no data is lost or mixed.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{File, Get, PartialFiles, Server, content, get, partial, partial_files, same};

const SIZE: usize = 12 << 20;

/// A server that sends slowly until the flag is set.
fn slow_then_fast(file: File) -> (Server, Arc<AtomicBool>) {
    let hurry = Arc::new(AtomicBool::new(false));
    let fast = hurry.clone();
    let server = Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            let (head, body) = file.answer(&request);
            let sent = peer.send(head)
                && body.chunks(64 << 10).all(|piece| {
                    if !fast.load(Ordering::SeqCst) {
                        // 2.5 MB/s per connection; the journal is written every two seconds.
                        std::thread::sleep(Duration::from_millis(25));
                    }
                    peer.send(piece)
                });
            if !sent {
                return;
            }
        }
    });
    (server, hurry)
}

/// Returns whether the journal in the directory of `run` lists committed bytes.
fn has_committed(run: &Get) -> bool {
    let journal = fs::read(run.path("f.longhaul-journal")).ok();
    let journal = journal.and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    journal.is_some_and(|journal| journal["committed"].as_array().is_some_and(|ranges| !ranges.is_empty()))
}

/// Kills a transfer with `writer` and `streams` after its first commit, and resumes it.
fn killed(writer: &str, streams: &str) {
    let file = File::new(content(SIZE, 1));
    let (server, hurry) = slow_then_fast(file.clone());
    let args = ["--writer", writer, "--streams", streams, "--json", "-o", "f", &server.url("/f")];
    // A small buffer flushes segments early, also for streams that share a slow path.
    let run = get().args(args).args(["--app-buffer", "1MiB"]);
    let mut running = run.start();
    running.until("anything was committed", || has_committed(&run));
    running.signal(Signal::KILL);
    let ended = running.end();
    assert_eq!(ended.status.code(), None, "{ended:?}");
    assert!(!run.path("f").exists());
    hurry.store(true, Ordering::SeqCst);
    let asked = server.requests().len();
    let done = run.run().ok().done();
    assert!(done["resumed"].as_u64().unwrap() > 0, "{done}");
    assert_eq!(done["bytes"], SIZE);
    assert!(
        server.requests()[asked..].iter().all(|request| request.range(SIZE).is_some()),
        "only parts are asked for"
    );
    same(run.path("f"), &file.bytes);
    assert_eq!(partial_files(run.dir()), [""; 0]);
}

#[test]
fn killed_direct() {
    killed("direct", "1");
}

#[test]
fn killed_direct_four_streams() {
    killed("direct", "4");
}

#[test]
fn killed_mmap() {
    killed("mmap", "1");
}

#[test]
fn killed_mmap_four_streams() {
    killed("mmap", "4");
}

#[test]
fn killed_buffered() {
    killed("buffered", "1");
}

#[test]
fn killed_buffered_four_streams() {
    killed("buffered", "4");
}

#[test]
fn signals_end_cleanly_and_resumably() {
    let file = File::new(content(SIZE, 2));
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        for streams in ["1", "4"] {
            let (server, hurry) = slow_then_fast(file.clone());
            let run = get().args(["--streams", streams, "--json", "-o", "f", &server.url("/f")]);
            let mut running = run.start();
            running.until("a request", || !server.requests().is_empty());
            std::thread::sleep(Duration::from_millis(300));
            running.signal(signal);
            let ended = running.end().fails(130, &["interrupted", "kept", "resume"]);
            assert!(ended.time < Duration::from_secs(4), "{ended:?}");
            assert_eq!(ended.json().last().unwrap()["exit_code"], 130);
            assert_eq!(partial_files(run.dir()), ["f.longhaul-journal", "f.longhaul-part"]);
            hurry.store(true, Ordering::SeqCst);
            assert!(run.run().ok().done()["resumed"].as_u64().unwrap() > 0);
            same(run.path("f"), &file.bytes);
        }
    }
}

#[test]
fn interrupt_before_the_first_byte_ends_at_once() {
    let server = Server::new(|peer| {
        let Some(request) = peer.read_request() else { return };
        if request.target == "/busy" {
            peer.send("HTTP/1.1 503 No\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n");
        }
        std::thread::sleep(Duration::from_secs(20));
    });
    for (count, path) in ["/busy", "/silent"].into_iter().enumerate() {
        let run = get().args(["-o", "f", &server.url(path)]);
        let mut running = run.start();
        running.until("a request", || server.requests().len() > count);
        std::thread::sleep(Duration::from_millis(100));
        running.signal(Signal::INT);
        let ended = running.end().fails(130, &["cancelled"]);
        assert!(ended.time < Duration::from_secs(3), "{ended:?}");
        assert_eq!(fs::read_dir(run.dir()).unwrap().count(), 0);
    }
}

#[test]
fn interrupt_of_an_unresumable_transfer_keeps_nothing() {
    let file = File { etag: None, ..File::new(content(SIZE, 3)) };
    let (server, _) = slow_then_fast(file);
    let run = get().args(["-o", "f", &server.url("/f")]);
    let mut running = run.start();
    running.until("a request", || !server.requests().is_empty());
    std::thread::sleep(Duration::from_millis(200));
    running.signal(Signal::INT);
    running.end().fails(130, &["interrupted", "nothing kept"]);
    assert_eq!(fs::read_dir(run.dir()).unwrap().count(), 0);
}

#[test]
fn ignored_signals_stay_ignored() {
    let file = File::new(content(2_000_000, 4));
    let (server, hurry) = slow_then_fast(file.clone());
    let run = get().through(&["nohup"]).args([&server.url("/f")]);
    let mut running = run.start();
    running.until("a request", || !server.requests().is_empty());
    running.signal(Signal::HUP);
    hurry.store(true, Ordering::SeqCst);
    running.end().ok();
    same(run.path("f"), &file.bytes);
}

/// Damages the files of an interrupted run, and resumes; returns the bytes that were reused.
fn resumed_after(damage: impl Fn(&Get), args: &[&str]) -> u64 {
    let file = File::new(content(600_000, 5));
    let (run, server) = partial(&file);
    damage(&run);
    server.mend(file.clone());
    let run = run.again(["--json", "-o", "f", &server.url("/f")]).args(args);
    let done = run.run().ok().done();
    same(run.path("f"), &file.bytes);
    assert_eq!(partial_files(run.dir()), [""; 0]);
    done["resumed"].as_u64().unwrap()
}

#[test]
fn damaged_journal_is_not_resumed_from() {
    let (part, journal) = ("f.longhaul-part", "f.longhaul-journal");
    let text = |run: &Get| fs::read_to_string(run.path(journal)).unwrap();
    let write = |run: &Get, text: &str| fs::write(run.path(journal), text).unwrap();
    assert_eq!(resumed_after(|_| {}, &[]), 200_000);
    assert_eq!(resumed_after(|_| {}, &["--streams", "4"]), 200_000);
    assert_eq!(resumed_after(|_| {}, &["--no-resume"]), 0);
    assert_eq!(resumed_after(|run| write(run, "{\"version\":"), &[]), 0);
    assert_eq!(resumed_after(|run| write(run, "\0\0\0"), &[]), 0);
    assert_eq!(resumed_after(|run| write(run, ""), &[]), 0);
    // A journal of an unknown version.
    assert_eq!(resumed_after(|run| write(run, &text(run).replace("\"version\":2", "\"version\":0")), &[]), 0);
    assert_eq!(resumed_after(|run| write(run, &text(run).replace("200000", "900000")), &[]), 0);
    assert_eq!(resumed_after(|run| fs::remove_file(run.path(journal)).unwrap(), &[]), 0);
    assert_eq!(resumed_after(|run| fs::remove_file(run.path(part)).unwrap(), &[]), 0);
    let cut =
        |run: &Get| fs::File::options().write(true).open(run.path(part)).unwrap().set_len(1000).unwrap();
    assert_eq!(resumed_after(cut, &[]), 0);
}

#[test]
fn partial_file_that_another_program_changes_gets_no_final_name() {
    let cut = |run: &Get| {
        fs::File::options().write(true).open(run.path("f.longhaul-part")).unwrap().set_len(1000).unwrap();
    };
    let removed = |run: &Get| fs::remove_file(run.path("f.longhaul-part")).unwrap();
    for (change, word) in [(&cut as &dyn Fn(&Get), "1000 bytes"), (&removed, "removed")] {
        let (server, hurry) = slow_then_fast(File::new(content(SIZE, 6)));
        let run = get().args(["-o", "f", &server.url("/f")]);
        let mut running = run.start();
        running.until("anything was committed", || has_committed(&run));
        change(&run);
        hurry.store(true, Ordering::SeqCst);
        running.end().fails(74, &["f.longhaul-part was", word, "by another program"]);
        assert_eq!(fs::read_dir(run.dir()).unwrap().count(), 0);
    }
}

#[test]
fn journal_of_a_later_version_ends_the_run_and_is_kept() {
    let file = File::new(content(600_000, 5));
    let (run, server) = partial(&file);
    server.mend(file.clone());
    let journal = fs::read_to_string(run.path("f.longhaul-journal")).unwrap();
    for version in [3, 99] {
        let later = journal.replace("\"version\":2", &format!("\"version\":{version}"));
        fs::write(run.path("f.longhaul-journal"), &later).unwrap();
        let left = PartialFiles::of(&run);
        run.run().fails(73, &[&format!("version {version}"), "f.longhaul-journal", "--no-resume"]);
        left.is_kept(&run);
    }
    run.args(["--no-resume"]).run().ok();
}

#[test]
fn journal_of_version_1_is_resumed_from() {
    let file = File::new(content(600_000, 12));
    let (run, server) = partial(&file);
    server.mend(file.clone());
    let journal: Value = serde_json::from_slice(&fs::read(run.path("f.longhaul-journal")).unwrap()).unwrap();
    let source = &journal["sources"][0];
    let first = json!({
        "version": 1, "url": source["url"], "url_digest": source["url_digest"], "size": 600_000,
        "validator": "\"v1\"", "committed": [[0, 200_000]],
    });
    fs::write(run.path("f.longhaul-journal"), first.to_string()).unwrap();
    let asked = server.requests().len();
    let run = run.args(["--json"]);
    assert_eq!(run.run().ok().done()["resumed"], 200_000);
    assert_eq!(
        server.requests()[asked..].iter().map(|request| request.range(600_000)).collect::<Vec<_>>(),
        [Some((200_000, 600_000))]
    );
    same(run.path("f"), &file.bytes);
    assert_eq!(partial_files(run.dir()), [""; 0]);
}

#[test]
fn a_name_from_the_server_is_resumed_too() {
    let file = File::new(content(600_000, 9));
    let (run, server) = partial(&file);
    server.mend(file.clone());
    let run = run.again(["--json", &server.url("/f")]);
    assert_eq!(run.run().ok().done()["resumed"], 200_000);
    same(run.path("f"), &file.bytes);
}

#[test]
fn checksums_decide_and_nothing_is_fetched_twice() {
    let file = File::new(content(600_000, 10));
    let server = Server::of(file.clone());
    let run = get();
    fs::write(run.path("g"), &file.bytes[..]).unwrap();
    let sum = std::process::Command::new("sha256sum").arg(run.path("g")).output().unwrap();
    let right = format!("sha256:{}", String::from_utf8(sum.stdout).unwrap().split(' ').next().unwrap());
    let wrong = format!("sha256:{}", "0".repeat(64));
    let run = run.args(["-o", "f", "--checksum", &wrong, &server.url("/f")]);
    run.run().fails(65, &["f.longhaul-part", &right, &wrong]);
    assert!(!run.path("f").exists());
    let run = run.again(["-o", "f", "--json", "--checksum", &right, &server.url("/f")]);
    let done = run.run().ok().done();
    assert_eq!((done["resumed"].as_u64(), done["digest"].as_str()), (Some(600_000), Some(right.as_str())));
    same(run.path("f"), &file.bytes);
    // Without a means to resume nothing is kept.
    let server = Server::of(File { etag: None, ..file });
    let run = run.again(["-o", "h", "--checksum", &wrong, &server.url("/f")]);
    let ended = run.run().fails(65, &[&right, &wrong]);
    assert!(ended.stderr.contains("nothing is kept"), "{ended:?}");
    assert!(!run.path("h").exists() && partial_files(run.dir()).is_empty());
    for (given, word) in [("md5:xyz", "md5"), ("crc:00", "crc"), ("sha256", "sha256")] {
        run_usage(&["--checksum", given, &server.url("/f")], word);
    }
}

fn run_usage(args: &[&str], word: &str) {
    let ended = get().args(args).run();
    assert_eq!(ended.status.code(), Some(64), "{ended:?}");
    assert!(ended.stderr.contains(word), "{ended:?}");
}

#[test]
fn concurrent_transfers_never_share_a_file() {
    let file = File::new(content(3_000_000, 11));
    let (server, hurry) = slow_then_fast(file.clone());
    for args in [vec!["-o", "f"], vec![]] {
        hurry.store(false, Ordering::SeqCst);
        let run = get().args(&args).args([&server.url("/f")]);
        let mut first = run.start();
        first.until("the transfer began", || run.path("f.longhaul-part").exists());
        run.run().fails(73, &["f is being written by another longhaul"]);
        hurry.store(true, Ordering::SeqCst);
        first.end().ok();
        same(run.path("f"), &file.bytes);
        assert_eq!(partial_files(run.dir()), [""; 0]);
    }
    // The order is random; in each case the file is whole.
    let run = get().args(["-o", "f", &server.url("/f")]);
    let ends: Vec<_> = (0..4).map(|_| run.start()).collect::<Vec<_>>().into_iter().map(|r| r.end()).collect();
    assert!(ends.iter().any(|e| e.status.success()), "{ends:?}");
    assert!(ends.iter().all(|e| matches!(e.status.code(), Some(0 | 73))), "{ends:?}");
    same(run.path("f"), &file.bytes);
}
