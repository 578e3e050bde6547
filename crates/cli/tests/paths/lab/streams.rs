//! Streams between real kernel TCPs: their number, connecting ahead on a long path, and the end of
//! a transfer from a stock nginx.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::lab::{exec_in, needs_lab, needs_lab_with, nginx, objects, ran};
use crate::support::{MEMORY, content, write_secret};

/// Serves a home's `files`, writable, to a client with a path of 1 Gbit/s and 100 ms; returns the
/// events of its command.
fn transfer(home: &TempDir, hosts: &str, client: &str) -> Vec<Value> {
    let serve =
        "exec longhaul serve files --writable --allow-cleartext --token token --listen $LAB_SERVER:8080";
    write_secret(home.path().join("token"), "sesame");
    let path = ["--rate", "1Gbit", "--rtt", "100ms", "--hosts", hosts];
    let options = [&path[..], &["--server", serve, "--server-port", "8080"]].concat();
    objects(&ran(exec_in(home.path(), &options, client)).ok())
}

/// Returns a home with this content in `name`.
fn home(name: &str, bytes: &[u8]) -> TempDir {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::create_dir(home.path().join("files")).unwrap();
    fs::write(home.path().join(name), bytes).unwrap();
    home
}

/// Puts 48 MiB between `hosts` with the path memory `known`; returns the events.
fn put(hosts: &str, known: Option<&Value>) -> Vec<Value> {
    let bytes = content(48 << 20, 1);
    let home = home("f", &bytes);
    if let Some(known) = known {
        let memory = home.path().join(MEMORY);
        fs::create_dir_all(memory.parent().unwrap()).unwrap();
        fs::write(memory, known.to_string()).unwrap();
    }
    let put = "longhaul put --json --allow-cleartext --token token f http://$LAB_SERVER:8080/";
    let events = transfer(&home, hosts, put);
    assert!(fs::read(home.path().join("files/f")).unwrap() == bytes);
    let done = events.last().unwrap();
    assert!(done["digest"].as_str().unwrap().starts_with("blake3:"), "{done}");
    events
}

#[test]
fn stock_hosts_send_over_several_streams_and_tuned_ones_over_one() {
    let Some(()) = needs_lab() else { return };
    let get = |hosts: &str| {
        let get = "longhaul get --no-memory --json -o copy http://$LAB_SERVER:8080/file";
        transfer(&home("files/file", &vec![7; 128 << 20]), hosts, get)
    };
    let streams = |events: Vec<Value>| events.last().unwrap()["streams"].as_u64().unwrap();
    let (stock, tuned) = ("stock", "tuned");
    let [got, sent] = [[get(stock), get(tuned)], [put(stock, None), put(tuned, None)]];
    for (what, [stock, tuned]) in [("get", got), ("put", sent)] {
        let (stock, tuned) = (streams(stock), streams(tuned));
        assert!(stock > 1 && tuned == 1, "{what}: {stock} streams, {tuned} between tuned hosts");
    }
}

#[test]
fn put_starts_with_the_number_of_streams_that_the_last_one_found() {
    let Some(()) = needs_lab() else { return };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let first = |upload: bool| {
        let known = json!({ "version": 1, "paths": [{
            "host": "198.18.0.2", "port": 8080, "upload": upload, "rtt_us": 100_000, "rate_bps": 10_000_000,
            "streams": 2, "app_buffer": 0, "window": 0, "at": now,
        }]});
        let events = put("stock", Some(&known));
        // Before the first acknowledgement: one connection for queries, then those of the streams.
        let connected = events.iter().filter(|event| event["event"] == "connected");
        let opened = events.iter().find(|event| event["event"] == "opened").unwrap()["at"].as_f64().unwrap();
        connected.filter(|event| (opened..opened + 0.25).contains(&event["at"].as_f64().unwrap())).count()
    };
    // The result of a fetch does not apply to the reverse path.
    let (remembered, fresh) = (first(true), first(false));
    assert!(remembered <= 3 && fresh > 4, "{remembered}, {fresh}");
}

/// In seconds.
const RTT: f64 = 0.3;
/// In bytes.
const AHEAD_SIZE: usize = 64 << 20;

#[test]
fn further_streams_are_connected_when_the_first_answer_comes() {
    let Some(()) = needs_lab() else { return };
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("file"), vec![7; AHEAD_SIZE]).unwrap();
    let metalink = format!(
        "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"copy\"><size>{AHEAD_SIZE}</size><url>http://198.18.0.2/file</url>\
         </file></metalink>"
    );
    fs::write(home.path().join("file.meta4"), metalink).unwrap();
    let serve = "exec longhaul serve . --pace off --listen $LAB_SERVER:80";
    let path = ["--rate", "1Gbit", "--rtt", "300ms", "--server-port", "80", "--server", serve];
    // A file whose size is known in advance has a stream for each 8 MiB.
    for what in ["--streams 8 http://$LAB_SERVER/file", "file.meta4"] {
        let get = format!("longhaul get --no-memory --no-resume --json -o copy {what} && rm copy");
        let events = objects(&ran(exec_in(home.path(), &path, &get)).ok());
        let connected = events.iter().filter(|event| event["event"] == "connected");
        let times: Vec<_> = connected.map(|event| event["at"].as_f64().unwrap()).collect();
        assert_eq!(times.len(), 8, "{what}: {times:?}");
        // The first connection is reported at its response; a connection started only then takes
        // another RTT.
        assert!(times[7] - times[0] < RTT / 2.0, "{what}: {times:?}");
    }
}

/// The first connection leases a third; enough is left for the others.
const SIZE: usize = 48 << 20;
const PATH: [&str; 4] = ["--rate", "200Mbit", "--rtt", "80ms"];
const TRAILING: &str = "bytes=0-4095";
/// With two slow streams, at least one takeover is by a stream that has sent its trailing request,
/// for any order of ends.
const TWO_ARE_SLOW: &str = "map $connection $most { ~[23]$ 400k; default 0; } limit_rate $most;";

/// Fetches the file with four streams from an nginx with `directives` and `server` directives,
/// otherwise with Debian's settings; returns the events, and the ranges requested on each
/// connection.
fn fetch(directives: &str, server: &str) -> Option<(Vec<Value>, String)> {
    needs_lab_with(&["nginx"])?;
    let home = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..SIZE).map(|at| (at * 7 % 251) as u8).collect();
    fs::write(home.path().join("file"), &content).unwrap();
    let log = "log_format asked '$connection $http_range'; access_log access.log asked;";
    let http =
        format!("sendfile on; tcp_nopush on; {log} {directives} server {{ listen 80; root .; {server} }}");
    let server = nginx("root", &http);
    let options = [&PATH[..], &["--hosts", "tuned", "--server", &server, "--server-port", "80"]].concat();
    let get = "longhaul get --streams 4 --no-memory --json -o copy http://$LAB_SERVER/file";
    let ended = ran(exec_in(home.path(), &options, get)).ok();
    assert!(fs::read(home.path().join("copy")).unwrap() == content, "other bytes");
    Some((objects(&ended), fs::read_to_string(home.path().join("access.log")).unwrap()))
}

fn connected(events: &[Value]) -> usize {
    events.iter().filter(|event| event["event"] == "connected").count()
}

#[test]
fn last_packet_of_each_connection_is_filled_by_a_trailing_answer() {
    let Some((events, asked)) = fetch("", "") else { return };
    let trailing = asked.lines().filter(|line| line.ends_with(TRAILING)).count();
    assert!((1..=4).contains(&trailing), "{asked}");
    assert_eq!(connected(&events), 4, "{asked}");
}

/// A stream that has sent its trailing request takes over from a slow one on its own connection.
#[test]
fn stream_that_requests_more_after_its_trailing_request_keeps_its_connection() {
    let Some((events, asked)) = fetch(TWO_ARE_SLOW, "") else { return };
    let lines: Vec<_> = asked.lines().filter_map(|line| line.split_once(' ')).collect();
    let goes_on = |(at, (connection, range)): (usize, &(&str, &str))| {
        *range == TRAILING && lines[at + 1..].iter().any(|(other, _)| other == connection)
    };
    assert!(lines.iter().enumerate().any(goes_on), "{asked}");
    assert!(connected(&events) <= 6, "{asked}");
}

#[test]
fn trailing_request_that_is_not_answered_is_no_failure() {
    let close = format!("if ($http_range = {TRAILING}) {{ return 444; }}");
    let Some((events, asked)) = fetch(TWO_ARE_SLOW, &close) else { return };
    assert!(asked.lines().any(|line| line.ends_with(TRAILING)), "{asked}");
    // A slow stream retries after a faster one has taken over part of its range.
    let stolen = |event: &Value| event["reason"].as_str().is_some_and(|why| why.contains("has taken over"));
    let failed: Vec<_> =
        events.iter().filter(|event| event["event"] == "retrying" && !stolen(event)).collect();
    assert!(failed.is_empty(), "{failed:?}");
}
