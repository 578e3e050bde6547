//! Paths that are remembered.

use std::fs;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};

use super::{SIZE, events, serve_slowly};
use crate::support::{File, MEMORY, Server, content, get, partial_files, remember, same};

#[test]
fn a_short_path_is_asked_plainly_and_not_remembered() {
    let file = File::new(content(SIZE / 2, 9));
    let server = Server::of(file.clone());
    let run = get().args(["--json", &server.url("/f")]);
    assert_eq!(run.run().ok().done()["streams"], 1);
    same(run.path("f"), &file.bytes);
    assert_eq!((server.asks().len(), server.asks()[0].field("range")), (1, None));
    assert!(!run.path(".local").exists());
}

#[test]
fn a_path_that_has_changed_is_another() {
    let file = File::new(content(SIZE / 2, 10));
    let server = Server::of(file.clone());
    let run = get().args(["--json", &server.url("/f")]);
    // As a long one, with many streams.
    remember(&run, &server, &json!({ "rtt_us": 200_000, "streams": 100 }));
    assert_eq!(run.run().ok().done()["streams"], 1);
    same(run.path("f"), &file.bytes);
    assert_eq!(server.asks().len(), 1);
}

/// One that paced is remembered, and another stands there: nothing that was meant for the first is done to it.
#[test]
fn a_server_that_paced_and_does_no_longer_is_fetched_from_as_any() {
    let file = File::new(content(SIZE / 2, 17));
    let server = Server::of(file.clone());
    let run = get().args(["--json", &server.url("/f")]);
    remember(&run, &server, &json!({ "streams": 1, "paced": true }));
    run.run().ok();
    same(run.path("f"), &file.bytes);
    let paces =
        || -> Vec<_> { server.asks().iter().map(|ask| ask.field("longhaul-pace").is_some()).collect() };
    assert_eq!(paces(), [true, false]);
    // That is remembered.
    let run = run.again(["--json", "-o", "g", &server.url("/f")]);
    run.run().ok();
    same(run.path("g"), &file.bytes);
    assert_eq!(paces(), [true, false, false]);
}

/// The answer that was had is no worse for what is wrong with the next.
#[test]
fn what_a_server_gives_once_is_fetched_though_it_paces_no_longer() {
    let file = File::new(content(SIZE / 2, 18));
    for again in [
        "HTTP/1.1 503 Later\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 404 Gone\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nETag: \"v2\"\r\nContent-Length: 1\r\n\r\n?",
        "",
    ] {
        let served = file.clone();
        let server = Server::new(move |peer| match peer.number {
            0 => peer.serve(&served),
            _ => {
                peer.ask();
                peer.send(again);
                peer.close();
            }
        });
        // Into the directory, by the server's name.
        let run = get().args(["--json", &server.url("/f")]);
        remember(&run, &server, &json!({ "streams": 1, "paced": true }));
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        assert_eq!(server.asks().len(), 2, "{again}");
        assert_eq!(events(&ended, "retrying").count(), 0, "{ended:?}");
        assert_eq!(partial_files(run.dir()), Vec::<String>::new(), "{again}");
    }
}

/// The same RTT, and a server that gives all connections together less than one had: nothing breaks.
#[test]
fn a_path_that_has_become_slower_is_served_all_the_same() {
    let file = File::new(content(SIZE / 8, 11));
    let (served, line) = (file.clone(), Mutex::new(()));
    let server = Server::new(move |peer| {
        while let Some(ask) = peer.ask() {
            let (head, body) = served.answer(&ask);
            let sent = peer.send(head)
                && body.chunks(64 << 10).all(|piece| {
                    let _line = line.lock().unwrap();
                    peer.trickle(piece, 4_000_000)
                });
            if !sent {
                return;
            }
        }
    });
    let run = get().args(["--json", &server.url("/f")]);
    remember(&run, &server, &json!({ "streams": 100 }));
    let ended = run.run().ok();
    same(run.path("f"), &file.bytes);
    assert!(ended.time < Duration::from_secs(10), "{:?}", ended.time);
}

#[test]
fn what_a_transfer_found_is_kept_for_the_next() {
    let file = File::new(content(SIZE, 12));
    let served = file.clone();
    let server = Server::new(move |peer| serve_slowly(peer, &served));
    let run = get().args(["--json", &server.url("/f")]);
    remember(&run, &server, &json!({ "streams": 8 }));
    let before = fs::read_to_string(run.path(MEMORY)).unwrap();
    run.run().ok();
    let after = fs::read_to_string(run.path(MEMORY)).unwrap();
    let known: Value = serde_json::from_str(&after).unwrap();
    assert_ne!(before, after);
    let [path] = &known["paths"].as_array().unwrap()[..] else { panic!("{after}") };
    assert_eq!(path["port"], server.address.port());
    assert!(path["streams"].as_u64() >= Some(1) && path["rate_bps"].as_u64() > Some(1_000_000), "{after}");
}

#[test]
fn a_damaged_memory_is_told_and_none_is_used() {
    let file = File::new(content(1 << 20, 13));
    let server = Server::of(file.clone());
    for text in ["", "{", "nonsense", r#"{"version":7}"#] {
        let run = get().args([&server.url("/f")]);
        remember(&run, &server, &json!({ "streams": 8 }));
        fs::write(run.path(MEMORY), text).unwrap();
        let ended = run.run().ok();
        let told = ended.stderr.lines().filter(|line| line.contains("paths.json"));
        assert!(
            told.clone().count() == 1 && told.clone().all(|line| line.contains("remembered")),
            "{ended:?}"
        );
        same(run.path("f"), &file.bytes);
        let quiet = run.again(["--no-memory", "-o", "g", &server.url("/f")]).run().ok();
        assert!(!quiet.stderr.contains("paths.json"), "{quiet:?}");
    }
}

/// It says nothing of the other paths, which are used.
#[test]
fn a_path_that_cannot_be_is_not_used_and_not_told() {
    let file = File::new(content(1 << 20, 19));
    let server = Server::of(file.clone());
    for (known, asked) in [(json!({ "paced": true, "streams": 0 }), 0), (json!({ "paced": true }), 1)] {
        let run = get().args([&server.url("/f")]);
        remember(&run, &server, &known);
        let mut memory: Value = serde_json::from_slice(&fs::read(run.path(MEMORY)).unwrap()).unwrap();
        let mut other = memory["paths"][0].clone();
        other["host"] = json!("other");
        other["streams"] = json!(0);
        memory["paths"].as_array_mut().unwrap().insert(0, other);
        fs::write(run.path(MEMORY), memory.to_string()).unwrap();
        let before = server.asks().len();
        let ended = run.run().ok();
        assert!(!ended.stderr.contains("paths.json"), "{ended:?}");
        let asks = &server.asks()[before..];
        assert_eq!(asks.iter().filter(|ask| ask.field("longhaul-pace").is_some()).count(), asked, "{known}");
        same(run.path("f"), &file.bytes);
    }
}

#[test]
fn a_memory_that_cannot_be_had_is_told() {
    let file = File::new(content(1 << 20, 14));
    let server = Server::of(file.clone());
    let run = get().args([&server.url("/f")]);
    fs::write(run.path(".local"), "a file").unwrap();
    let ended = run.run().ok();
    assert!(ended.stderr.contains("paths.json"), "{ended:?}");
    same(run.path("f"), &file.bytes);
}
