//! `--if-newer`: a local file as new as the server's is not fetched.

use std::fs;
use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::support::{File, Nginx, Server, content, get, same};

fn set_modified(path: &std::path::Path, time: SystemTime) {
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn only_a_newer_file_takes_the_place_of_the_one_here() {
    let Some(nginx) = Nginx::start() else { return };
    let (old, new) = (content(300_000, 95), content(400_000, 96));
    nginx.file("f", &old);
    let run = get().args(["--if-newer", "--json", &nginx.url("/f")]);
    assert_eq!(run.fetches(&old).done()["resumed"], 0);
    let there = fs::metadata(nginx.path("f")).unwrap().modified().unwrap();
    let here = fs::metadata(run.path("f")).unwrap().modified().unwrap();
    let apart = there.duration_since(here).unwrap();
    assert!(apart < Duration::from_secs(1), "the file has its time on the server: {apart:?} apart");
    // Equal time: not fetched, whatever the content.
    fs::write(run.path("f"), "changed here").unwrap();
    let done = run.fetches(b"changed here").done();
    let found = ["streams", "bytes", "unchanged"].map(|name| &done[name]);
    assert_eq!(found, [&json!(0), &json!(12), &json!(true)]);
    // The server's file becomes newer.
    set_modified(&run.path("f"), here);
    nginx.file("f", &new);
    set_modified(&nginx.path("f"), there + Duration::from_secs(60));
    let done = run.fetches(&new).done();
    assert!(done["streams"].as_u64() > Some(0) && done["unchanged"] == false, "{done}");
    // Also with a name set by the user.
    let run = run.again(["-N", "-o", "g", &nginx.url("/f")]);
    run.run().ok();
    let ended = run.run().ok();
    assert!(ended.stderr.contains("g: not newer on the server"), "{ended:?}");
}

#[test]
fn server_without_conditional_requests_gets_a_head_request_only() {
    let fields = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n".to_owned();
    let server = Server::of(File { fields, ..File::new(content(40 << 20, 97)) });
    let run = get().args(["--if-newer", &server.url("/f")]);
    run.file("f", "here").fetches(b"here");
    // A URL cannot name a file elsewhere.
    let run = get().args(["--if-newer", "-o", "sub/", &server.url("/..%2Fprecious")]);
    let run = run.file("sub/other", "").file("precious", "here");
    run.run().ok();
    same(run.path("precious"), b"here");
}

#[test]
fn entity_tag_decides_without_last_modified() {
    let server = Server::of(File::new(content(1000, 98)));
    let run = get().args(["--if-newer", "--json", &server.url("/f")]);
    // Nothing is known about the local file.
    let run = run.file("f", "here");
    assert!(run.fetches(&content(1000, 98)).done()["streams"].as_u64() > Some(0));
    assert_eq!(run.run().ok().done()["streams"], 0);
    assert_eq!(server.requests().last().unwrap().field("if-none-match"), Some("\"v1\""));
    server.mend(File { etag: Some("\"v2\""), ..File::new(content(1000, 99)) });
    assert!(run.fetches(&content(1000, 99)).done()["streams"].as_u64() > Some(0));
}

#[test]
fn directory_in_place_of_the_file_is_refused() {
    let server = Server::of(File::new(content(1000, 94)));
    for (output, named) in [(&[][..], "f"), (&["-o", "sub"], "sub/f"), (&["-o", "sub/"], "sub/f")] {
        let run = get().args(output).args(["-N", &server.url("/f")]);
        fs::create_dir_all(run.path(named)).unwrap();
        run.run().fails(73, &[named, "it is a directory"]);
        assert_eq!(fs::read_dir(run.path(named)).unwrap().count(), 0);
    }
}
