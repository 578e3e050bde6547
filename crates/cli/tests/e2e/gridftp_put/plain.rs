//! Plain FTP servers: one stream, and the size instead of checksums.

use super::{leftovers, put};
use crate::support::{Globus, Proftpd, Vsftpd, content, same};

#[test]
fn vsftpd_stores_a_file_and_no_digest_is_claimed() {
    let Some(server) = Vsftpd::start() else { return };
    for (size, seed) in [(0, 1), ((3 << 20) + 5, 2)] {
        let bytes = content(size, seed);
        let ended = put(&bytes).args(["--json", "f", &server.url("g")]).run();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        same(server.path("g"), &bytes);
        assert_eq!(leftovers(&server.path("g")), [""; 0]);
        let done: serde_json::Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
        assert!(done["digest"].is_null(), "{done}");
    }
    let missing = put(b"x").args(["f", &server.url("no/g")]).run();
    assert_eq!(missing.status.code(), Some(73), "{}", missing.stderr);
    assert!(missing.stderr.contains("the directory must exist"), "{}", missing.stderr);
}

#[test]
fn proftpd_stores_a_file_of_a_user_with_a_password() {
    let Some(server) = Proftpd::start() else { return };
    let bytes = content((2 << 20) + 1, 3);
    let url = server.url("g").replace("ftp://", "ftp://ann:secret%20word@");
    for _ in 0..2 {
        let ended = put(&bytes).args(["f", &url]).run();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        same(server.path("g"), &bytes);
    }
    let wrong = put(b"x").args(["f", &url.replace("secret", "wrong")]).run();
    assert_eq!(wrong.status.code(), Some(77), "{}", wrong.stderr);
}

#[test]
fn broken_stream_resumes_at_the_size_on_the_server() {
    let Some(server) = Vsftpd::start() else { return };
    let bytes = content(8 << 20, 4);
    let relay = super::relay::Relay::new(server.port(), |number, offset, _| {
        if number == 0 && offset >= 4 << 20 {
            super::relay::DataAction::Cut
        } else {
            super::relay::DataAction::Pass
        }
    });
    let ended = put(&bytes).args(["f", &relay.url(&server.url("g"))]).run();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    same(server.path("g"), &bytes);
    assert!(server.log().contains("REST "), "it began again: {}", server.log());
}

#[test]
fn an_anonymous_globus_that_refuses_the_login_is_reported() {
    let Some(globus) = Globus::start() else { return };
    let url = globus.url("g").replace("ftp://", "ftp://ann:x@");
    let ended = put(b"x").args(["f", &url]).run();
    assert_eq!(ended.status.code(), Some(77), "{}", ended.stderr);
}
