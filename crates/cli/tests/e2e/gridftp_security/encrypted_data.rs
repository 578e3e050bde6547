//! `--encrypt`: encrypted data, or no data at all.

use crate::gridftp_security::credentials::get_with;
use crate::gridftp_security::sniffer::Sniffer;
use crate::support::{Get, Globus, GsiSite, get, same};

/// Creates 8 MiB of repeated `text`: every packet of unencrypted data contains it.
pub(crate) fn repeated(text: &str) -> Vec<u8> {
    text.bytes().cycle().take(8 << 20).collect()
}

/// Runs a `get` that must succeed; returns the number of packets on this host that contain `text`.
pub(crate) fn seen(run: &Get, text: &str) -> Option<usize> {
    let sniffer = Sniffer::start(text)?;
    run.run().ok();
    Some(sniffer.found())
}

#[test]
fn data_is_encrypted_only_with_the_option() {
    let Some(site) = GsiSite::start() else { return };
    let text = "what only Ann may read, ";
    let bytes = repeated(text);
    site.globus.file("f", &bytes);
    for (streams, args) in
        [(2, &["--streams", "2"][..]), (2, &["--streams", "2", "--encrypt"]), (1, &["--encrypt"])]
    {
        let encrypted = args.contains(&"--encrypt");
        let run = get_with(site.env(), &[args, &["--json"]].concat(), &site.url("f"));
        let Some(seen) = seen(&run, text) else { return };
        same(run.path("f"), &bytes);
        assert_eq!(seen == 0, encrypted, "{seen} packets with {args:?}");
        site.globus.logged(1, |transfer| transfer.streams == streams && transfer.code == 226);
        let log = site.globus.log();
        assert_eq!(log.contains("Protection level set to P."), encrypted, "{log}");
        assert_eq!(log.contains("200 DCAU A."), encrypted, "{log}");
    }
}

#[test]
fn unencrypted_protocols_are_refused() {
    get()
        .args(["--encrypt", "-o", "f", "ftp://localhost:1/f"])
        .run()
        .fails(64, &["ftp://localhost:1/f", "ftps://"]);
    get()
        .args(["--encrypt", "-o", "f", "http://localhost:1/f"])
        .run()
        .fails(64, &["http://localhost:1/f", "https://"]);
    let mirror = ["--encrypt", "-o", "f", "--mirror", "http://localhost:1/f", "https://localhost:1/f"];
    get().args(mirror).run().fails(64, &["http://localhost:1/f"]);
}

#[test]
fn a_server_without_gsi_is_not_taken_for_one_that_has_it() {
    let Some(globus) = Globus::start() else { return };
    globus.file("f", b"hello");
    let Some(site) = GsiSite::start() else { return };
    let url = globus.url("f").replace("ftp:", "gsiftp:").replace("127.0.0.1", "localhost");
    let run = get_with(site.env(), &["--encrypt"], &url);
    let ended = run.run();
    assert!(!ended.status.success(), "{ended:?}");
    assert!(!run.path("f").exists());
    assert!(globus.transfers().is_empty());
}
