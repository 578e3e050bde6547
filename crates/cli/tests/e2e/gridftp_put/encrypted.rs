//! Encrypted uploads: ftps:// to vsftpd and proftpd, and gsiftp:// with `--encrypt`.

#[path = "../gridftp_security/sniffer.rs"]
mod sniffer;

use super::{leftovers, put};
use crate::support::{Get, GsiSite, Proftpd, Vsftpd, content, get, same};
use sniffer::Sniffer;

/// Creates 4 MiB of repeated `text`: every packet of unencrypted data contains it.
fn repeated(text: &str) -> Vec<u8> {
    text.bytes().cycle().take(4 << 20).collect()
}

/// Runs a `put` that must succeed; returns the number of packets on this host that contain `text`.
fn seen(run: &Get, text: &str) -> Option<usize> {
    let sniffer = Sniffer::start(text)?;
    run.run().ok();
    Some(sniffer.found())
}

fn with_env(run: Get, env: impl IntoIterator<Item = (&'static str, String)>) -> Get {
    env.into_iter().fold(run, |run, (name, value)| run.env(name, value))
}

#[test]
fn vsftpd_gets_files_of_any_size_within_tls() {
    let Some(server) = Vsftpd::with_tls() else { return };
    let ca = server.ca();
    for (size, seed) in [(0, 1), (1, 2), ((9 << 20) + 5, 3)] {
        for reader in ["sendfile", "direct"] {
            let bytes = content(size, seed);
            let args = ["--cacert", ca.to_str().unwrap(), "--reader", reader, "f", &server.tls_url("g")];
            put(&bytes).args(args).run().ok();
            same(server.path("g"), &bytes);
            assert_eq!(leftovers(&server.path("g")), [""; 0]);
        }
    }
    assert!(server.log().contains("PROT P"), "{}", server.log());
}

#[test]
fn several_files_and_a_tree_go_to_proftpd_within_tls() {
    let Some(server) = Proftpd::with_tls() else { return };
    let ca = server.ca();
    let url = server.tls_url("").replace("ftps://", "ftps://ann:secret%20word@");
    let run = put(&content(3 << 20, 4));
    std::fs::create_dir_all(run.path("t/sub")).unwrap();
    for name in ["t/a", "t/sub/b", "t/sub/c"] {
        std::fs::write(run.path(name), name).unwrap();
    }
    let run = run.args(["--cacert", ca.to_str().unwrap(), "f", "t/a", &url]);
    run.run().ok();
    same(server.path("f"), &content(3 << 20, 4));
    let run = run.again(["--cacert", ca.to_str().unwrap(), "-r", "t", &format!("{url}new/t/")]);
    run.run().ok();
    for name in ["t/a", "t/sub/b", "t/sub/c"] {
        same(server.path(&format!("new/{name}")), name.as_bytes());
    }
}

#[test]
fn data_of_ftps_is_not_seen() {
    let Some(server) = Proftpd::with_tls() else { return };
    let text = "what only proftpd may store, ";
    let bytes = repeated(text);
    let (ca, url) = (server.ca(), server.tls_url("g"));
    let args = ["--cacert", ca.to_str().unwrap(), "-u", "ann:secret word", "f", &url];
    let Some(found) = seen(&put(&bytes).args(args), text) else { return };
    assert_eq!(found, 0);
    same(server.path("g"), &bytes);
    let Some(clear) = Proftpd::start() else { return };
    let run = put(&bytes).args(["-u", "ann:secret word", "f", &clear.url("g")]);
    assert!(seen(&run, text).is_none_or(|seen| seen > 0));
}

#[test]
fn an_unknown_authority_gets_neither_login_nor_data() {
    let Some(server) = Vsftpd::with_tls() else { return };
    put(b"x").args(["f", &server.tls_url("g")]).run().fails(76, &["does not trust", "--cacert"]);
    assert!(!server.log().contains("\"USER") && !server.path("g").exists(), "{}", server.log());
}

#[test]
fn gsi_encrypts_data_only_with_the_option() {
    let Some(site) = GsiSite::start() else { return };
    let text = "what only Ann may write, ";
    let bytes = repeated(text);
    for (number, options) in
        [&["--streams", "1"][..], &["--streams", "3", "--limit", "60Mbit"]].into_iter().enumerate()
    {
        for encrypt in [true, false] {
            let name = format!("g{number}{encrypt}");
            let run = with_env(put(&bytes), site.env()).args(options).args(["--json"]);
            let run = run.args(if encrypt { &["--encrypt"][..] } else { &[] });
            let run = run.args(["f", &site.url(&name)]);
            let Some(seen) = seen(&run, text) else { return };
            same(site.globus.path(&name), &bytes);
            assert_eq!(seen == 0, encrypt, "{seen} packets with {options:?}");
        }
        let streams = if number == 0 { 1 } else { 3 };
        let logged = site.globus.logged(2 * (number + 1), |transfer| transfer.code == 226);
        assert!(logged[2 * number..].iter().all(|transfer| transfer.streams == streams), "{logged:?}");
    }
    let log = site.globus.log();
    assert!(log.contains("Protection level set to P.") && log.contains("200 DCAU A."), "{log}");
}

#[test]
fn encrypted_gsi_upload_is_compared_resumed_and_repaired() {
    let Some(site) = GsiSite::start() else { return };
    let bytes = content(24 << 20, 5);
    let run = with_env(put(&bytes), site.env());
    let run = run.args(["--encrypt", "--streams", "2", "--limit", "80Mbit", "f", &site.url("g")]);
    let mut running = run.start();
    let size = || {
        let names = leftovers(&site.globus.path("g"));
        names.first().map_or(0, |name| {
            use std::os::unix::fs::MetadataExt;
            std::fs::metadata(site.globus.path(name)).map_or(0, |metadata| metadata.blocks() * 512)
        })
    };
    running.until("a part is stored", || size() > 8 << 20);
    running.signal(rustix::process::Signal::KILL);
    running.end();
    let ended = run.again(["--encrypt", "--json", "f", &site.url("g")]).run().ok();
    same(site.globus.path("g"), &bytes);
    assert!(ended.done()["digest"].as_str().unwrap().starts_with("sha256:"), "{ended:?}");
    let sent = site.globus.logged(1, |transfer| transfer.kind == "ESTO" && transfer.code == 226);
    assert!(sent[0].bytes < 20 << 20, "nearly all was sent again: {sent:?}");
    for size in [0, 1] {
        let run = with_env(put(&content(size, 6)), site.env());
        run.args(["--encrypt", "f", &site.url("small")]).run().ok();
        same(site.globus.path("small"), &content(size, 6));
    }
}

#[test]
fn unencrypted_protocols_are_refused() {
    for url in ["ftp://localhost:1/f", "http://localhost:1/f"] {
        put(b"x").args(["--encrypt", "f", url]).run().fails(64, &[url, "ftps://"]);
    }
    let Some(plain) = Vsftpd::start() else { return };
    put(b"x").args(["f", &plain.tls_url("g")]).run().fails(76, &["does not encrypt"]);
    assert!(!plain.path("g").exists());
}

/// Fetches the files that a listing over TLS names.
fn fetched(run: Get, url: &str) {
    let ended = run.args(["-r", "-o", "t", url]);
    ended.run().ok();
    for name in ["a", "sub/b"] {
        same(ended.path(format!("t/{name}")), name.as_bytes());
    }
}

#[test]
fn listings_of_real_servers_are_received_within_tls() {
    if let Some(server) = Proftpd::with_tls() {
        for name in ["a", "sub/b"] {
            server.file(&format!("d/{name}"), name.as_bytes());
        }
        let ca = server.ca();
        fetched(get().args(["--cacert", ca.to_str().unwrap()]), &server.tls_url("d/"));
    }
    let Some(site) = GsiSite::start() else { return };
    for name in ["a", "sub/b"] {
        site.globus.file(&format!("d/{name}"), name.as_bytes());
    }
    fetched(with_env(get().args(["--encrypt"]), site.env()), &site.url("d/"));
}
