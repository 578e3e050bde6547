//! `get -i FILE`.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::support::{Get, ListedTarget, Server, get, same};

fn site() -> Server {
    let files = [("/a", "one"), ("/b", "two"), ("/c", "three")];
    ListedTarget::serve(files.map(|(target, text)| (target, ListedTarget::File(text.into()))))
}

/// Fails unless `run` has left these files.
#[track_caller]
fn has(run: &Get, files: &[(&str, &str)]) {
    files.iter().for_each(|(name, text)| same(run.path(name), text.as_bytes()));
}

fn with_list(list: &str, args: &[&str]) -> Get {
    get().args(["-i", "list"]).args(args).file("list", list)
}

#[test]
fn list_with_comments_and_options() {
    let server = site();
    let list = format!(
        "# comment\r\n\r\n{}\r\n{}\n  out=renamed\n  checksum=sha-256=3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3\n",
        server.url("/a"),
        server.url("/b")
    );
    let run = with_list(&list, &["-o", "to", &server.url("/c")]);
    fs::create_dir(run.path("to")).unwrap();
    run.run().ok();
    has(&run, &[("to/a", "one"), ("to/renamed", "two"), ("to/c", "three")]);
}

#[test]
fn directories_of_a_list_are_made() {
    let server = site();
    let list = format!("{}\n{}\n  dir=own/place\n", server.url("/a"), server.url("/b"));
    let run = with_list(&list, &["-o", "new/sub/"]);
    run.run().ok();
    has(&run, &[("new/sub/a", "one"), ("own/place/b", "two")]);
    let paths = format!("{}\n  out=x/y/a\n{}\n  out=b/b\n  dir=own\n", server.url("/a"), server.url("/b"));
    let run = run.file("list", paths);
    run.run().ok();
    has(&run, &[("new/sub/x/y/a", "one"), ("own/b/b", "two")]);
    run.file("file", "").again(["-i", "list", "-o", "file/sub"]).run().fails(73, &["file/sub"]);
}

#[test]
fn list_as_aria2_writes_it() {
    let server = site();
    let gone = server.url("/gone");
    let list = format!(
        "{gone}\t{}\n  out=first\n  header=X-Own: 1\n  header=Cookie: a=b\n  split=4\n  max-tries=2\n{}\n  split=5\n",
        server.url("/a"),
        server.url("/b")
    );
    let run = with_list(&list, &["-H", "X-All: 2"]);
    let ended = run.run().ok();
    has(&run, &[("first", "one"), ("b", "two")]);
    for (name, line) in [("split", "line 5"), ("max-tries", "line 6")] {
        let warned = ended.stderr.lines().filter(|text| text.contains(&format!("option {name} ")));
        let warned: Vec<_> = warned.collect();
        assert!(warned.len() == 1 && warned[0].contains(line), "{ended:?}");
    }
    let asks = server.requests();
    let of = |target: &str| asks.iter().find(|request| request.target == target).unwrap();
    assert_eq!((of("/a").field("x-own"), of("/a").field("cookie")), (Some("1"), Some("a=b")));
    assert_eq!((of("/b").field("x-own"), of("/b").field("x-all")), (None, Some("2")));
}

#[test]
fn logins_of_the_command_stay_with_its_first_server() {
    let (first, other) = (site(), site());
    let list = format!("{}\n{}\n  header=Authorization: Own 1\n", first.url("/a"), other.url("/b"));
    with_list(&list, &["-b", "all=1"]).run().ok();
    assert_eq!(first.requests()[0].field("cookie"), Some("all=1"));
    let request = &other.requests()[0];
    assert_eq!((request.field("cookie"), request.field("authorization")), (None, Some("Own 1")));
}

#[test]
fn bad_line_is_named_before_anything_is_fetched() {
    let server = site();
    let run = with_list(&format!("{}\n\nnonsense\n", server.url("/a")), &[]);
    run.run().fails(64, &["line 3", "list"]);
    assert!(server.requests().is_empty() && !run.path("a").exists());
    run.again(["-i", "missing"]).run().fails(66, &["missing"]);
}

#[test]
fn failed_file_of_a_list_from_stdin_costs_only_itself() {
    let server = site();
    let run = get().args(["-i", "-"]);
    let mut child = run.command().stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let list = ["/a", "/no", "/c"].map(|target| server.url(target)).join("\n");
    write!(child.stdin.take().unwrap(), "{list}").unwrap();
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.code() == Some(66) && String::from_utf8_lossy(&ended.stderr).contains("404"));
    has(&run, &[("a", "one"), ("c", "three")]);
}
