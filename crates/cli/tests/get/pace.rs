//! `--pace`, asked of a server that knows it.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::support::{File, Serve, Server, content, get, same};

const MEMORY: &str = ".local/state/longhaul/paths.json";

#[test]
fn a_rate_is_asked_of_the_server() {
    let server = Serve::start();
    let bytes = content(8 << 20, 1);
    server.file("f", &bytes);
    for url in [server.url("/f"), server.tls_url("/f")] {
        let run = get()
            .args(["--pace", "80Mbit", "--streams", "1", &url])
            .args(["--cacert".as_ref(), server.ca().as_os_str()]);
        let ended = run.run().ok();
        same(run.path("f"), &bytes);
        // 0.84 s: the kernel starts with a burst.
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
fn what_is_no_pace_is_refused_before_anything_is_done() {
    for pace in ["0", "fast", "", "-1Mbit"] {
        // Nobody listens there: a usage error comes first.
        let run = get().args([format!("--pace={pace}").as_str(), "http://127.0.0.1:1/f"]);
        let ended = run.run();
        assert_eq!(ended.status.code(), Some(64), "{pace:?}: {ended:?}");
        assert!(ended.stderr.contains("--pace") && ended.stderr.contains("auto, off"), "{pace:?}: {ended:?}");
        assert_eq!(std::fs::read_dir(run.dir()).unwrap().count(), 0, "{pace:?}");
    }
}

#[test]
fn a_window_that_paces_contradicts_no_pace() {
    let run = get().args(["--pace-window", "--pace", "off", "http://127.0.0.1:1/f"]);
    let ended = run.run();
    assert_eq!(ended.status.code(), Some(64), "{ended:?}");
    assert!(ended.stderr.contains("--pace-window") && ended.stderr.contains("--pace off"), "{ended:?}");
    for args in [&["--streams", "4"][..], &["--tuner", "apt"], &["--recv-buffer", "1MiB"]] {
        let ended = get().args(["--pace-window", "http://127.0.0.1:1/f"]).args(args).run();
        assert_eq!(ended.status.code(), Some(64), "{args:?}: {ended:?}");
        assert!(ended.stderr.contains("--pace-window is for one stream"), "{args:?}: {ended:?}");
    }
}

#[test]
fn a_server_that_paced_is_asked_for_what_the_path_held_then() {
    let server = Server::of(File::new(content(4 << 10, 3)));
    let url = server.url("/f");
    let port: u16 = url.rsplit(':').next().unwrap().split('/').next().unwrap().parse().unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let held = "auto;held=900000000;rtt=0.1";
    for (paced, at, args, asked) in [
        (json!(true), now, &[][..], Some(held)),
        (json!(false), now, &[], None),
        (json!(true), 1, &[], None),
        (json!(true), now, &["--no-memory"], None),
        (json!(true), now, &["--pace", "off"], Some("off")),
        (json!(true), now, &["--header", "Longhaul-Pace: 5000000"], Some("5000000")),
    ] {
        let run = get().args(args).args([&url]);
        fs::create_dir_all(run.path(MEMORY).parent().unwrap()).unwrap();
        let path = json!({
            "host": "127.0.0.1", "port": port, "rtt_us": 100_000, "rate_bps": 900_000_000, "streams": 1,
            "app_buffer": 1 << 26, "window": 1 << 24, "paced": paced, "at": at,
        });
        fs::write(run.path(MEMORY), json!({ "version": 1, "paths": [path] }).to_string()).unwrap();
        let before = server.asks().len();
        run.run().ok();
        // It does not pace after all, and is asked again as any other.
        let first = &server.asks()[before];
        assert_eq!(first.field("longhaul-pace"), asked, "paced {paced}, {args:?}");
    }
}

#[test]
fn what_a_server_that_paces_has_held_is_remembered() {
    let bytes = content(12 << 20, 4);
    let sent = bytes.clone();
    let server = Server::new(move |peer| {
        while peer.ask().is_some() {
            let head =
                format!("HTTP/1.1 200 OK\r\nLonghaul-Pace: auto\r\nContent-Length: {}\r\n\r\n", sent.len());
            let _ = peer.send(head) && peer.trickle(&sent, 4 << 20);
        }
    });
    let run = get().args([&server.url("/f")]);
    run.run().ok();
    same(run.path("f"), &bytes);
    let memory: Value = serde_json::from_slice(&fs::read(run.path(MEMORY)).unwrap()).unwrap();
    let path = &memory["paths"][0];
    let rate = path["rate_bps"].as_u64().unwrap() as f64 / 8.0 / f64::from(4 << 20);
    // A machine that is busy sends less.
    assert!(path["paced"] == true && (0.3..1.4).contains(&rate), "{memory}");
}
