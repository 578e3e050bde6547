//! Real servers: nginx, Apache and longhaul serve, with one and four streams, plain and encrypted.

use std::path::Path;

use crate::support::{Apache, Nginx, Serve, content, get, same};

/// Fetches a file of 64 MiB in all variants; 16 MiB with TLS, which is slow in a debug build.
fn fetch_all(
    url: &dyn Fn(&str) -> String,
    tls_url: &dyn Fn(&str) -> String,
    ca: &Path,
    file: &dyn Fn(&str, &[u8]),
) {
    let (large, small) = (content(64 << 20, 1), content((16 << 20) + 77, 2));
    file("large", &large);
    file("small", &small);
    for streams in ["1", "4"] {
        let run = get().args(["--streams", streams, "--json", "-o", "large", &url("/large")]);
        let used = run.run().ok().done()["streams"].as_u64().unwrap();
        // Read-ahead requests of the first streams may leave no work for the last.
        assert_eq!(used > 1, streams == "4", "{used} of {streams} streams");
        same(run.path("large"), &large);
        let run = run.again(["--streams", streams, "--cacert"]).args([ca]).args([tls_url("/small")]);
        run.run().ok();
        same(run.path("small"), &small);
    }
}

#[test]
fn nginx() {
    let Some(site) = Nginx::start() else { return };
    fetch_all(&|p| site.url(p), &|p| site.tls_url(p), &site.ca(), &|n, b| site.file(n, b));
}

#[test]
fn apache() {
    let Some(site) = Apache::start() else { return };
    fetch_all(&|p| site.url(p), &|p| site.tls_url(p), &site.ca(), &|n, b| site.file(n, b));
}

#[test]
fn longhaul_serve() {
    let site = Serve::start();
    fetch_all(&|p| site.url(p), &|p| site.tls_url(p), &site.ca(), &|n, b| site.file(n, b));
}

#[test]
fn a_server_that_keeps_no_connection_alive() {
    let Some(site) = Nginx::start() else { return };
    let bytes = content((20 << 20) + 1, 3);
    site.file("f", &bytes);
    for place in ["closing", "one-each"] {
        for streams in ["1", "4"] {
            let run = get().args(["-q", "--streams", streams, &site.url(&format!("/{place}/f"))]);
            let ended = run.run().ok();
            assert_eq!(ended.stderr, "", "closing after an answer is no failure");
            same(run.path("f"), &bytes);
        }
    }
}

#[test]
fn a_server_without_ranges_gets_one_stream() {
    let Some(site) = Nginx::start() else { return };
    let bytes = content(5 << 20, 4);
    site.file("f", &bytes);
    let run = get().args(["--streams", "4", "--json", &site.url("/no-ranges/f")]);
    let ended = run.run().ok();
    assert_eq!(ended.done()["streams"], 1);
    assert!(ended.stdout.contains("no ranges"), "{ended:?}");
    same(run.path("f"), &bytes);
}
