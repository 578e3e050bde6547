//! Uploads to Globus, vsftpd and proftpd: content, number of connections, encryption, and
//! compatibility with other programs.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, SystemTime};

use rustix::process::Signal;

use super::{held, leftovers, put};
use crate::support::{
    DataAction, FtpRelay, Get, Globus, GsiSite, Proftpd, Vsftpd, content, get, same, with_credentials,
};

#[test]
fn file_arrives_over_as_many_connections_as_asked_with_its_time_and_a_compared_digest() {
    let Some(globus) = Globus::start() else { return };
    let bytes = content((12 << 20) + 17, 1);
    // The limit gives every connection a part before the first has sent everything.
    let put = put(&bytes).args(["--streams", "4", "--limit", "80Mbit", "--json", "f", &globus.url("g")]);
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    fs::File::options().write(true).open(put.path("f")).unwrap().set_modified(time).unwrap();
    let done = put.run().ok().done();
    same(globus.path("g"), &bytes);
    assert_eq!(fs::metadata(globus.path("g")).unwrap().modified().unwrap(), time);
    assert_eq!(leftovers(&globus), [""; 0]);
    assert_eq!(done["bytes"].as_u64(), Some(bytes.len() as u64));
    assert!(done["digest"].as_str().unwrap().starts_with("sha256:"), "{done}");
    let stored = globus.logged(1, |transfer| transfer.kind == "STOR");
    assert_eq!((stored[0].streams, stored[0].bytes, stored[0].code), (4, bytes.len() as u64, 226));
}

#[test]
fn files_of_any_size_arrive_and_replace_what_is_there_and_checksums_can_be_left_out() {
    let Some(globus) = Globus::start() else { return };
    let unverified: &[&str] = &["--no-verify"];
    for (size, options) in
        [(1, unverified), (1 << 20, unverified), (0, &[]), (100_000, &[]), ((3 << 20) + 1, &[])]
    {
        let bytes = content(size, size as u64);
        let ended = put(&bytes).args(options).args(["--json", "f", &globus.url("g")]).run().ok();
        same(globus.path("g"), &bytes);
        let is_verified = options.is_empty();
        assert_eq!(globus.log().contains("CKSM SHA256"), is_verified, "{size} bytes");
        assert_eq!(ended.stdout.contains("sha256:"), is_verified, "{ended:?}");
    }
}

#[test]
fn several_files_go_into_a_directory_over_one_session() {
    let Some(globus) = Globus::start() else { return };
    let put = put(b"first").file("g h", b"second");
    put.args(["--parallel", "1", "f", "g h", &globus.url("")]).run().ok();
    same(globus.path("f"), b"first");
    same(globus.path("g h"), b"second");
    assert_eq!(globus.log().matches("USER anonymous").count(), 1, "logins of two files");
}

#[test]
fn globus_url_copy_fetches_what_was_put_and_get_what_it_has_put() {
    let Some(globus) = Globus::start() else { return };
    let bytes = content(6 << 20, 6);
    let put = put(&bytes).args(["f", &globus.url("ours")]);
    put.run().ok();
    let copy = |from: &str, to: &str| {
        let output = Command::new("globus-url-copy").args(["-p", "3", from, to]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    copy(&globus.url("ours"), &format!("file://{}", put.path("fetched").display()));
    same(put.path("fetched"), &bytes);
    copy(&format!("file://{}", put.path("f").display()), &globus.url("theirs"));
    let get = get().args(["-o", "theirs", &globus.url("theirs")]);
    get.run().ok();
    same(get.path("theirs"), &bytes);
}

#[test]
fn missing_directory_and_forbidden_one_are_named() {
    let Some(globus) = Globus::start() else { return };
    for (name, mode) in [("closed", 0o555), ("d", 0o755)] {
        fs::create_dir(globus.path(name)).unwrap();
        fs::set_permissions(globus.path(name), Permissions::from_mode(mode)).unwrap();
    }
    for (name, code, words) in
        [("no/f", 73, &["STOR", "MKD"][..]), ("closed/f", 77, &["may not write"]), ("d", 73, &[])]
    {
        put(b"x").args(["f", &globus.url(name)]).run().fails(code, words);
    }
}

#[test]
fn tuners_choose_the_number_of_connections() {
    let Some(globus) = Globus::start() else { return };
    let bytes = content(24 << 20, 8);
    for tuner in ["auto", "apt"] {
        put(&bytes).args(["--tuner", tuner, "f", &globus.url(tuner)]).run().ok();
        same(globus.path(tuner), &bytes);
    }
}

#[test]
fn vsftpd_stores_files_of_any_size_also_within_tls_and_no_digest_is_claimed() {
    let (Some(plain), Some(tls)) = (Vsftpd::start(), Vsftpd::with_tls()) else { return };
    for (server, url) in [(&plain, plain.url("")), (&tls, tls.tls_url(""))] {
        for (size, reader) in [0, 1, (9 << 20) + 5].into_iter().flat_map(|s| [(s, "sendfile"), (s, "direct")])
        {
            let bytes = content(size, 1);
            let args = ["--json", "--cacert", &server.ca(), "--reader", reader, "f", &format!("{url}g")];
            let done = put(&bytes).args(args).run().ok().done();
            same(server.path("g"), &bytes);
            assert_eq!(leftovers(server), [""; 0]);
            assert!(done["digest"].is_null(), "{done}");
        }
    }
    assert!(tls.log().contains("PROT P"), "{}", tls.log());
    put(b"x").args(["f", &plain.url("no/g")]).run().fails(73, &["the directory must exist"]);
}

#[test]
fn proftpd_stores_a_file_of_a_user_with_a_password() {
    let Some(server) = Proftpd::start() else { return };
    let bytes = content((2 << 20) + 1, 3);
    let url = server.url("g").replace("ftp://", "ftp://ann:secret%20word@");
    for _ in 0..2 {
        put(&bytes).args(["f", &url]).run().ok();
        same(server.path("g"), &bytes);
    }
    put(b"x").args(["f", &url.replace("secret", "wrong")]).run().fails(77, &[]);
    let Some(globus) = Globus::start() else { return };
    let url = globus.url("g").replace("ftp://", "ftp://ann:x@");
    put(b"x").args(["f", &url]).run().fails(77, &[]);
}

#[test]
fn broken_stream_resumes_at_the_size_on_the_server() {
    let Some(server) = Vsftpd::start() else { return };
    let bytes = content(8 << 20, 4);
    let relay = FtpRelay::new(server.port(), |number, offset, _| {
        if number == 0 && offset >= 4 << 20 { DataAction::Cut } else { DataAction::Pass }
    });
    put(&bytes).args(["f", &relay.url(&server.url("g"))]).run().ok();
    same(server.path("g"), &bytes);
    assert!(server.log().contains("REST "), "it began again: {}", server.log());
}

#[test]
fn encrypted_gsi_upload_is_compared_resumed_and_repaired() {
    let Some(site) = GsiSite::start() else { return };
    let bytes = content(16 << 20, 5);
    let run = with_credentials(put(&bytes), site.env());
    let run = run.args(["--encrypt", "--streams", "2", "--limit", "80Mbit", "f", &site.url("g")]);
    run.signalled(Signal::KILL, "a part is stored", || held(&site.globus) > 6 << 20);
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
