//! `--pace`, requested from a server that supports it.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{File, MEMORY, Serve, Server, at_once, content, get, remember, serve};

#[test]
fn rate_is_requested_from_the_server() {
    let server = Serve::start();
    let bytes = content(8 << 20, 1);
    server.file("f", &bytes);
    at_once([server.url("/f"), server.tls_url("/f")], |url| {
        let run = get().args(["--pace", "80Mbit", "--streams", "1", &url, "--cacert"]).args([server.ca()]);
        let ended = run.fetches(&bytes);
        // Less than the ideal 0.84 s: the kernel starts with a burst.
        assert!(ended.time >= Duration::from_millis(700), "{url}: {ended:?}");
    });
    // It may be left to the sender.
    for pace in ["off", "auto"] {
        get().args(["--pace", pace, &server.url("/f")]).fetches(&bytes);
    }
}

#[test]
fn pace_that_the_operator_or_the_option_sets_is_the_limit_and_named() {
    let (files, bytes) = (tempfile::tempdir().unwrap(), content(6 << 20, 2));
    fs::write(files.path().join("f"), &bytes).unwrap();
    let of_server = ("server", "ask the server's operator to raise serve --pace above 20.0 Mbit/s");
    let cases = [
        ("20Mbit", &[][..], of_server),
        ("20Mbit", &["--pace", "80Mbit"], of_server),
        ("20Mbit", &["--pace", "off"], of_server),
        ("auto", &["--pace", "20Mbit"], ("limit", "raise --pace, or leave it out")),
    ];
    at_once(cases, |(pace, args, (limit, cure))| {
        let (_server, url) = serve(files.path(), &["--pace", pace]);
        let run = get().args(["--json", "--streams", "1", &format!("{url}/f")]).args(args);
        let done = run.fetches(&bytes).done();
        assert!(!run.path(MEMORY).exists(), "the pace is none of the path");
        let advised = done["advice"][1].as_str().is_some_and(|advice| advice.starts_with(cure));
        assert!(done["limited_by"] == limit && advised, "{pace} {args:?}: {done}");
    });
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

#[test]
fn rate_of_a_pacing_server_is_stored() {
    let fields = "Longhaul-Pace: auto\r\n".to_owned();
    let file = File { fields, etag: None, ranges: false, ..File::new(content(12 << 20, 4)) };
    let server = Server::slow(4 << 20, &file);
    let run = get().args([&server.url("/f")]);
    run.fetches(&file.bytes);
    let memory: Value = serde_json::from_slice(&fs::read(run.path(MEMORY)).unwrap()).unwrap();
    let path = &memory["paths"][0];
    // A busy machine sends at less than the pace.
    let rate = path["rate_bps"].as_f64().unwrap() / f64::from(8 * (4 << 20));
    assert!(path["paced"] == true && (0.1..1.5).contains(&rate), "{rate}: {memory}");
}
