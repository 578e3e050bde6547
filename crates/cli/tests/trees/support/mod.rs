//! Helpers, mostly those of the `get` and `put` tests.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "the tests of get, put and gridftp need more of it"
)]

#[path = "../../get/support/content.rs"]
mod content;
#[path = "../../gridftp/support/globus.rs"]
mod globus;
#[path = "../../get/support/http.rs"]
mod http;
mod listed;
#[path = "../../gridftp/support/proftpd.rs"]
mod proftpd;
#[path = "../../get/support/program.rs"]
mod program;
#[path = "../../get/support/real.rs"]
mod real;
#[path = "../../gridftp/support/scripted.rs"]
mod scripted;
#[path = "../../gridftp/support/scripted_data.rs"]
mod scripted_data;
#[path = "../../gridftp/support/server_process.rs"]
mod server_process;
#[path = "../../get/support/tls.rs"]
mod tls;
mod tree;
#[path = "../../gridftp/support/vsftpd.rs"]
mod vsftpd;
#[path = "../../put/support/writable.rs"]
mod writable;

use std::fs;
use std::path::Path;

pub(crate) use content::{content, same};
pub(crate) use globus::Globus;
pub(crate) use http::{File, Server};
pub(crate) use listed::{ListedTarget, listing};
pub(crate) use proftpd::Proftpd;
pub(crate) use program::{Ended, Get, get, longhaul};
pub(crate) use real::{Apache, Nginx, Site};
pub(crate) use scripted::Scripted;
pub(crate) use tree::{age, assert_equal, make_tree, many_files};
pub(crate) use vsftpd::Vsftpd;
pub(crate) use writable::Writable;

/// Returns the names below a directory, sorted.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Creates a `longhaul put` in an empty directory.
pub(crate) fn put() -> Get {
    longhaul("put")
}

/// Returns the jobs of a run with `--json` by the ends of their URLs: those whose file was transferred, and those whose
/// file was unchanged.
pub(crate) fn fetched_and_unchanged(ended: &Ended) -> (Vec<String>, Vec<String>) {
    let done = ended.json().into_iter().filter(|line| line["event"] == "done");
    let (mut fetched, mut unchanged) = (Vec::new(), Vec::new());
    for line in done {
        let name = line["url"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        let was_there = line["resumed"] == line["bytes"] && line["streams"] == 0;
        if was_there { unchanged.push(name) } else { fetched.push(name) }
    }
    fetched.sort();
    unchanged.sort();
    (fetched, unchanged)
}
