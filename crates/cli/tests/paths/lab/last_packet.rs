//! The end of a transfer over several streams from a stock nginx on a long path.

use std::fs;

use serde_json::Value;

use crate::support::lab::{exec_in, needs_lab_with, nginx, objects, ran};

/// The first connection leases a third; enough is left for the others.
const SIZE: usize = 48 << 20;
const PATH: [&str; 4] = ["--rate", "200Mbit", "--rtt", "80ms"];
const TRAILING: &str = "bytes=0-4095";
/// With two slow streams, at least one takeover is by a stream that has sent its trailing request, for any order of ends.
const TWO_ARE_SLOW: &str = "map $connection $most { ~[23]$ 400k; default 0; } limit_rate $most;";

/// Fetches the file with four streams from an nginx with `directives` and `server` directives, otherwise with Debian's settings; returns
/// the events, and the ranges requested on each connection.
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
