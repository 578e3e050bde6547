//! `get -i FILE`.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::support::{Listed, get, same};

fn site() -> crate::support::Server {
    Listed::serve([
        ("/a", Listed::File(b"one".to_vec())),
        ("/b", Listed::File(b"two".to_vec())),
        ("/c", Listed::File(b"three".to_vec())),
    ])
}

#[test]
fn list_with_comments_and_options() {
    let server = site();
    let list = format!(
        "# comment\r\n\r\n{}\r\n{}\n  out=renamed\n  checksum=sha-256=3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3\n",
        server.url("/a"),
        server.url("/b")
    );
    let run = get().args(["-i", "list", "-o", "to", &server.url("/c")]);
    fs::write(run.path("list"), list).unwrap();
    fs::create_dir(run.path("to")).unwrap();
    run.run().ok();
    same(run.path("to/a"), b"one");
    same(run.path("to/renamed"), b"two");
    same(run.path("to/c"), b"three");
}

#[test]
fn list_from_stdin() {
    let server = site();
    let run = get().args(["-i", "-"]);
    let mut command = run.command();
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    write!(child.stdin.take().unwrap(), "{}\n{}", server.url("/a"), server.url("/c")).unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
    same(run.path("a"), b"one");
    same(run.path("c"), b"three");
}

#[test]
fn bad_line_is_named_before_anything_is_fetched() {
    let server = site();
    let run = get().args(["-i", "list"]);
    fs::write(run.path("list"), format!("{}\n\nnonsense\n", server.url("/a"))).unwrap();
    run.run().fails(64, &["line 3", "list"]);
    assert!(server.asks().is_empty() && !run.path("a").exists());
    run.again(["-i", "missing"]).run().fails(66, &["missing"]);
}

#[test]
fn failed_file_of_a_list_costs_only_itself() {
    let server = site();
    let run = get().args(["-i", "list"]);
    fs::write(run.path("list"), format!("{}\n{}\n{}", server.url("/a"), server.url("/no"), server.url("/c")))
        .unwrap();
    run.run().fails(66, &["404"]);
    same(run.path("a"), b"one");
    same(run.path("c"), b"three");
}
