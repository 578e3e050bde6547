//! `--encrypt`: encrypted data, or no data at all.

use std::fs;

use crate::gridftp_security::credentials::get_with;
use crate::support::{Globus, GsiSite, longhaul};

#[test]
fn unencrypted_protocols_are_refused() {
    let mirrored = ["--mirror", "http://localhost:1/f", "https://localhost:1/f"];
    for (command, operands, words) in [
        ("get", &["ftp://localhost:1/f"][..], ["ftp://localhost:1/f", "ftps://"]),
        ("get", &["http://localhost:1/f"], ["http://localhost:1/f", "https://"]),
        ("get", &mirrored, ["http://localhost:1/f", ""]),
        ("put", &["f", "ftp://localhost:1/f"], ["ftp://localhost:1/f", "ftps://"]),
        ("put", &["f", "http://localhost:1/f"], ["http://localhost:1/f", "ftps://"]),
    ] {
        let run = longhaul(command).args(["--encrypt"]).args(operands);
        fs::write(run.path("f"), "x").unwrap();
        run.run().fails(64, &words);
    }
}

#[test]
fn server_without_gsi_is_not_taken_for_one_that_has_it() {
    let (Some(globus), Some(site)) = (Globus::start(), GsiSite::start()) else { return };
    globus.file("f", b"hello");
    let url = globus.url("f").replace("ftp:", "gsiftp:").replace("127.0.0.1", "localhost");
    let run = get_with(site.env(), &["--encrypt"], &url);
    let ended = run.run();
    assert!(!ended.status.success(), "{ended:?}");
    assert!(!run.path("f").exists());
    assert!(globus.transfers().is_empty());
}
