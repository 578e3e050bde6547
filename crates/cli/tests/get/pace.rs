//! `--pace`, asked of a server that knows it.

use std::time::Duration;

use crate::support::{Serve, content, get, same};

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
}
