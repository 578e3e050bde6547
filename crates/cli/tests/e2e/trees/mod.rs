//! End-to-end tests of directory trees and lists of files, against real servers and scripted
//! malicious listings.

mod get_trees;
mod hostile_listings;
mod put_trees;
mod url_lists;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::support::{age, assert_equal, fetched_and_unchanged, get, make_tree, many_files, put};

/// Creates the tree of [`make_tree`], without files of these names; returns the number of its
/// files.
fn tree_without(tree: &Path, names: &[&str]) -> usize {
    make_tree(tree);
    for name in names {
        fs::remove_file(tree.join(name)).unwrap();
        fs::remove_file(tree.join("dir with space & \u{fc}").join(name)).unwrap();
    }
    20 - 2 * names.len()
}

/// Fetches a tree of `files` files twice: the second run fetches only missing files.
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

/// Sends a tree twice: the second run sends only changed files, and those whose time became
/// `changed`.
fn put_all(url: &str, there: &Path, changed: u64) {
    let run = put().args(["-r", "t", url]);
    many_files(&run.path("t"), 40);
    fs::create_dir(run.path("t/empty")).unwrap();
    run.run().ok();
    assert_equal(&run.path("t"), there);
    fs::write(run.path("t/d1/f1"), "changed").unwrap();
    age(&run.path("t/d2"), changed);
    let run = run.again(["--json", "-r", "t", url]);
    let (sent, unchanged) = fetched_and_unchanged(&run.run().ok());
    assert_eq!((sent.len(), unchanged.len()), (14, 26), "{sent:?}");
    assert_equal(&run.path("t"), there);
}
