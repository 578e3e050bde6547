//! Options, output, and records.

use std::fs;

use rustix::process::Signal;

use super::{address_of, holding, put_of, to};
use crate::support::{MEMORY, Nginx, Server, Writable, content, program, terminal};

const PIN: &str = "0000000000000000000000000000000000000000000000000000000000000000";

#[test]
fn options_that_cannot_work_are_refused() {
    for (args, word) in [
        (&[][..], "PATH"),
        (&["f"], "URL"),
        (&["http://h/"], "name a file before the URL"),
        (&["f", "sftp://h/f"], "gsiftp://"),
        (&["f", "f", "http://h/f"], "end the URL in /"),
        (&["f", "g", "a/f", "http://h/"], "f and a/f would both become http://h/f"),
        (&["f", "./f", "http://h/"], "f and ./f"),
        (&["--pace", "10M", "f", "http://h/"], "10MiB"),
        (&["--record", "f", "f", "http://h/"], "both the file and its record"),
        (&["-r", "--record", "./r", ".", "http://h/"], "lies in the directory to be sent"),
        (&["--header", "Content-Length: 5", "f", "http://h/"], "the transfer sets it"),
        (&["--pin", PIN, "f", "http://127.0.0.1:1/"], "leave out --pin"),
        (&["--congestion", "no-such", "f", "http://127.0.0.1:1/"], "tcp_available_congestion_control"),
    ] {
        put_of(b"abc", args).run().is_misused(word);
    }
    put_of(b"abc", &["--token", "none", "f", "https://h/"]).run().fails(66, &["the token in none"]);
}

#[test]
fn options_may_stand_anywhere_between_the_operands() {
    for args in [
        &["f", "--retries", "0", "http://127.0.0.1:1/"][..],
        &["f", "http://127.0.0.1:1/", "--retries", "0"],
        &["f", "--retries", "0", "g", "--quiet", "http://127.0.0.1:1/"],
    ] {
        let run = put_of(b"abc", args).file("g", b"abc");
        run.run().fails(69, &["cannot connect"]);
    }
}

#[test]
fn token_does_not_go_in_clear_beyond_loopback() {
    // 0.0.0.0 is not in 127.0.0.0/8, but reaches only this host.
    let server = Server::new(|peer| drop(peer.read_request()));
    let proxy = format!("http://0.0.0.0:{}", server.address.port());
    let refusal = (64, &["unencrypted", "0.0.0.0", "--allow-cleartext"][..]);
    let no_refusal = (69, &["cannot connect"][..]);
    for (args, (code, words)) in [
        (&["f", "http://0.0.0.0:1/"][..], refusal),
        (&["f", "http://0.0.0.0:1/", "--allow-cleartext"], no_refusal),
        (&["f", "https://0.0.0.0:1/"], no_refusal),
        (&["f", "http://127.0.0.1:1/"], no_refusal),
        (&["-x", &proxy, "f", "http://127.0.0.1:1/"], refusal),
        (&["-x", &proxy, "-r", ".", "http://127.0.0.1:1/d/"], refusal),
    ] {
        let args = [&["--retries", "0", "--token", "f"], args].concat();
        put_of(b"abc", &args).run().fails(code, words);
    }
    assert!(server.requests().is_empty());
}

#[test]
fn interrupt_ends_a_put_that_cannot_resume() {
    let server = Server::new(|peer| {
        peer.read_request();
        // Keeps the connection open, without an answer.
        std::mem::forget(peer.stream.try_clone().unwrap());
    });
    let run = put_of(b"abc", &["f", &server.url("/f")]);
    let ended = run.signalled(Signal::INT, "it has asked", || !server.requests().is_empty());
    ended.fails(130, &["interrupted; nothing was sent yet"]);

    let Some(site) = Nginx::start() else { return };
    let (server, midway, _release) = holding(address_of(&site));
    let run = put_of(&content(16 << 20, 3), &["f", &server.url("/dav/")]);
    let ended = run.signalled(Signal::INT, "it is midway", || midway.try_recv().is_ok());
    ended.fails(130, &["interrupted", "cannot resume"]);
    assert!(!site.path("dav/f").exists());
}

#[test]
fn kernel_paces_and_program_limits() {
    let Some(site) = Nginx::start() else { return };
    let bytes = content(8 << 20, 1);
    for option in ["--pace", "--limit"] {
        let run = put_of(&bytes, &["--json", option, "64Mbit", "f", &site.url("/dav/")]);
        let done = run.run().ok().done();
        let rate = done["goodput_bps"].as_f64().unwrap();
        // 8 MiB at 64 Mbit/s take 1.05 s. The kernel's first packets are unpaced.
        assert!(rate < 80e6, "{option}: {done}");
        let named = done["advice"][0].as_str().unwrap().starts_with(&format!("limited by {option} for "));
        assert!(named && done["limited_by"] == "limit", "{done}");
    }
    put_of(&bytes, &["--congestion", "reno", "--pace", "off", "f", &site.url("/dav/")]).run().ok();
}

#[test]
fn json_and_the_record_tell_how_it_went() {
    let Some(site) = Nginx::start() else { return };
    let bytes = content(16 << 20, 2);
    let url = site.url("/dav/f?key=secret");
    for reader in ["sendfile", "direct"] {
        let args =
            ["--json", "--reader", reader, "--limit", "16MB/s", "--record", "r.jsonl", "f", url.as_str()];
        let run = put_of(&bytes, &args);
        let lines = run.run().ok().json();
        let opened = lines.iter().find(|line| line["event"] == "opened").unwrap();
        assert_eq!((opened["writer"].as_str(), opened["size"].as_u64()), (Some(reader), Some(16 << 20)));
        assert!(lines.iter().any(|line| line["event"] == "connected"));
        let last = lines.iter().rfind(|line| line["event"] == "progress").unwrap();
        assert_eq!(last["present"], 16 << 20);

        let record = fs::read_to_string(run.path("r.jsonl")).unwrap();
        assert!(!record.contains("secret"));
        let record: Vec<serde_json::Value> =
            record.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!((&record[0]["side"], &record[record.len() - 2]["event"]), (&"put".into(), &"done".into()));
        let samples: Vec<_> = record.iter().filter(|line| line["event"] == "sample").collect();
        let moved: Vec<_> = samples.iter().map(|sample| sample["moved"].as_u64().unwrap()).collect();
        assert!(moved.len() > 2 && moved.is_sorted() && moved.last() == Some(&(16 << 20)), "{moved:?}");
        assert_eq!(samples.iter().any(|s| s["segments"]["in_use"].as_u64() > Some(0)), reader == "direct");
        assert!(samples.iter().any(|s| s["streams"][0]["tcp"]["tcpi_bytes_acked"].as_u64() > Some(0)));
    }
}

#[test]
fn upload_ends_with_its_limit_on_stderr_and_on_a_terminal() {
    let site = Writable::start();
    let bytes = content(1_500_000, 7);
    let is_explained = |text: &str, name: &str| {
        let mut lines = text.lines().map(str::trim_end);
        let found = lines.find(|line| line.contains(&format!("/{name}: 1.4 MiB in ")));
        let line = found.unwrap_or_else(|| panic!("no result: {text}"));
        assert!(line.contains("Mbit/s, limited by limit (limit "), "{text}");
        let advice = lines.next().unwrap_or_default();
        assert!(advice.trim_start().starts_with("limited by --limit for "), "{text}");
        assert!(advice.contains(" % of the time: "), "{text}");
    };
    let run = put_of(&bytes, &["--limit", "1MiB", "--token"]).args([site.token()]);
    let ended = run.args(["f", &site.url("/piped")]).run().ok();
    is_explained(&ended.stderr, "piped");
    assert!(ended.stdout.is_empty(), "{ended:?}");
    let (run, url) = (put_of(&bytes, &[]), site.url("/shown"));
    let line = program(&format!("put --limit 1MiB --token {} f {url}", site.token().display()));
    let Some(shown) = terminal(&run, &line, &[("NO_COLOR", "1")], None) else { return };
    let text = shown.ok().stdout;
    assert!(text.contains("ETA "), "{text:?}");
    is_explained(text.rsplit("\u{1b}[2K").next().unwrap(), "shown");
}

/// The lab tests the use of the memory by the next put, on a long path.
#[test]
fn path_memory_is_read_unless_disabled() {
    let site = Writable::start();
    for (options, messages) in [(&[][..], true), (&["--no-memory"], false)] {
        let run = to(&site, "/f", &content(1 << 20, 1)).args(options).file(MEMORY, "{");
        let ended = run.run().ok();
        let warned = |line: &serde_json::Value| line.to_string().contains("no path is remembered");
        assert_eq!(ended.json().iter().any(warned), messages, "{ended:?}");
        assert_eq!(fs::read_to_string(run.path(MEMORY)).unwrap(), "{");
    }
}
