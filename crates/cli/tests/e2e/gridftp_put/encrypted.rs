//! Encrypted uploads: ftps:// to vsftpd and proftpd, and gsiftp:// with `--encrypt`.

use super::{held, leftovers, put};
use crate::support::{Get, GsiSite, Proftpd, Vsftpd, content, get, same, with_credentials};

#[test]
fn vsftpd_gets_files_of_any_size_within_tls() {
    let Some(server) = Vsftpd::with_tls() else { return };
    for (size, seed) in [(0, 1), (1, 2), ((9 << 20) + 5, 3)] {
        for reader in ["sendfile", "direct"] {
            let bytes = content(size, seed);
            let args = ["--cacert", &server.ca(), "--reader", reader, "f", &server.tls_url("g")];
            put(&bytes).args(args).run().ok();
            same(server.path("g"), &bytes);
            assert_eq!(leftovers(&server), [""; 0]);
        }
    }
    assert!(server.log().contains("PROT P"), "{}", server.log());
}

#[test]
fn encrypted_gsi_upload_is_compared_resumed_and_repaired() {
    let Some(site) = GsiSite::start() else { return };
    let bytes = content(16 << 20, 5);
    let run = with_credentials(put(&bytes), site.env());
    let run = run.args(["--encrypt", "--streams", "2", "--limit", "80Mbit", "f", &site.url("g")]);
    let mut running = run.start();
    running.until("a part is stored", || held(&site.globus) > 6 << 20);
    running.signal(rustix::process::Signal::KILL);
    running.end();
    let done = run.again(["--encrypt", "--json", "f", &site.url("g")]).run().ok().done();
    same(site.globus.path("g"), &bytes);
    assert!(done["digest"].as_str().unwrap().starts_with("sha256:"), "{done}");
    let sent = site.globus.logged(1, |transfer| transfer.kind == "ESTO" && transfer.code == 226);
    assert!(sent[0].bytes < 14 << 20, "nearly all was sent again: {sent:?}");
    for size in [0, 1] {
        let run = with_credentials(put(&content(size, 6)), site.env());
        run.args(["--encrypt", "f", &site.url("small")]).run().ok();
        same(site.globus.path("small"), &content(size, 6));
    }
}

#[test]
fn listings_of_real_servers_are_received_within_tls() {
    let (Some(server), Some(site)) = (Proftpd::with_tls(), GsiSite::start()) else { return };
    let fetch = |run: Get, url: &str| {
        let run = run.args(["-r", "-o", "t", url]);
        run.run().ok();
        ["a", "sub/b"].iter().for_each(|name| same(run.path(format!("t/{name}")), name.as_bytes()));
    };
    for name in ["a", "sub/b"] {
        server.file(&format!("d/{name}"), name.as_bytes());
        site.globus.file(&format!("d/{name}"), name.as_bytes());
    }
    fetch(get().args(["--cacert", &server.ca()]), &server.tls_url("d/"));
    fetch(with_credentials(get().args(["--encrypt"]), site.env()), &site.url("d/"));
}
