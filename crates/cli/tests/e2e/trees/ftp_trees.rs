//! Directory trees of real FTP and GridFTP servers, listed by MLSD.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use crate::support::{
    Globus, Proftpd, Vsftpd, age, assert_equal, fetched_and_unchanged, get, make_tree, many_files, put,
};

/// Fetches a tree of `files` files twice: the second run fetches only changed files.
fn fetch_all(url: &str, tree: &Path, files: usize) {
    let run = get().args(["-r", "-o", "t", url]);
    run.run().ok();
    assert_equal(tree, &run.path("t"));
    assert_eq!(fs::metadata(run.path("t/a b")).unwrap().mtime(), 1_000_000_000);
    fs::remove_file(run.path("t/sub/zero")).unwrap();
    let run = run.again(["-r", "--json", "-o", "t", url]);
    let (fetched, unchanged) = fetched_and_unchanged(&run.run().ok());
    assert_eq!((fetched, unchanged.len()), (vec!["zero".to_owned()], files - 1));
    assert_equal(tree, &run.path("t"));
}

/// Returns the absolute path of `name` as a URL (RFC 1738, section 3.2.2).
fn url(server: &Globus, name: &str) -> String {
    format!("ftp://127.0.0.1:{}/{}", server.port(), server.path(name).display())
}

#[test]
fn globus() {
    let Some(server) = Globus::start() else { return };
    let tree = server.path("t");
    make_tree(&tree);
    // Globus strips non-ASCII bytes from the paths of commands.
    fs::rename(tree.join("dir with space & \u{fc}"), tree.join("dir with space &")).unwrap();
    ["", "dir with space &"]
        .iter()
        .for_each(|directory| fs::remove_file(tree.join(directory).join("\u{fc}\u{20ac}")).unwrap());
    fetch_all(&url(&server, "t/"), &tree, 18);
}

#[test]
fn proftpd() {
    let Some(server) = Proftpd::start() else { return };
    make_tree(&server.path("t"));
    fetch_all(&server.url("t/"), &server.path("t"), 20);
}

/// Sends a tree twice: the second run sends only changed files.
fn put_all(url: &str, there: &Path) {
    let run = put().args(["-r", "t", url]);
    many_files(&run.path("t"), 40);
    fs::create_dir(run.path("t/empty")).unwrap();
    run.run().ok();
    assert_equal(&run.path("t"), there);
    fs::write(run.path("t/d1/f1"), "changed").unwrap();
    age(&run.path("t/d2"), 900_000_000);
    let run = run.again(["--json", "-r", "t", url]);
    let (sent, unchanged) = fetched_and_unchanged(&run.run().ok());
    assert_eq!((sent.len(), unchanged.len()), (14, 26), "{sent:?}");
    assert_equal(&run.path("t"), there);
}

#[test]
fn put_to_globus() {
    let Some(server) = Globus::start() else { return };
    put_all(&url(&server, "new/place/"), &server.path("new/place"));
}

#[test]
fn put_to_proftpd() {
    let Some(server) = Proftpd::start() else { return };
    let url = format!("ftp://ann:secret%20word@127.0.0.1:{}/new/place/", server.port());
    put_all(&url, &server.path("new/place"));
}

#[test]
fn loop_of_links_to_a_parent_directory_ends() {
    let Some(server) = Globus::start() else { return };
    fs::create_dir_all(server.path("t/sub")).unwrap();
    fs::write(server.path("t/sub/f"), "f").unwrap();
    symlink("..", server.path("t/sub/up")).unwrap();
    let run = get().args(["-r", "-o", "t", &url(&server, "t/")]);
    let ended = run.run();
    assert_eq!(ended.status.code(), Some(65), "{ended:?}");
    assert!(ended.stderr.contains("a directory that it lies in"), "{ended:?}");
    assert_eq!(fs::read(run.path("t/sub/f")).unwrap(), b"f");
    // Listings do not name the root: the loop is detected at the second visit of a directory.
    assert!(!run.path("t/sub/up/sub").exists());
}

#[test]
fn missing_directory_and_server_without_mlsd_are_named() {
    if let Some(server) = Globus::start() {
        get().args(["-r", &url(&server, "missing/")]).run().fails(66, &["MLSD", "missing"]);
    }
    if let Some(server) = Vsftpd::start() {
        let run = get().args(["-r", "-o", "t", &server.url("")]);
        run.run().fails(76, &["refused MLSD"]);
    }
}
