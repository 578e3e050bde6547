//! ftps:// from vsftpd, which requires session resumption on data connections, and from proftpd.

use crate::gridftp_security::encrypted_data::{repeated, seen};
use crate::support::{Proftpd, Vsftpd, content, get, partial_files, same};

const SIZE: usize = (24 << 20) + 321;

/// Fetches `url` over one and over four connections.
fn fetched(url: &str, ca: &str, bytes: &[u8]) {
    for streams in ["1", "4"] {
        let run = get().args(["--cacert", ca, "--streams", streams, "-o", "f", url]);
        run.run().ok();
        same(run.path("f"), bytes);
        assert!(partial_files(run.dir()).is_empty());
    }
}

#[test]
fn vsftpd_is_fetched_from_within_tls() {
    let Some(server) = Vsftpd::with_tls() else { return };
    let bytes = content(SIZE, 1);
    server.file("f", &bytes);
    fetched(&server.tls_url("f"), server.ca().to_str().unwrap(), &bytes);
    assert!(server.log().contains("PROT P"), "{}", server.log());
}

#[test]
fn proftpd_is_fetched_from_within_tls() {
    let Some(server) = Proftpd::with_tls() else { return };
    let bytes = content(SIZE, 2);
    server.file("f", &bytes);
    fetched(&server.tls_url("f"), server.ca().to_str().unwrap(), &bytes);
}

#[test]
fn neither_password_nor_data_crosses_the_network_in_clear() {
    let Some(server) = Proftpd::with_tls() else { return };
    let text = "what only a user of proftpd may read, ";
    let bytes = repeated(text);
    server.file("f", &bytes);
    let ca = server.ca();
    let fetch = || {
        get().args([
            "--cacert",
            ca.to_str().unwrap(),
            "-u",
            "ann:secret word",
            "-o",
            "f",
            &server.tls_url("f"),
        ])
    };
    for secret in [text, "secret word"] {
        let run = fetch();
        let Some(seen) = seen(&run, secret) else { return };
        same(run.path("f"), &bytes);
        assert_eq!(seen, 0, "{secret}");
    }
    let Some(clear) = Proftpd::start() else { return };
    clear.file("f", &bytes);
    // The kernel drops packets if the sniffer is late; other tests' data is among them.
    assert!((0..5).any(|_| {
        let run = get().args(["-u", "ann:secret word", "-o", "f", &clear.url("f")]);
        seen(&run, "secret word").is_none_or(|seen| seen > 0)
    }));
}

#[test]
fn an_unknown_authority_is_refused_before_the_login() {
    let bytes = content(1000, 3);
    let Some(vsftpd) = Vsftpd::with_tls() else { return };
    vsftpd.file("f", &bytes);
    get().args(["-o", "f", &vsftpd.tls_url("f")]).run().fails(76, &["does not trust", "--cacert"]);
    assert!(!vsftpd.log().contains("\"USER"), "{}", vsftpd.log());
    let Some(other) = Proftpd::with_tls() else { return };
    let ca = other.ca();
    let args = ["--cacert", ca.to_str().unwrap(), "-o", "f", &vsftpd.tls_url("f")];
    get().args(args).run().fails(76, &["certificate", "--cacert"]);
    assert!(!vsftpd.log().contains("\"USER"), "{}", vsftpd.log());
}

#[test]
fn a_scheme_is_neither_upgraded_nor_downgraded() {
    let bytes = content(1000, 4);
    let Some(plain) = Vsftpd::start() else { return };
    plain.file("f", &bytes);
    let run = get().args(["-o", "f", &plain.tls_url("f")]);
    run.run().fails(76, &["does not encrypt", "ftp://"]);
    assert!(!run.path("f").exists());
    assert!(!plain.log().contains("\"USER"), "{}", plain.log());
    let Some(tls) = Vsftpd::with_tls() else { return };
    tls.file("f", &bytes);
    get().args(["-o", "f", &tls.url("f")]).run().fails(77, &["refused the login"]);
    assert!(!tls.log().contains("AUTH"), "{}", tls.log());
}
