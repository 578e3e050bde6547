//! ftps:// from vsftpd, which requires session resumption on data connections, and from proftpd;
//! and what is not seen on the wire.

use crate::support::{
    Get, GsiSite, Proftpd, Vsftpd, content, get, in_own_network, packets_with, same, with_credentials,
};

/// Both refuse unencrypted data connections.
#[test]
fn vsftpd_and_proftpd_are_fetched_from_within_tls() {
    let bytes = content((24 << 20) + 321, 1);
    for server in [Vsftpd::with_tls(), Proftpd::with_tls()].into_iter().flatten() {
        server.file("f", &bytes);
        for streams in ["1", "4"] {
            let run = get().args(["--cacert", &server.ca(), "--streams", streams]);
            run.args(["-o", "f", &server.tls_url("f")]).fetches(&bytes);
        }
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
        get().args(["-o", "f", &url]).fails_unnamed(code, words);
        assert!(!server.log().contains(unsent), "{}", server.log());
    }
}

/// Creates 2 MiB of repeated `text`: every packet of unencrypted data contains it.
fn repeated(text: &str) -> Vec<u8> {
    text.bytes().cycle().take(2 << 20).collect()
}

fn put(bytes: &[u8]) -> Get {
    crate::support::put().args(["f"]).file("f", bytes)
}

#[test]
fn file_and_password_cross_the_network_in_clear_only_without_tls() {
    in_own_network(|| {
        let (Some(tls), Some(clear)) = (Proftpd::with_tls(), Proftpd::start()) else { return };
        let text = "what only a user of proftpd may read, ";
        let bytes = repeated(text);
        for (server, url, secret, is_seen) in [
            (&tls, tls.tls_url("f"), text, false),
            (&tls, tls.tls_url("f"), "secret word", false),
            (&clear, clear.url("f"), text, true),
            (&clear, clear.url("f"), "secret word", true),
        ] {
            let login = ["--cacert", &tls.ca(), "-u", "ann:secret word"];
            assert_eq!(packets_with(secret, &put(&bytes).args([&url]).args(login)) > 0, is_seen, "put {url}");
            same(server.path("f"), &bytes);
            let run = get().args(login).args(["-o", "f", &url]);
            assert_eq!(packets_with(secret, &run) > 0, is_seen, "get {url}");
            same(run.path("f"), &bytes);
        }
    });
}

#[test]
fn gsi_encrypts_files_only_with_the_option() {
    in_own_network(|| {
        let Some(site) = GsiSite::start() else { return };
        let text = "what only Ann may read, ";
        let bytes = repeated(text);
        // Slow enough for every connection to get a part.
        let several = ["--streams", "3", "--limit", "60Mbit"];
        for (streams, options) in [(1, &["--streams", "1"][..]), (3, &several)] {
            for encrypt in [&[][..], &["--encrypt"]] {
                let log = site.globus.log().len();
                let of_ann = |run: Get| with_credentials(run, site.env()).args(options).args(encrypt);
                let (name, count) = ("f", site.globus.transfers().len());
                let sent = packets_with(text, &of_ann(put(&bytes)).args([site.url(name)]));
                same(site.globus.path(name), &bytes);
                let run = of_ann(get()).args(["-o", "f", &site.url(name)]);
                let received = packets_with(text, &run);
                same(run.path("f"), &bytes);
                let is_seen = encrypt.is_empty();
                assert_eq!((sent > 0, received > 0), (is_seen, is_seen), "{streams} streams, {encrypt:?}");
                let logged = site.globus.logged(count + 2, |transfer| transfer.code == 226);
                assert!(logged[count..].iter().all(|transfer| transfer.streams == streams), "{logged:?}");
                let log = &site.globus.log()[log..];
                for command in ["Protection level set to P.", "200 DCAU A."] {
                    assert_eq!(log.contains(command), !is_seen, "{command}: {log}");
                }
                // PROT is never sent without the option: the data would cross the network in clear
                // anyway.
                assert_eq!((log.contains("DCAU N"), log.contains("PROT P")), (is_seen, !is_seen), "{log}");
            }
        }
    });
}
