//! `--checksum server`: the server's digest, by CKSM or in the response.

use crate::support::{Globus, Nginx, Scripted, content, get, same};

const SIZE: usize = (3 << 20) + 99;

/// Features of a server that computes MD5.
const FEATURES: &str =
    "211-Extensions\r\n PARALLEL\r\n ERET\r\n SIZE\r\n MDTM\r\n CKSM MD5:10;\r\n EPRT\r\n211 End";

/// Serves a file, and answers CKSM with `reply`.
fn stating(reply: &'static str) -> (Scripted, Vec<u8>) {
    let bytes = content(SIZE, 11);
    let server = Scripted::new(bytes.clone(), move |session, command| {
        match command.verb.as_str() {
            "FEAT" => session.reply(FEATURES),
            "CKSM" => session.reply(reply),
            _ => return false,
        }
        true
    });
    (server, bytes)
}

#[test]
fn the_digest_that_globus_computes_is_compared() {
    let Some(globus) = Globus::start() else { return };
    let bytes = content(SIZE, 12);
    globus.file("f", &bytes);
    let run = get().args(["--json", "--checksum", "server", "-o", "f", &globus.url("f")]);
    let digest = run.run().ok().done()["digest"].as_str().unwrap().to_owned();
    assert!(digest.starts_with("sha256:"), "{digest}");
    same(run.path("f"), &bytes);
    let run = get().args(["--checksum", &digest, "-o", "f", &globus.url("f")]);
    run.run().ok();
}

#[test]
fn a_digest_that_the_bytes_do_not_have_is_a_data_error() {
    let (server, _) = stating("213 00000000000000000000000000000000");
    let run = get().args(["--checksum", "server", "-o", "f", &server.url()]);
    run.run().fails(65, &["md5:00000000000000000000000000000000"]);
    assert!(!run.path("f").exists());
    assert!(
        server.commands().iter().any(|(_, command)| command == "CKSM MD5 0 -1 /dir/file"),
        "{:?}",
        server.commands()
    );
}

#[test]
fn a_server_that_does_not_state_the_digest_that_it_offers_fails() {
    for (reply, code, word) in [("213 12", 65, "states no"), ("500 failed", 76, "refused CKSM")] {
        let (server, _) = stating(reply);
        let run = get().args(["--checksum", "server", "-o", "f", &server.url()]);
        run.run().fails(code, &[word]);
        assert!(!run.path("f").exists());
    }
}

#[test]
fn a_server_without_digests_fails_before_the_transfer() {
    let server = Scripted::honest(content(SIZE, 13));
    let run = get().args(["--checksum", "server", "-o", "f", &server.url()]);
    run.run().fails(65, &["states no digest", "--checksum ALG:HEX"]);
    assert_eq!(server.count("ERET"), 0, "{:?}", server.commands());
    assert!(!run.path("f").exists());
    let Some(site) = Nginx::start() else { return };
    site.file("f", &content(SIZE, 14));
    let run = get().args(["--checksum", "server", "-o", "f", &site.url("/f")]);
    run.run().fails(65, &["states no digest"]);
}
