//! Interrupted transfers resume: no data is lost or mixed.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    File, Gate, Get, PartialFiles, Running, Server, at_once, content, get, has_committed, partial, response,
};

const SIZE: usize = 12 << 20;
const SMALL: usize = 600_000;
const PART: &str = "f.longhaul-part";
const JOURNAL: &str = "f.longhaul-journal";

/// Starts a transfer to `f` that is held after a part of each response, and waits until a range was
/// committed.
fn committing(file: &File, args: &[&str]) -> (Get, Running, Server, Gate) {
    let (server, gate) = Server::held(file, 1 << 20);
    // A small buffer flushes segments early.
    let run = get().args(["--app-buffer", "1MiB", "--json", "-o", "f", &server.url("/f")]).args(args);
    let mut running = run.start();
    running.until("anything was committed", || has_committed(&run));
    (run, running, server, gate)
}

#[test]
fn killed_or_interrupted_transfer_resumes() {
    let file = File::new(content(SIZE, 1));
    let killed = ["direct", "mmap", "buffered"].map(|writer| (Signal::KILL, writer));
    let interrupted = [Signal::INT, Signal::TERM, Signal::HUP].map(|signal| (signal, "auto"));
    let cases = killed.into_iter().chain(interrupted).flat_map(|case| [(case, "1"), (case, "4")]);
    at_once(cases, |((signal, writer), streams)| {
        let (run, running, server, gate) = committing(&file, &["--writer", writer, "--streams", streams]);
        running.signal(signal);
        let ended = running.end();
        if signal == Signal::KILL {
            assert_eq!(ended.status.code(), None);
        } else {
            let ended = ended.fails(130, &["interrupted", "kept", "resume"]);
            assert_eq!(ended.json().last().unwrap()["exit_code"], 130);
        }
        run.is_resumable();
        gate.open();
        let asked = server.requests().len();
        let done = run.fetches(&file.bytes).done();
        assert!(done["resumed"].as_u64() > Some(0) && done["bytes"] == SIZE, "{done}");
        let [resumed, rate, seconds] =
            ["resumed", "goodput_bps", "seconds"].map(|name| done[name].as_f64().unwrap());
        let moved = SIZE as f64 - resumed;
        assert!(
            (rate * seconds / 8.0 - moved).abs() < 0.01 * moved,
            "only what this run moves counts: {done}"
        );
        let asks = server.requests().split_off(asked);
        assert!(asks.iter().all(|request| request.range(SIZE).is_some()), "only parts are asked for");
    });
}

#[test]
fn interrupt_of_a_transfer_without_resumable_bytes_keeps_nothing() {
    let busy = Server::answering(response("503 No\r\nRetry-After: 60", ""));
    let silent = Server::silent();
    for (server, event) in [(&busy, "\"event\":\"retrying\""), (&silent, "")] {
        let run = get().args(["--json", "-o", "f", &server.url("/f")]);
        let mut running = run.start();
        running.until("a request", || !server.requests().is_empty());
        running.until_printed(event);
        running.signal(Signal::INT);
        running.end().fails(130, &["cancelled"]);
        assert_eq!(fs::read_dir(run.dir()).unwrap().count(), 0);
    }
    // Bytes that cannot be resumed are not kept.
    let (server, _gate) = Server::held(&File { etag: None, ..File::new(content(SIZE, 3)) }, 1 << 20);
    let run = get().args(["--json", "-o", "f", &server.url("/f")]);
    let mut running = run.start();
    running.until_printed("\"present\":1048576");
    running.signal(Signal::INT);
    running.end().fails(130, &["interrupted", "nothing kept"]);
    assert_eq!(fs::read_dir(run.dir()).unwrap().count(), 0);
}

#[test]
fn ignored_signals_stay_ignored() {
    let file = File::new(content(2_000_000, 4));
    let (server, gate) = Server::held(&file, 1 << 20);
    let run = get().through(&["nohup"]).args([&server.url("/f")]);
    let mut running = run.start();
    running.until("a request", || !server.requests().is_empty());
    running.signal(Signal::HUP);
    gate.open();
    running.end().ok();
    run.fetched(&file.bytes);
}

#[test]
fn damaged_journal_is_not_resumed_from() {
    let file = File::new(content(SMALL, 5));
    let (run, server) = partial(&file);
    let left = PartialFiles::of(&run);
    server.mend(file.clone());
    // The kept part is used only if the journal describes it.
    let text = fs::read_to_string(run.path(JOURNAL)).unwrap();
    let journal = |text: &str| Some((JOURNAL, Some(text.to_owned())));
    for (damage, args, resumed) in [
        (None, &[][..], SMALL / 3),
        (None, &["--streams", "4"], SMALL / 3),
        (None, &["--no-resume"], 0),
        (journal("{\"version\":"), &[], 0),
        (journal("\0\0\0"), &[], 0),
        (journal(""), &[], 0),
        (journal(&text.replace("\"version\":2", "\"version\":0")), &[], 0),
        (journal(&text.replace("200000", "900000")), &[], 0),
        (Some((JOURNAL, None)), &[], 0),
        (Some((PART, None)), &[], 0),
        (Some((PART, Some("cut off".to_owned()))), &[], 0),
    ] {
        // The server names the file.
        let run = left.run().args(["--json", &server.url("/f")]).args(args);
        let run = match &damage {
            Some((name, Some(text))) => run.file(name, text),
            Some((name, None)) => {
                fs::remove_file(run.path(name)).unwrap();
                run
            }
            None => run,
        };
        assert_eq!(run.fetches(&file.bytes).done()["resumed"], resumed, "{damage:?}, {args:?}");
    }
}

#[test]
fn server_that_fails_at_ranges_has_an_interrupted_transfer_started_over() {
    let file = File::new(content(SMALL, 13));
    let (run, server) = partial(&file);
    let left = PartialFiles::of(&run);
    // A 416 that names no other length shows no change.
    let same_length = format!("416 X\r\nContent-Range: bytes */{SMALL}");
    for status in ["416 X", &same_length, "501 X"] {
        let (served, status) = (file.clone(), status.to_owned());
        server.change(move |peer| {
            peer.serve_with(|request| match request.field("range") {
                Some(_) => (response(&status, ""), &[]),
                None => served.answer(&request),
            });
        });
        let again = left.run().args(["--json", "-o", "f", &server.url("/f")]);
        assert_eq!(again.fetches(&file.bytes).done()["resumed"], 0);
    }
}

#[test]
fn partial_file_that_another_program_changes_gets_no_final_name() {
    for (length, word) in [(Some(1000), "1000 bytes"), (None, "removed")] {
        let (run, running, _server, gate) = committing(&File::new(content(SIZE, 6)), &[]);
        match length {
            Some(length) => fs::File::options().write(true).open(run.path(PART)).unwrap().set_len(length),
            None => fs::remove_file(run.path(PART)),
        }
        .unwrap();
        gate.open();
        running.end().fails(74, &["f.longhaul-part was", word, "by another program"]);
        assert_eq!(fs::read_dir(run.dir()).unwrap().count(), 0);
    }
}

/// A journal of a later version ends the run, and is kept.
#[test]
fn journal_of_another_version_is_not_lost() {
    let file = File::new(content(SMALL, 12));
    let (run, server) = partial(&file);
    server.mend(file.clone());
    let journal: Value = serde_json::from_slice(&fs::read(run.path(JOURNAL)).unwrap()).unwrap();
    let source = &journal["sources"][0];
    let first = json!({
        "version": 1, "url": source["url"], "url_digest": source["url_digest"], "size": SMALL,
        "validator": "\"v1\"", "committed": [[0, 200_000]],
    });
    let asked = server.requests().len();
    let run = run.file(JOURNAL, first.to_string()).args(["--json"]);
    assert_eq!(run.fetches(&file.bytes).done()["resumed"], 200_000);
    let ranges: Vec<_> = server.requests()[asked..].iter().map(|request| request.range(SMALL)).collect();
    assert_eq!(ranges, [Some((200_000, SMALL))]);

    let (run, server) = partial(&file);
    server.mend(file.clone());
    let journal = fs::read_to_string(run.path(JOURNAL)).unwrap();
    let run = run.file(JOURNAL, journal.replace("\"version\":2", "\"version\":3"));
    let left = PartialFiles::of(&run);
    run.run().fails(73, &["version 3", JOURNAL, "--no-resume"]);
    left.is_kept(&run);
    run.args(["--no-resume"]).fetches(&file.bytes);
}

#[test]
fn checksums_decide_and_nothing_is_fetched_twice() {
    let file = File::new(content(SMALL, 10));
    let server = Server::of(file.clone());
    let right = format!("sha256:{}", crate::support::sha256(&file.bytes));
    let wrong = format!("sha256:{}", "0".repeat(64));
    let run = get().args(["-o", "f", "--checksum", &wrong, &server.url("/f")]);
    run.fails_resumably(65, &[PART, &right, &wrong]);
    let run = run.again(["-o", "f", "--json", "--checksum", &right, &server.url("/f")]);
    let done = run.fetches(&file.bytes).done();
    assert_eq!((&done["resumed"], &done["digest"]), (&json!(SMALL), &json!(right)));
    // Without a means to resume nothing is kept.
    let server = Server::of(File { etag: None, ..file });
    let run = get().args(["-o", "f", "--checksum", &wrong, &server.url("/f")]);
    let ended = run.fails_without_files(65, &[&right, &wrong]);
    assert!(ended.stderr.contains("nothing is kept"), "{ended:?}");
}

#[test]
fn concurrent_transfers_never_share_a_file() {
    let file = File::new(content(3_000_000, 11));
    for args in [&["-o", "f"][..], &[]] {
        let (server, gate) = Server::held(&file, 1 << 20);
        let run = get().args(args).args([&server.url("/f")]);
        let mut first = run.start();
        first.until("the transfer began", || run.path(PART).exists());
        run.run().fails(73, &["f is being written by another transfer"]);
        gate.open();
        first.end().ok();
        run.fetched(&file.bytes);
    }
    // The order is random; in each case the file is whole.
    let server = Server::of(file.clone());
    let run = get().args(["-o", "f", &server.url("/f")]);
    let ends: Vec<_> =
        (0..4).map(|_| run.start()).collect::<Vec<_>>().into_iter().map(Running::end).collect();
    assert!(ends.iter().any(|e| e.status.success()), "{ends:?}");
    assert!(ends.iter().all(|e| matches!(e.status.code(), Some(0 | 73))), "{ends:?}");
    run.fetched(&file.bytes);
}
