//! Plain FTP servers: one stream, and the size instead of checksums.

use super::{leftovers, put};
use crate::support::{DataAction, FtpRelay, Globus, Proftpd, Vsftpd, content, same};

#[test]
fn vsftpd_stores_a_file_and_no_digest_is_claimed() {
    let Some(server) = Vsftpd::start() else { return };
    for (size, seed) in [(0, 1), ((3 << 20) + 5, 2)] {
        let bytes = content(size, seed);
        let done = put(&bytes).args(["--json", "f", &server.url("g")]).run().ok().done();
        same(server.path("g"), &bytes);
        assert_eq!(leftovers(&server), [""; 0]);
        assert!(done["digest"].is_null(), "{done}");
    }
    put(b"x").args(["f", &server.url("no/g")]).run().fails(73, &["the directory must exist"]);
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
