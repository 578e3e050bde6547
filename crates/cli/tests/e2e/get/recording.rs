//! `--record`: the record of a transfer, for every way that it ends.

use std::fs;
use std::path::Path;

use longhaul_core::event::Event;
use longhaul_core::units::Bytes;
use longhaul_scope::record::Record;
use longhaul_scope::record::schema::Sample;
use rustix::process::Signal;

use crate::support::{Ended, File, Server, content, get, old_kernel, response};

/// Fields present since Linux 4.10.
const FIELDS: &str =
    "tcpi_rtt tcpi_rcv_rtt tcpi_snd_cwnd tcpi_bytes_received tcpi_total_retrans tcpi_delivery_rate";

/// Returns a complete, undamaged record.
#[track_caller]
fn whole(path: impl AsRef<Path>) -> Record {
    let record = Record::load(path.as_ref()).unwrap();
    assert_eq!(record.damage, None);
    assert!(record.end.is_some());
    record
}

#[test]
fn a_record_sums_up_to_the_transfer() {
    let bytes = content(24 << 20, 1);
    let server = Server::of(File::new(bytes.clone()));
    let url = server.url("/f?key=secret").replace("http://", "http://ann:secret@");
    let args = ["--streams", "2", "--limit", "16MiB/s", "--writer", "buffered", "--json", "-o", "f", &url];
    let run = get().args(args).args(["--record", "r.jsonl", "--record-interval", "1ms"]);
    let done = run.fetches(&bytes).done();
    assert!(!fs::read_to_string(run.path("r.jsonl")).unwrap().contains("secret"));
    let record = whole(run.path("r.jsonl"));
    let end = record.end.clone().unwrap();
    assert_eq!(outcome(&record), without_marks(done), "the last line of --json");
    assert_eq!((end.telemetry.samples, end.telemetry.dropped), (record.samples.len() as u64, 0));
    assert_eq!(record.header.what, server.url("/f?..."));

    // A busy machine takes fewer than requested.
    let (seconds, last) = record.samples.last().unwrap();
    let most = (seconds - record.samples[0].0) / record.header.interval * 1.2;
    assert!((20..most as usize).contains(&record.samples.len()), "{} of {most}", record.samples.len());
    let size = Bytes::new(bytes.len() as u64);
    assert_eq!((last.moved, last.written), (size, Some(size)));
    let counters = last.sockets.counters;
    assert!(counters.received >= last.moved && counters.data_segments > 0, "{counters:?}");
    assert!(record.samples.is_sorted_by_key(|(_, sample)| sample.moved));
    assert!(record.samples.is_sorted_by_key(|(_, sample)| sample.sockets.counters.received));
    let took = |sample: &Sample| sample.took.unwrap().as_secs_f64();
    assert!(record.samples.iter().all(|(at, sample)| (0.0..=*at).contains(&took(sample))));
    let streams = || record.samples.iter().flat_map(|(_, sample)| &sample.streams);
    assert!(streams().any(|stream| stream.unread > Bytes::ZERO), "the limit makes bytes wait in the socket");
    let tcp = streams().last().unwrap().tcp.as_ref().unwrap();
    assert!(tcp.tcpi_bytes_received > 1 << 20, "{tcp:?}");
    let (_, of_two) = record.samples.iter().find(|(_, sample)| sample.streams.len() == 2).unwrap();
    let unread = of_two.streams.iter().fold(Bytes::ZERO, |sum, stream| sum + stream.unread);
    assert_eq!((of_two.sockets.open, of_two.sockets.unread), (2, unread));
    let text = fs::read_to_string(run.path("r.jsonl")).unwrap();
    let last = text.lines().rfind(|line| line.contains(r#""tcp":"#)).unwrap();
    assert!(FIELDS.split(' ').all(|name| last.contains(&format!(r#""{name}":"#))), "{last}");
    if counts_pages() {
        let cached =
            record.samples.iter().filter_map(|(_, sample)| sample.page_cache.map(|pages| pages.cached));
        assert!(cached.max().unwrap() > Bytes::ZERO);
    }
    // At most four samples per second, for more than 1.4 s.
    let host = record.samples.iter().filter_map(|(_, sample)| sample.host_pages).count();
    assert!(host >= 3 && host as f64 <= seconds * 4.0 + 2.0, "{host} in {seconds} s");
    let opened = record.events.iter().find_map(|line| match &*line.event {
        Event::Opened { size, writer, .. } => Some((size.unwrap(), &**writer)),
        _ => None,
    });
    assert_eq!(opened, Some((size, "buffered")));
    let connected = record.events.iter().filter(|line| matches!(&*line.event, Event::Connected { .. }));
    assert!(connected.count() >= 2);
    // Only once: repeating the URL would enlarge many lines.
    assert_eq!(text.matches(&format!(r#""url":"{}""#, server.url("/f?..."))).count(), 1);
    assert!(
        text.lines().skip(1).all(|line| line.contains(r#""job":1,"#) || line.contains(r#""event":"end""#))
    );
}

/// Returns the result event of a record's job, in the format of `--json`.
#[track_caller]
fn outcome(record: &Record) -> serde_json::Value {
    serde_json::to_value(record.outcome().unwrap()).unwrap()
}

/// Removes time and job from a line of `--json`.
fn without_marks(mut line: serde_json::Value) -> serde_json::Value {
    let object = line.as_object_mut().unwrap();
    let marks = ["at", "job", "url"].map(|mark| object.remove(mark).unwrap());
    assert!(marks[0].is_f64() && marks[1] == 1 && marks[2].is_string(), "{marks:?}");
    line
}

/// Returns whether the kernel is Linux 6.6 or later; page counting by cachestat(2) was added in
/// 6.5.
pub(super) fn counts_pages() -> bool {
    Path::new("/proc/sys/kernel/io_uring_disabled").exists()
}

#[test]
fn small_segments_bring_the_same_file() {
    let file = File::new(content(3_000_001, 8));
    let server = Server::of(file.clone());
    for writer in ["direct", "mmap", "buffered"] {
        let args = ["--writer", writer, "--segment", "4KiB", "--app-buffer", "64KiB", "--streams", "2"];
        let run = get().args(args).args(["--record", "r", "-o", "f", &server.url("/f")]);
        run.fetches(&file.bytes);
        let record = whole(run.path("r"));
        let segments = record.samples.last().unwrap().1.segments.unwrap();
        assert_eq!((segments.size.get(), segments.count), (4096, 16), "{writer}");
        let opened =
            |event: &Event| matches!(event, Event::Opened { writer: opened, .. } if opened == writer);
        assert!(record.events.iter().any(|line| opened(&line.event)));
    }
    // Each stream gets at least two segments.
    let run = get().args(["--segment", "64MiB", "--app-buffer", "1MiB", "--streams", "2"]);
    let run = run.args(["--record", "r", "-o", "f", &server.url("/f")]);
    run.fetches(&file.bytes);
    let segments = whole(run.path("r")).samples[0].1.segments.unwrap();
    assert_eq!((segments.size.get(), segments.count), (64 << 20, 4));
}

#[test]
fn a_kernel_that_counts_no_pages_is_no_obstacle() {
    let Some(old_kernel) = old_kernel() else { return };
    let file = File::new(content(4 << 20, 9));
    let server = Server::of(file.clone());
    let args = ["--limit", "8MiB/s", "--writer", "buffered", "--json", "--record", "r", "-o", "f"];
    let run = get().args(args).args([&server.url("/f")]);
    let counted = run.run().ok();
    let run = run.through(&[&old_kernel]);
    let ended = run.fetches(&file.bytes);
    assert_eq!(ended.stderr, "");
    let record = whole(run.path("r"));
    assert!(record.samples.len() > 5);
    assert!(record.samples.iter().all(|(_, sample)| sample.page_cache.is_none()));
    assert!(record.samples.iter().any(|(_, sample)| sample.host_pages.is_some()));
    let dirty = |ended: &Ended| ended.events("progress").iter().filter(|line| line["dirty"].is_u64()).count();
    assert_eq!((dirty(&ended), dirty(&counted) > 0), (0, counts_pages()));
}

#[test]
fn a_killed_transfer_leaves_a_record_and_the_next_replaces_it() {
    let file = File::new(content(12 << 20, 3));
    let server = Server::of(file.clone());
    let run = get().args(["--limit", "4MiB/s", "--record", "r", "-o", "f", &server.url("/f")]);
    let begun = || Record::load(&run.path("r")).is_ok_and(|record| record.samples.len() >= 50);
    assert_eq!(run.signalled(Signal::KILL, "samples are in the record", begun).status.code(), None);
    let record = Record::load(&run.path("r")).unwrap();
    let before = record.samples.len();
    assert!(before >= 50 && record.end.is_none() && record.damage.is_some());

    let run = run.again(["--record", "r", "--record-interval", "1s", "-o", "f", &server.url("/f")]);
    run.fetches(&file.bytes);
    assert!(whole(run.path("r")).samples.len() < before);
}

#[test]
fn failure_is_recorded() {
    let (server, _gate) = Server::held(&File::new(content(12 << 20, 4)), 1 << 20);
    let run = get().args(["--json", "--record", "r", "-o", "f", &server.url("/f")]);
    let mut running = run.start();
    running.until_printed("\"present\":1048576");
    running.signal(Signal::INT);
    let ended = running.end().fails(130, &["interrupted"]);
    let found = outcome(&whole(run.path("r")));
    assert_eq!(found, without_marks(ended.json().pop().unwrap()));
    assert_eq!(found["exit_code"], 130);

    let server = Server::answering(response("404 No", ""));
    let run = run.again(["--record", "r404", "-o", "f", &server.url("/f")]);
    run.run().fails(66, &["404"]);
    let record = whole(run.path("r404"));
    assert_eq!((record.samples.len(), &outcome(&record)["event"]), (0, &"error".into()));
}

/// Only a transfer that has started replaces an earlier record.
#[test]
fn transfer_that_never_starts_keeps_the_earlier_record() {
    let server = Server::of(File::new(content(1 << 20, 7)));
    let run = get().args(["--record", "r", "-o", "f", &server.url("/f")]);
    run.run().ok();
    let good = fs::read(run.path("r")).unwrap();
    whole(run.path("r"));

    let gone = Server::answering(response("404 No", ""));
    let run = run.again(["--record", "r", "-o", "f", &gone.url("/f")]);
    run.run().fails(66, &["404"]);
    let run = run.again(["--record", "r", "-o", "none/f", &server.url("/f")]);
    run.run().fails(73, &["none/f"]);
    // Killed while waiting for a response.
    let silent = Server::silent();
    let run = run.again(["--record", "r", "-o", "f", &silent.url("/f")]);
    run.signalled(Signal::KILL, "a request", || !silent.requests().is_empty());
    assert!(fs::read(run.path("r")).unwrap() == good, "the record of the good run is gone");

    let run = run.again(["--record", "r", "--record-interval", "1s", "-o", "f", &server.url("/f")]);
    run.run().ok();
    assert_eq!(whole(run.path("r")).header.interval, 1.0);
}

#[test]
fn invalid_record_is_refused_before_a_request() {
    let server = Server::of(File::new(content(100, 5)));
    let url = server.url("/f");
    let run = |args: &[&str]| {
        let run = get().file("dir/other", "").file("thesis", "years of work").args(args).args([&url]);
        let ended = run.run();
        assert_eq!(fs::read_to_string(run.path("thesis")).unwrap(), "years of work");
        assert_eq!(fs::read_dir(run.dir()).unwrap().count(), 2, "{ended:?}");
        ended
    };
    for (record, word) in [
        ("dir", "directory"),
        ("none/r", "No such file"),
        ("thesis", "something else"),
        ("thesis/r", "Not a directory"),
        ("/dev/null", "device"),
        ("/proc/r", "/proc/r"),
    ] {
        run(&["--record", record]).fails(73, &["record", record, word]);
    }
    for (record, args, word) in [
        ("r", &["-o", "dir/../r"][..], "cannot be both"),
        ("f.longhaul-part", &["-o", "f"], "partial files"),
        ("dir/f.longhaul-journal", &["-o", "f"], "partial files"),
    ] {
        run(&[&["--record", record], args].concat()).fails(64, &[word]);
    }
    run(&["--record-interval", "1ms"]).is_misused("--record");
    run(&["--record", "r", "--record-interval", "0.5ms"]).is_misused("--record-interval");
    assert!(server.requests().is_empty());
}

#[test]
fn unwritable_record_does_not_block_the_transfer() {
    let file = File::new(content(10_000, 6));
    let server = Server::of(file.clone());
    let args =
        ["--limit", "10kB/s", "--record", "r", "--record-interval", "1ms", "-o", "f", &server.url("/f")];
    // In blocks of 512 bytes: enough for the file and for some samples.
    let run = get().args(args).through(&["sh", "-c", "ulimit -f 64; exec \"$@\"", "sh"]);
    let ended = run.fetches(&file.bytes);
    // When it happens, and at the end.
    assert_eq!(ended.stderr.matches("File too large").count(), 2, "{ended:?}");
    let record = Record::load(&run.path("r")).unwrap();
    assert!(!record.samples.is_empty() && record.damage.unwrap().contains("cut off"));
}
