//! The dashboard's address: token, Host and Origin checks, server-sent events, and downloads that a
//! browser offers.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::lab::wait_until;
use crate::support::{File, Home, Server, content, partial_files, same};

#[test]
fn tokens_are_private_and_that_for_downloads_permits_nothing_else() {
    let home = Home::new();
    let path = "/api/v1/transfers";
    let body = json!({ "urls": ["http://127.0.0.1:9/f"], "paused": true });
    assert_eq!(home.http("POST", path, &[], Some(&body)).0, 201);
    let download_token = std::fs::read_to_string(home.state("download.token")).unwrap();
    let bearer = format!("Bearer {download_token}");
    let upload = json!({ "kind": "put", "paths": [home.state("agent.key")], "url": "http://127.0.0.1:9/" });
    for (body, status) in
        [(&upload, 403), (&json!({ "urls": ["http://h/"], "output": "/f" }), 403), (&body, 201)]
    {
        assert_eq!(home.http("POST", path, &[("Authorization", &bearer)], Some(body)).0, status, "{body}");
    }
    // It gives no other link to what it could not add.
    let tree = json!({ "urls": ["http://127.0.0.1:9/"], "kind": "tree", "paused": true });
    let (_, added) = home.http("POST", path, &[], Some(&tree));
    let added: Value = serde_json::from_str(&added).unwrap();
    let refresh = format!("{path}/{}/refresh", added["transfers"][0]["id"]);
    let link = json!({ "url": "http://127.0.0.1:9/other/" });
    assert_eq!(home.http("POST", &refresh, &[("Authorization", &bearer)], Some(&link)).0, 403);
    let token = std::fs::metadata(home.state("agent.token")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&token) & 0o777, 0o600);
}

#[test]
fn changes_progress_and_samples_are_sent_as_events() {
    let home = Home::new();
    let server = Server::slow(2_000_000, &File::new(content(3_000_000, 13)));
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
    // The totals are sent at the start, not only at the end.
    for wanted in ["transfer", "progress", "samples", "stats"] {
        assert!(seen.iter().any(|name| name == wanted), "{wanted}: {seen:?}");
    }
    assert!(interval < 0.1, "a transfer that is looked at is measured more often: {interval}");
    let progress = seen.iter().filter(|name| *name == "progress").count() as f64;
    let seconds = began.elapsed().as_secs_f64();
    assert!(progress < 20.0 * seconds, "{progress} in {seconds} s");
}

fn offer(home: &Home, server: &Server, size: u64) -> (u16, Value) {
    home.set(&json!({ "directory": home.files() }));
    let body = json!({ "urls": [server.url("/f")], "name": "f.bin", "size": size });
    let (status, answer) = home.http("POST", "/api/v1/transfers/offer", &[], Some(&body));
    (status, serde_json::from_str(&answer).unwrap())
}

/// A file whose server says that it sends ranges.
fn with_ranges(bytes: &[u8]) -> File {
    File { fields: "Accept-Ranges: bytes\r\n".to_owned(), ..File::new(bytes.to_vec()) }
}

#[test]
fn another_file_a_page_or_a_refusal_refuses_the_offer_and_nothing_is_kept() {
    let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<title>Log in</title>";
    let of_size = |size| Server::of(File::new(content(size, 2)));
    for (server, word) in [
        // A small file may complete before it is compared.
        (of_size(100), "80000000 bytes that are expected"),
        // The transfer has the size from the start, as have its prepared streams.
        (of_size(3_000_000), "80000000 bytes that are expected"),
        (Server::answering(page), ""),
        (Server::answering("HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n"), ""),
    ] {
        let home = Home::new();
        let (status, refused) = offer(&home, &server, 80_000_000);
        assert_eq!((status, &refused["error"]["code"]), (409, &"refused".into()), "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains(word), "{refused}");
        assert!(home.list().is_empty());
        assert_eq!(std::fs::read_dir(home.files()).unwrap().count(), 0);
    }
}

#[test]
fn offer_of_a_killed_agent_leaves_nothing() {
    let (home, server) = (Home::new(), Server::silent());
    home.set(&json!({ "directory": home.files() }));
    let body = json!({ "urls": [server.url("/f")], "name": "f.bin", "size": 3_000_000 }).to_string();
    let ((address, token), length) = (home.dashboard(), body.len());
    let head =
        format!("POST /api/v1/transfers/offer HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}");
    let offers: Vec<_> = (0..2)
        .map(|_| {
            let mut stream = TcpStream::connect(&address).unwrap();
            write!(stream, "{head}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
            stream
        })
        .collect();
    // The second has the name with a number.
    wait_until("both have a partial file", || partial_files(&home.files()).len() == offers.len());
    home.kill(Signal::KILL);
    assert!(home.list().is_empty(), "the next agent drops it before it answers");
    assert_eq!(std::fs::read_dir(home.files()).unwrap().count(), 0);
}

#[test]
fn connection_to_a_url_made_before_the_offer_carries_it() {
    let (home, bytes) = (Home::new(), content(3_000_000, 3));
    let file = with_ranges(&bytes);
    let (accepted, accepts) = std::sync::mpsc::channel();
    // The server refuses a second connection.
    let server = Server::first(1, move |peer| {
        accepted.send(()).unwrap();
        peer.serve(&file);
    });
    for (body, expected) in [
        (json!({ "url": "no url" }), 400),
        (json!({ "url": "file:///etc/passwd" }), 400),
        (json!({}), 400),
        (json!({ "url": server.url("/") }), 202),
    ] {
        let (status, answer) = home.http("POST", "/api/v1/connections", &[], Some(&body));
        assert_eq!(status, expected, "{body}: {answer}");
    }
    accepts.recv_timeout(std::time::Duration::from_secs(40)).unwrap();
    assert!(server.requests().is_empty(), "nothing is asked for before the offer");
    let (status, taken) = offer(&home, &server, 3_000_000);
    assert_eq!(status, 200, "{taken}");
    home.done(taken["id"].as_i64().unwrap());
    same(home.files().join("f.bin"), &bytes);
}
