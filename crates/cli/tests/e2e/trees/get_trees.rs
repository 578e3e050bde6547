//! Directory trees of real servers.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::support::{
    Apache, Nginx, Site, Writable, assert_equal, content, fetched_and_unchanged, get, make_tree, many_files,
    same,
};

fn modified(path: &Path) -> i64 {
    fs::metadata(path).unwrap().mtime()
}

#[test]
fn serve_with_every_awkward_name() {
    let server = Writable::hidden();
    make_tree(&server.path("t"));
    let run = get().args(["-r", &server.url("/t/")]);
    run.run().ok();
    assert_equal(&server.path("t"), &run.path("t"));
    assert_eq!(modified(&run.path("t/a b")), 1_000_000_000);

    // A repeated run fetches only missing and changed files.
    fs::remove_file(run.path("t/...")).unwrap();
    fs::write(server.path("t/a b"), "other").unwrap();
    let run = run.again(["-r", "--json", &server.url("/t/"), "-o", "t"]);
    let (fetched, unchanged) = fetched_and_unchanged(&run.run().ok());
    assert_eq!(fetched, ["...", "a%20b"]);
    assert_eq!(unchanged.len(), 18);
    assert_equal(&server.path("t"), &run.path("t"));
    let run = run.again(["-r", "--json", "--no-resume", &server.url("/t/")]);
    assert_eq!(fetched_and_unchanged(&run.run().ok()).0.len(), 20);
}

#[test]
fn directory_of_several_pages_and_a_name_that_is_no_text() {
    use std::os::unix::ffi::OsStrExt;
    let server = Writable::start();
    fs::create_dir(server.path("t")).unwrap();
    // More than the 10,000 entries of a page, most of them links to one file.
    fs::write(server.path("t/0"), "x").unwrap();
    (1..=10_050)
        .for_each(|number| fs::hard_link(server.path("t/0"), server.path(&format!("t/{number}"))).unwrap());
    fs::write(server.path("t").join(std::ffi::OsStr::from_bytes(b"\xff\n")), "y").unwrap();
    let run = get().args(["-r", "-q", &server.url("/t"), "--parallel", "64"]);
    fs::create_dir(run.path("t")).unwrap();
    // All but a few exist locally.
    for number in 0..=10_040 {
        let path = run.path(format!("t/{number}"));
        fs::write(&path, "x").unwrap();
        let time = fs::metadata(server.path("t/0")).unwrap().modified().unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    }
    run.run().ok();
    assert_equal(&server.path("t"), &run.path("t"));
}

#[test]
fn thousand_small_files() {
    let server = Writable::start();
    many_files(&server.path("t"), 1000);
    let run = get().args(["-r", &server.url("/t/"), "-o", "here/there"]);
    run.run().ok();
    assert_equal(&server.path("t"), &run.path("here/there"));
}

fn fetch_all(site: &Site, path: &str, tree: &Path) {
    let run = get().args(["-r", "-o", "t", &site.url(path)]);
    run.run().ok();
    assert_equal(tree, &run.path("t"));
    assert_eq!(modified(&run.path("t/a b")), 1_000_000_000);
    let run = run.again(["-r", "--json", "-o", "t", &site.url(path)]);
    let (fetched, unchanged) = fetched_and_unchanged(&run.run().ok());
    assert!(fetched.is_empty() && unchanged.len() > 10, "{fetched:?} {unchanged:?}");
}

#[test]
fn nginx_by_json_and_by_its_pages() {
    let Some(site) = Nginx::start() else { return };
    let tree = site.path("tree");
    make_tree(&tree);
    // nginx lists no hidden files, and serves an index file instead of a listing.
    for directory in [tree.clone(), tree.join("dir with space & \u{fc}")] {
        [".hidden", "...", "index.html"]
            .iter()
            .for_each(|name| fs::remove_file(directory.join(name)).unwrap());
    }
    fetch_all(&site, "/tree/", &tree);
    fetch_all(&site, "/pages/", &tree);
}

#[test]
fn apache_by_its_pages() {
    let Some(site) = Apache::start() else { return };
    let tree = site.path("tree");
    make_tree(&tree);
    for directory in [tree.clone(), tree.join("dir with space & \u{fc}")] {
        // IndexIgnore omits hidden files.
        [".hidden", "...", "index.html"]
            .iter()
            .for_each(|name| fs::remove_file(directory.join(name)).unwrap());
    }
    fetch_all(&site, "/tree/", &tree);
}

#[test]
fn file_behind_a_url_is_no_directory() {
    let server = Writable::start();
    fs::write(server.path("f"), content(100, 1)).unwrap();
    let run = get().args(["-r", &server.url("/f"), "-o", "t"]);
    run.run().fails(65, &["lists no files", "/f"]);
    let run = run.again(["-r", &server.url("/missing/")]);
    run.run().fails(66, &["404"]);
    assert!(!run.path("missing").exists(), "an empty directory was left");
}

#[test]
fn file_without_r_has_the_time_of_its_fetching() {
    let server = Writable::start();
    make_tree(&server.path("t"));
    let run = get().args([server.url("/t/a%20b")]);
    run.run().ok();
    assert!(modified(&run.path("a b")) > 1_000_000_000);
    same(run.path("a b"), b"");
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let run = get().args(["-r", "http://h/a/", "http://h/b/"]);
    run.run().fails(64, &["one directory"]);
    let run = run.again(["-r", "--record", "r", "http://h/a/"]);
    run.run().fails(64, &["--record is for one file"]);
    run.again(["-r", "http://h/..%2f/"]).run().fails(64, &["-o"]);
}
