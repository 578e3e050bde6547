//! The dashboard's address: token, Host and Origin checks, and server-sent events.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{File, Home, Server, content};

#[test]
fn requests_without_the_token_from_elsewhere_or_for_another_host_are_refused() {
    let home = Home::new();
    let path = "/api/v1/transfers";
    let body = json!({ "urls": ["http://127.0.0.1:9/f"], "paused": true });
    for (header, status) in [
        (("Authorization", ""), 401),
        (("Authorization", "Bearer wrong"), 401),
        (("Host", "attacker.example"), 421),
        (("Host", "127.0.0.1"), 421),
        (("Origin", "http://attacker.example"), 403),
        (("Origin", "null"), 403),
    ] {
        assert_eq!(home.http("POST", path, &[header], Some(&body)).0, status, "{header:?}");
    }
    assert!(home.list().is_empty());
    assert_eq!(home.http("POST", path, &[], Some(&body)).0, 201);
    let token = std::fs::metadata(home.state("agent.token")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&token) & 0o777, 0o600);
}

#[test]
fn changes_progress_and_samples_are_sent_as_events() {
    let home = Home::new();
    let file = File::new(content(3_000_000, 13));
    let server = Server::new(move |peer| peer.serve_at(2_000_000, &file));
    let id = home.add(&server.url("/f"), &["--paused"]);
    let (address, token) = home.dashboard();
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = format!(
        "GET /api/v1/events?samples={id} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    lines.find(|line| line == "event: stats").unwrap();
    home.queue_ok(&["resume", &id.to_string()]);
    let began = Instant::now();
    let (mut name, mut seen, mut interval) = (String::new(), Vec::new(), 1.0_f64);
    for line in lines {
        if let Some(event) = line.strip_prefix("event: ") {
            event.clone_into(&mut name);
        }
        let Some(data) = line.strip_prefix("data: ") else { continue };
        let data: Value = serde_json::from_str(data).unwrap();
        if name == "samples" {
            let samples = data["samples"].as_array().unwrap().iter();
            let at: Vec<_> = samples.map(|sample| sample["at"].as_f64().unwrap()).collect();
            assert!(data["samples"][0]["sockets"].is_object(), "{data}");
            interval = at.windows(2).map(|pair| pair[1] - pair[0]).fold(interval, f64::min);
        }
        seen.push(name.clone());
        if name == "transfer" && data["state"] == "done" {
            break;
        }
    }
    for wanted in ["transfer", "progress", "samples"] {
        assert!(seen.iter().any(|name| name == wanted), "{wanted}: {seen:?}");
    }
    assert!(interval < 0.1, "a transfer that is looked at is measured more often: {interval}");
    let progress = seen.iter().filter(|name| *name == "progress").count() as f64;
    let seconds = began.elapsed().as_secs_f64();
    assert!(progress < 20.0 * seconds, "{progress} in {seconds} s");
}
