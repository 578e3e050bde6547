//! `--encrypt`: encrypted data, or no data at all.

use crate::gridftp_security::credentials::get_with;
use crate::support::{Globus, GsiSite, get};

#[test]
fn unencrypted_protocols_are_refused() {
    let mirrored = ["--mirror", "http://localhost:1/f", "https://localhost:1/f"];
    for (urls, words) in [
        (&["ftp://localhost:1/f"][..], ["ftp://localhost:1/f", "ftps://"]),
        (&["http://localhost:1/f"], ["http://localhost:1/f", "https://"]),
        (&mirrored, ["http://localhost:1/f", ""]),
    ] {
        get().args(["--encrypt", "-o", "f"]).args(urls).run().fails(64, &words);
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
