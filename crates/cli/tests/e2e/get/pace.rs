//! `--pace`, requested from a server that supports it.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{File, MEMORY, Serve, Server, content, get, remember, same};

#[test]
fn rate_is_requested_from_the_server() {
    let server = Serve::start();
    let bytes = content(8 << 20, 1);
    server.file("f", &bytes);
    for url in [server.url("/f"), server.tls_url("/f")] {
        let run = get()
            .args(["--pace", "80Mbit", "--streams", "1", &url])
            .args(["--cacert".as_ref(), server.ca().as_os_str()]);
        let ended = run.run().ok();
        same(run.path("f"), &bytes);
        // Less than the ideal 0.84 s: the kernel starts with a burst.
        assert!(ended.time >= Duration::from_millis(700), "{url}: {ended:?}");
    }
}

#[test]
fn a_pace_may_be_left_to_the_sender() {
    let server = Serve::start();
    let bytes = content(8 << 20, 2);
    server.file("f", &bytes);
    for pace in ["off", "auto"] {
        let run = get().args(["--pace", pace, &server.url("/f")]);
        run.run().ok();
        same(run.path("f"), &bytes);
    }
}

#[test]
fn invalid_pace_is_refused_before_a_request() {
    let ended = get().args(["--pace", "10M", "http://127.0.0.1:1/f"]).run();
    assert!(ended.status.code() == Some(64) && ended.stderr.contains("write 10Mbit or 10MiB"), "{ended:?}");
    for pace in ["0", "fast", "", "-1Mbit"] {
        // No server listens: the usage error precedes the connection.
        let run = get().args([format!("--pace={pace}").as_str(), "http://127.0.0.1:1/f"]);
        let ended = run.run();
        assert_eq!(ended.status.code(), Some(64), "{pace:?}: {ended:?}");
        assert!(ended.stderr.contains("--pace") && ended.stderr.contains("auto, off"), "{pace:?}: {ended:?}");
        assert_eq!(std::fs::read_dir(run.dir()).unwrap().count(), 0, "{pace:?}");
    }
}

#[test]
fn remembered_rate_is_requested_from_a_pacing_server() {
    let server = Server::of(File::new(content(4 << 10, 3)));
    let url = server.url("/f");
    let path = json!({ "rtt_us": 100_000, "rate_bps": 900_000_000, "paced": true });
    let held = "auto;held=900000000;rtt=0.1";
    for (but, args, asked) in [
        (json!({}), &[][..], Some(held)),
        (json!({ "paced": false }), &[], None),
        (json!({ "at": 1 }), &[], None),
        (json!({}), &["--no-memory"], None),
        (json!({}), &["--streams", "1"], Some(held)),
        (json!({}), &["--streams", "8"], None),
        (json!({}), &["--tuner", "apt"], None),
        (json!({}), &["--pace", "off"], Some("off")),
        (json!({}), &["--header", "Longhaul-Pace: 5000000"], Some("5000000")),
    ] {
        let run = get().args(args).args([&url]);
        let mut known = path.clone();
        known.as_object_mut().unwrap().extend(but.as_object().unwrap().clone());
        remember(&run, &server, &known);
        let before = server.requests().len();
        run.run().ok();
        // The server no longer paces, and is then treated like any other.
        let first = &server.requests()[before];
        assert_eq!(first.field("longhaul-pace"), asked, "{but}, {args:?}");
    }
}

/// The server still paces, but its RTT has changed: the remembered pace does not apply.
#[test]
fn changed_path_to_a_pacing_server_is_measured_again() {
    let file = File::new(content(20 << 20, 5));
    let served = file.clone();
    let server = Server::new(move |peer| {
        peer.serve_with(|request| {
            let (head, body) = served.answer(&request);
            (head.replacen("\r\n", "\r\nLonghaul-Pace: auto\r\n", 1), body)
        });
    });
    let run = get().args(["-o", "f", &server.url("/f")]);
    remember(&run, &server, &json!({ "rtt_us": 200_000, "paced": true }));
    run.run().ok();
    same(run.path("f"), &file.bytes);
    let paces: Vec<_> =
        server.requests().iter().map(|request| request.field("longhaul-pace").is_some()).collect();
    assert_eq!(paces, [true, false]);
}

#[test]
fn rate_of_a_pacing_server_is_stored() {
    let bytes = content(12 << 20, 4);
    let (sent, took) = (bytes.clone(), Arc::new(Mutex::new(Duration::ZERO)));
    let time = Arc::clone(&took);
    let server = Server::new(move |peer| {
        while peer.read_request().is_some() {
            let began = Instant::now();
            let head =
                format!("HTTP/1.1 200 OK\r\nLonghaul-Pace: auto\r\nContent-Length: {}\r\n\r\n", sent.len());
            let _ = peer.send(head) && peer.trickle(&sent, 4 << 20);
            *time.lock().unwrap() = began.elapsed();
        }
    });
    let run = get().args([&server.url("/f")]);
    run.run().ok();
    same(run.path("f"), &bytes);
    let memory: Value = serde_json::from_slice(&fs::read(run.path(MEMORY)).unwrap()).unwrap();
    let path = &memory["paths"][0];
    // A busy machine sends at less than the pace.
    let sent = bytes.len() as f64 * 8.0 / took.lock().unwrap().as_secs_f64();
    let rate = path["rate_bps"].as_u64().unwrap() as f64 / sent;
    assert!(path["paced"] == true && (0.7..1.4).contains(&rate), "{rate} of {sent}: {memory}");
}
