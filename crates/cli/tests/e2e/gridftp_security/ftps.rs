//! ftps:// from vsftpd, which requires session resumption on data connections, and from proftpd.

use crate::support::{FtpSite, Proftpd, Vsftpd, content, get, partial_files, same};

/// Fetches a file over one and over four connections.
#[track_caller]
fn fetch(server: &FtpSite) {
    let bytes = content((24 << 20) + 321, 1);
    server.file("f", &bytes);
    for streams in ["1", "4"] {
        let run =
            get().args(["--cacert", &server.ca(), "--streams", streams, "-o", "f", &server.tls_url("f")]);
        run.run().ok();
        same(run.path("f"), &bytes);
        assert!(partial_files(run.dir()).is_empty());
    }
}

#[test]
fn vsftpd_and_proftpd_are_fetched_from_within_tls() {
    if let Some(server) = Vsftpd::with_tls() {
        fetch(&server);
        assert!(server.log().contains("PROT P"), "{}", server.log());
    }
    if let Some(server) = Proftpd::with_tls() {
        fetch(&server);
    }
}

#[test]
fn unknown_authority_is_refused_before_the_login() {
    let (Some(server), Some(other)) = (Vsftpd::with_tls(), Vsftpd::with_tls()) else { return };
    server.file("f", b"secret");
    for (options, word) in [(&[][..], "does not trust"), (&["--cacert", &other.ca()], "certificate")] {
        let run = get().args(options).args(["-o", "f", &server.tls_url("f")]);
        run.run().fails(76, &[word, "--cacert"]);
        assert!(!server.log().contains("\"USER"), "{}", server.log());
    }
}

#[test]
fn scheme_is_neither_upgraded_nor_downgraded() {
    let (Some(plain), Some(tls)) = (Vsftpd::start(), Vsftpd::with_tls()) else { return };
    for (server, url, code, words, unsent) in [
        (&plain, plain.tls_url("f"), 76, &["does not encrypt", "ftp://"][..], "\"USER"),
        (&tls, tls.url("f"), 77, &["refused the login"], "AUTH"),
    ] {
        server.file("f", b"secret");
        let run = get().args(["-o", "f", &url]);
        run.run().fails(code, words);
        assert!(!run.path("f").exists());
        assert!(!server.log().contains(unsent), "{}", server.log());
    }
}
