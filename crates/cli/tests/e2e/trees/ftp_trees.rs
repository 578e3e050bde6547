//! Directory trees of real FTP and GridFTP servers, listed by MLSD.

use std::fs;
use std::os::unix::fs::symlink;

use super::{fetch_all, put_all, tree_without};
use crate::support::{Globus, Proftpd, Vsftpd, get, same};

/// Before the last change of the files: a server that keeps times shows any difference.
const EARLIER: u64 = 900_000_000;

/// Returns the absolute path of `name` as a URL (RFC 1738, section 3.2.2).
fn url(server: &Globus, name: &str) -> String {
    format!("ftp://127.0.0.1:{}/{}", server.port(), server.path(name).display())
}

#[test]
fn globus() {
    let Some(server) = Globus::start() else { return };
    let tree = server.path("t");
    // Globus strips non-ASCII bytes from the paths of commands.
    let files = tree_without(&tree, &["\u{fc}\u{20ac}"]);
    fs::rename(tree.join("dir with space & \u{fc}"), tree.join("dir with space &")).unwrap();
    fetch_all(&url(&server, "t/"), &tree, files);
    put_all(&url(&server, "new/place/"), &server.path("new/place"), EARLIER);
    get().args(["-r", &url(&server, "missing/")]).run().fails(66, &["MLSD", "missing"]);

    // A loop of links to a parent directory ends.
    fs::create_dir_all(server.path("l/sub")).unwrap();
    fs::write(server.path("l/sub/f"), "f").unwrap();
    symlink("..", server.path("l/sub/up")).unwrap();
    let run = get().args(["-r", "-o", "t", &url(&server, "l/")]);
    let ended = run.run();
    assert_eq!(ended.status.code(), Some(65), "{ended:?}");
    assert!(ended.stderr.contains("a directory that it lies in"), "{ended:?}");
    same(run.path("t/sub/f"), b"f");
    // Listings do not name the root: the loop is detected at the second visit of a directory.
    assert!(!run.path("t/sub/up/sub").exists());
}

#[test]
fn proftpd() {
    let Some(server) = Proftpd::start() else { return };
    let files = tree_without(&server.path("t"), &[]);
    fetch_all(&server.url("t/"), &server.path("t"), files);
    let url = format!("ftp://ann:secret%20word@127.0.0.1:{}/new/place/", server.port());
    put_all(&url, &server.path("new/place"), EARLIER);
}

#[test]
fn server_without_mlsd_is_named() {
    let Some(server) = Vsftpd::start() else { return };
    get().args(["-r", "-o", "t", &server.url("")]).run().fails(76, &["refused MLSD"]);
}
