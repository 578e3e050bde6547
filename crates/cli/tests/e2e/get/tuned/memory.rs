//! The path memory.

use std::fs;
use std::sync::Mutex;

use serde_json::{Value, json};

use super::{RATE, SIZE, count};
use crate::support::{File, MEMORY, Server, content, get, remember};

#[test]
fn short_path_is_fetched_in_one_plain_request_and_not_stored() {
    let file = File::new(content(SIZE / 2, 9));
    // Also if it is remembered as a long path with many streams.
    for is_remembered in [false, true] {
        let server = Server::of(file.clone());
        let run = get().args(["--json", &server.url("/f")]);
        if is_remembered {
            remember(&run, &server, &json!({ "rtt_us": 200_000, "streams": 100 }));
        }
        assert_eq!(run.fetches(&file.bytes).done()["streams"], 1);
        assert_eq!((server.requests().len(), server.requests()[0].field("range")), (1, None));
        assert_eq!(run.path(".local").exists(), is_remembered);
    }
}

/// The memory says that the server paces, but it no longer does, or its RTT has changed: nothing of
/// the old entry applies.
#[test]
fn changed_path_to_a_server_that_paced_is_measured_again() {
    let file = File::new(content(SIZE / 2, 17));
    for (field, rtt) in [("", 1000), ("Longhaul-Pace: auto\r\n", 200_000)] {
        let server = Server::of(File { fields: field.to_owned(), ..file.clone() });
        let run = get().args(["--json", "-o", "f", &server.url("/f")]);
        remember(&run, &server, &json!({ "streams": 1, "paced": true, "rtt_us": rtt }));
        run.fetches(&file.bytes);
        let paces = || -> Vec<_> {
            server.requests().iter().map(|request| request.field("longhaul-pace").is_some()).collect()
        };
        assert_eq!(paces(), [true, false]);
        if field.is_empty() {
            // The new state is remembered.
            run.run().ok();
            assert_eq!(paces(), [true, false, false]);
        }
    }
}

/// A complete response remains usable, although the next one shows that the server does not pace.
#[test]
fn single_response_is_used_although_the_server_no_longer_paces() {
    let file = File::new(content(SIZE / 2, 18));
    for again in [
        "HTTP/1.1 503 Later\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 404 Gone\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nETag: \"v2\"\r\nContent-Length: 1\r\n\r\n?",
        "",
    ] {
        let server = Server::with(&file, move |peer, served| match peer.number {
            0 => peer.serve(served),
            _ => peer.answer(again),
        });
        // Into the directory, named by the server.
        let run = get().args(["--json", &server.url("/f")]);
        remember(&run, &server, &json!({ "streams": 1, "paced": true }));
        let ended = run.fetches(&file.bytes);
        assert_eq!((server.requests().len(), count(&ended, "retrying")), (2, 0), "{again}: {ended:?}");
    }
}

/// Equal RTT, but all connections together get less than one did before: the transfer still
/// succeeds.
#[test]
fn transfer_succeeds_on_a_path_that_has_become_slower() {
    let file = File::new(content(SIZE / 8, 11));
    let (served, line) = (file.clone(), Mutex::new(()));
    let server = Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            let (head, body) = served.answer(&request);
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
    run.fetches(&file.bytes);
}

#[test]
fn result_of_a_transfer_is_stored_for_the_next() {
    let file = File::new(content(SIZE, 12));
    let server = Server::slow(RATE, &file);
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
fn damaged_memory_is_reported_and_ignored() {
    let file = File::new(content(1 << 20, 13));
    let server = Server::of(file.clone());
    for text in ["", "{", "nonsense", r#"{"version":7}"#] {
        let run = get().file(MEMORY, text).args([&server.url("/f")]);
        let ended = run.fetches(&file.bytes);
        let warnings: Vec<_> = ended.stderr.lines().filter(|line| line.contains("paths.json")).collect();
        assert!(warnings.len() == 1 && warnings[0].contains("remembered"), "{ended:?}");
        let quiet = run.again(["--no-memory", "-o", "g", &server.url("/f")]).run().ok();
        assert!(!quiet.stderr.contains("paths.json"), "{quiet:?}");
    }
    let ended = get().file(".local", "a file").args([&server.url("/f")]).fetches(&file.bytes);
    assert!(ended.stderr.contains("paths.json"), "{ended:?}");
}
