//! `--checksum server`: the server's digest, by CKSM or in the response.

use crate::support::{Globus, Nginx, Scripted, content, get, same};

const SIZE: usize = (3 << 20) + 99;

/// Features of a server that computes MD5.
const FEATURES: &str =
    "211-Extensions\r\n PARALLEL\r\n ERET\r\n SIZE\r\n MDTM\r\n CKSM MD5:10;\r\n EPRT\r\n211 End";

#[test]
fn digest_that_globus_computes_is_compared() {
    let Some(globus) = Globus::start() else { return };
    let bytes = content(SIZE, 12);
    globus.file("f", &bytes);
    let run = get().args(["--json", "--checksum", "server", "-o", "f", &globus.url("f")]);
    let digest = run.run().ok().done()["digest"].as_str().unwrap().to_owned();
    assert!(digest.starts_with("sha256:"), "{digest}");
    same(run.path("f"), &bytes);
    get().args(["--checksum", &digest, "-o", "f", &globus.url("f")]).run().ok();
}

#[test]
fn digest_that_is_wrong_or_not_stated_fails() {
    let zero = "0".repeat(32);
    for (reply, code, word) in [
        (&*format!("213 {zero}"), 65, &*format!("md5:{zero}")),
        ("213 12", 65, "states no"),
        ("500 failed", 76, "refused CKSM"),
    ] {
        let server = Scripted::answering(content(SIZE, 11), [("FEAT", FEATURES), ("CKSM", reply)]);
        let run = get().args(["--checksum", "server", "-o", "f", &server.url()]);
        run.run().fails(code, &[word]);
        assert!(!run.path("f").exists());
        let commands = server.commands();
        assert!(commands.iter().any(|(_, sent)| sent == "CKSM MD5 0 -1 /dir/file"), "{commands:?}");
    }
}

#[test]
fn server_without_digests_fails_before_the_transfer() {
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
