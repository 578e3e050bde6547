//! Output and options: JSON, progress, quiet mode, closed streams, unusual flags.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use super::recording::counts_pages;
use crate::support::lab::ran_in;
use crate::support::{Ended, File, Server, at_once, content, get, program, response, same, terminal};

#[test]
fn log_has_the_result_and_its_limit_unless_quiet() {
    let server = Server::of(File::new(content(3_000_000, 1)));
    let ended = get().args([&server.url("/f")]).run().ok();
    assert_eq!(ended.stdout, "");
    let result = ended.stderr.lines().next().unwrap_or_default();
    assert!(result.starts_with("./f: ") && result.contains("limited by"), "{ended:?}");
    assert!(!ended.stderr.contains(['\r', '\u{1b}']), "{ended:?}");
    // Warnings are no errors.
    for warned in [&[][..], &["--insecure"]] {
        let ended = get().args(["-q", &server.url("/f")]).args(warned).run().ok();
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("", ""));
    }
    // An error is printed once.
    let gone = Server::answering(response("404 No", ""));
    let ended = get().args([&gone.url("/f")]).run().fails(66, &["404"]);
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
}

#[test]
fn json_has_the_promised_fields() {
    let file = File::new(content(3_000_000, 2));
    // Held until progress shows the connection and what has arrived.
    let (server, gate) = Server::held(&file, 1_500_000);
    let run = get().args(["--json", &server.url("/f")]);
    let mut running = run.start();
    running.until_printed("\"present\":1500000");
    gate.open();
    let ended = running.end().ok();
    assert_eq!(ended.stderr, "");
    let lines = ended.json();
    let events: Vec<_> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    // Two threads report the first connection and the reserved file, in any order.
    assert!(matches!(events[..2], ["connected", "opened"] | ["opened", "connected"]), "{events:?}");
    assert_eq!(*events.last().unwrap(), "done");
    let progress = ended.events("progress");
    assert!(!progress.is_empty(), "{events:?}");
    for line in &progress {
        for name in
            ["present", "received", "written", "streams", "unread", "buffered", "app_buffer", "out_of_order"]
        {
            assert!(line[name].is_u64(), "{name} in {line}");
        }
        let number = |name: &str| line[name].as_u64().unwrap();
        assert_eq!((number("size"), number("app_buffer")), (3_000_000, 64 << 20));
        assert!(number("buffered") <= number("app_buffer"), "{line}");
        // Only known while a connection is open, on kernels that report it.
        for name in ["rtt", "data_rtt", "rwin", "dirty", "writeback"] {
            let value = line.get(name);
            assert!(value.is_some_and(|value| value.is_number() || value.is_null()), "{name} in {line}");
        }
    }
    assert!(progress.iter().any(|line| line["buffered"].as_u64() > Some(0)), "{progress:?}");
    assert!(progress.iter().any(|line| line["rtt"].is_f64()), "{progress:?}");
    assert!(lines[..lines.len() - 1].iter().all(|line| line["at"].is_f64()), "{ended:?}");
    let done = ended.done();
    assert_eq!((&done["bytes"], &done["streams"]), (&3_000_000.into(), &1.into()), "{done}");
    let seconds = done["seconds"].as_f64().unwrap();
    let goodput = done["goodput_bps"].as_u64().unwrap() as f64;
    assert!((goodput * seconds / 24e6 - 1.0).abs() < 0.01, "{done}");
    for name in ["retransmits", "limited_by", "advice", "digest", "resumed", "path"] {
        assert!(done.get(name).is_some(), "{name} in {done}");
    }
    assert!(done["limited_by"].is_string() && done["advice"].is_array(), "{done}");
    // A failure is a line too.
    let ended = get().args(["--json", &server.url("/f"), "-o", "/no/such/f"]).run().fails(73, &[]);
    let last = ended.json().pop().unwrap();
    assert_eq!((&last["event"], &last["exit_code"]), (&"error".into(), &73.into()));
    assert!(last["message"].as_str().unwrap().contains("/no/such/f"));
}

#[test]
fn each_line_of_json_names_its_job() {
    let server = Server::of(File::new(content(1000, 9)));
    let urls = [server.url("/a?key=secret"), server.url("/b"), server.url("/c")];
    let run_of = get().args(["--json", "--record", "r.jsonl"]).args(&urls);
    let ended = run_of.run().ok();
    let shown = [server.url("/a?..."), server.url("/b"), server.url("/c")];
    let job = |line: &Value| line["job"].as_u64().unwrap() as usize;
    let mut lines = ended.json();
    let run = lines.remove(lines.len() - 2);
    assert_eq!(lines.last().unwrap()["event"], "done");
    assert_eq!(
        (&run["event"], &run["files"], &run["bytes"]),
        (&"run".into(), &3.into(), &3000.into()),
        "{run}"
    );
    assert!(run["limited_by"].is_string() && run["advice"].is_array() && run["job"] == 0, "{run}");
    for line in lines {
        assert!(line["at"].is_f64() && line["url"] == shown[job(&line) - 1], "{line}");
    }
    // The record has it, too.
    let explained = ran_in(run_of.dir(), &["explain", "r.jsonl", "--json"]).ok().json();
    let same =
        ["files", "bytes", "limited_by", "shares", "advice"].map(|name| explained[0][name] == run[name]);
    assert_eq!((explained.len(), same), (4, [true; 5]), "{explained:?} {run}");
    // Small files are transferred concurrently; they complete in any order.
    assert_eq!(ended.events("done").iter().map(job).collect::<BTreeSet<_>>(), BTreeSet::from([1, 2, 3]));
    assert!(!ended.stdout.contains("secret"), "{ended:?}");
}

#[test]
fn terminal_shows_progress() {
    let server = Server::slow(1_500_000, &File::new(content(2_000_000, 3)));
    let run = get();
    let shown = |columns: usize, args: &str| {
        let line = program(&format!("get {} {args}", server.url("/f")));
        terminal(&run, &format!("stty cols {columns}; {line}"), &[], None).map(Ended::ok)
    };
    let always = ["f ", "%", "bit/s", "sock ", "app ", "ETA 0:0"];
    for (columns, words) in [(80, &[][..]), (200, &["1 stream", "RTT", "of 1.9 MiB"][..])] {
        let output = format!("f{columns}");
        let Some(ended) = shown(columns, &format!("--writer buffered -o {output}")) else { return };
        let cache = counts_pages().then_some(&"cache ");
        for word in always.iter().chain(words).chain(cache) {
            assert!(ended.stdout.contains(word), "'{word}' at {columns} columns in {ended:?}");
        }
        let last = ended.stdout.lines().rfind(|line| line.contains(&format!("{output}: 1.9 MiB")));
        assert!(last.is_some_and(|line| line.contains("limited by")), "{ended:?}");
    }
    // Quiet mode prints nothing.
    assert_eq!(shown(80, "-q -o g").unwrap().stdout, "");
}

#[test]
fn warning_is_printed_above_the_progress_line() {
    let file = File::new(content(16_000, 7));
    let server = Server::of(file.clone());
    let run = get();
    // In blocks of 512 bytes: enough for the file and for some samples.
    let line = program(&format!("get --limit 8kB/s --record r -o f {}", server.url("/f")));
    let Some(ended) = terminal(&run, &format!("ulimit -f 200; {line}"), &[], None) else { return };
    let ended = ended.ok();
    same(run.path("f"), &file.bytes);
    let (before, _) =
        ended.stdout.split_once("the record r ends here").unwrap_or_else(|| panic!("{ended:?}"));
    assert!(before.contains("sock "), "no progress line came before: {ended:?}");
    let line = before.rsplit(['\r', '\n']).next().unwrap();
    assert!(line.contains("WARN") && !line.contains("sock "), "{line:?} in {ended:?}");
}

#[test]
fn a_limit_is_kept() {
    let file = File::new(content(2_000_000, 4));
    let server = Server::of(file.clone());
    at_once(["1", "4"], |streams| {
        let run = get().args(["--limit", "1MB/s", "--streams", streams, "--json", &server.url("/f")]);
        let done = run.fetches(&file.bytes).done();
        // The limiter may grant a quarter of a second in advance.
        assert!(done["seconds"].as_f64() > Some(1.6) && done["limited_by"] == "limit", "{done}");
    });
}

#[test]
fn closed_streams_end_no_transfer() {
    let file = File::new(content(3_000_000, 5));
    let server = Server::of(file.clone());
    let url = server.url("/f");
    let fetch = &["--json", "-vv", &url][..];
    let (closed, misused) = (&["http://127.0.0.1:1/f"][..], &["--streams", "0", &url][..]);
    // With stdout closed the events of --json are lost, and the exit code reports that; the file is
    // nevertheless complete.
    for (redirections, args, code) in [
        (">&-", fetch, 74),
        ("2>&-", fetch, 0),
        (">&- 2>&-", fetch, 74),
        ("<&- >&- 2>&-", fetch, 74),
        ("2> /dev/full", fetch, 0),
        ("> >(exec true)", fetch, 0),
        ("2>&-", closed, 69),
        ("2> /dev/full", closed, 69),
        ("2> >(exec true)", closed, 69),
        ("2>&-", misused, 64),
        ("2> /dev/full", misused, 64),
        ("2> >(exec true)", misused, 64),
    ] {
        let script = format!("exec \"$@\" {redirections}");
        let run = get().through(&["bash", "-c", &script, "bash"]).args(args);
        let ended = run.run();
        assert_eq!(ended.status.code(), Some(code), "{redirections}: {ended:?}");
        if args == fetch {
            run.fetched(&file.bytes);
        }
    }
}

#[test]
fn invalid_options_are_usage_errors() {
    let server = Server::of(File::new(content(10, 6)));
    let url = server.url("/f");
    for (args, word) in [
        (&[][..], "<URL|FILE.meta4>"),
        (&["f"], "no URL"),
        (&["http://"], "empty host"),
        (&["file:///etc/passwd"], "http"),
        (&["gopher://127.0.0.1/f"], "http"),
        (&["mailto:a@b"], "http"),
        (&["http://127.0.0.1:99999/"], "port"),
        (&["--streams", "0"], "1 to 256"),
        (&["--streams", "-1"], "-1"),
        (&["--streams", "300"], "1 to 256"),
        (&["--app-buffer", "many"], "--app-buffer"),
        (&["--app-buffer=-1"], "--app-buffer"),
        (&["--app-buffer", "99999999999TiB"], "--app-buffer"),
        (&["--recv-buffer", "0"], "--recv-buffer"),
        (&["--recv-buffer", "1025MiB"], "1 GiB"),
        (&["--limit", "0"], "--limit"),
        (&["--limit", "1bit"], "--limit"),
        (&["--limit", "10M"], "write 10Mbit or 10MiB"),
        (&["--limit", "-5Mbit"], "'-5Mbit' is not a rate"),
        (&["--recv-buffer", "5M"], "write 5MB or 5MiB"),
        (&["--segment", "1M"], "write 1MB or 1MiB"),
        (&["--segment", "5000"], "power of two"),
        (&["--segment", "2KiB"], "4 KiB"),
        (&["--segment", "128MiB"], "64 MiB"),
        (&["--writer", "tape"], "--writer"),
        (&["--header", "no colon"], "Name: value"),
        (&["--header", "A: b\r\nC: d"], "--header"),
        (&["--header", "Range: bytes=0-1"], "Range"),
        (&["--user", "a:b", "--token", "t"], "--token"),
        (&["--retries=-1"], "--retries"),
        (&["--connect-timeout", "soon"], "--connect-timeout"),
        (&["--pace", "10M"], "write 10Mbit or 10MiB"),
        (&["--checksum", "md5:xyz"], "md5"),
        (&["--checksum", "crc:00"], "crc"),
        (&["--checksum", "sha256"], "sha256"),
        (&["--tuner", "apt", "--streams", "4"], "--tuner apt"),
        (&["--apt-alpha", "2"], "--tuner apt"),
        (&["--tuner", "apt", "--apt-alpha", "1"], "--apt-alpha"),
        (&["--tuner", "apt", "--apt-n0", "0"], "--apt-n0"),
        (&["--tuner", "apt", "--apt-delta", "0s"], "--apt-delta"),
        (&["--tuner", "fastest"], "--tuner"),
    ] {
        let is_url = args.first().is_none_or(|arg| !arg.starts_with("--"));
        let run = get().args(args).args((!is_url).then_some(&url));
        run.run().is_misused(word);
        assert_eq!(fs::read_dir(run.dir()).unwrap().count(), 0);
    }
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn odd_but_possible_options() {
    let file = File::new(content(9_000_000, 7));
    let server = Server::of(file.clone());
    for args in [
        &["--app-buffer", "0"][..],
        &["--app-buffer", "1"],
        &["--app-buffer", "1000TiB"],
        &["--recv-buffer", "1"],
        &["--recv-buffer", "1GiB"],
        &["--streams", "256", "--app-buffer", "0"],
        &["--retries", "4000000000"],
        &["--connect-timeout", "1000000000s", "--stall-timeout", "1000000000s"],
        &["--limit", "1000000Tbit"],
        &["-o", "f", "-vv"],
    ] {
        get().args(args).args([&server.url("/f")]).fetches(&file.bytes);
    }
}

#[test]
fn odd_but_legal_urls() {
    let server = Server::of(File::new(content(10, 8)));
    let long = format!("/{}", "x".repeat(60_000));
    for (path, target) in [
        ("/a b", "/a%20b"),
        ("/ä", "/%C3%A4"),
        ("", "/"),
        ("?q=1", "/?q=1"),
        ("/a#fragment", "/a"),
        ("/a/../b", "/b"),
        ("//double", "//double"),
        (long.as_str(), long.as_str()),
    ] {
        let before = server.requests().len();
        get().args(["-o", "f", &server.url(path)]).run().ok();
        assert_eq!(server.requests()[before].target, target);
    }
}
