//! File names from servers: they never leave the directory, and never replace a file.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{File, Server, content, get, names, same};

fn answer(fields: &[u8]) -> Vec<u8> {
    [b"HTTP/1.1 200 OK\r\n", fields, b"Content-Length: 2\r\n\r\nok"].concat()
}

/// Fetches into `inner/`, and returns the name of the only file.
fn named(fields: &[u8], path: &str) -> String {
    let server = Server::answering(answer(fields));
    let run = get().args(["-o", "outer/inner/", &server.url(path)]);
    run.run().ok();
    let [all, outer, mut inner] = [".", "outer", "outer/inner"].map(|at| names(&run.path(at)));
    assert_eq!((&all[..], &outer[..], inner.len()), (&["outer".into()][..], &["inner".into()][..], 1));
    same(run.path("outer/inner").join(&inner[0]), b"ok");
    inner.remove(0)
}

#[test]
fn hostile_names_stay_in_the_directory() {
    let long = "n".repeat(300);
    for (given, expected) in [
        ("=\"../../evil\"", "evil"),
        ("=\"..\"", "url"),
        (&format!("=\"{long}.tar\""), &format!("{}.tar", &long[..196])),
        ("*=UTF-8''%2e%2e%2f%2e%2e%2fevil", "evil"),
    ] {
        let fields = format!("Content-Disposition: attachment; filename{given}\r\n");
        assert_eq!(named(fields.as_bytes(), "/d/url"), expected, "{given}");
    }
    for (path, expected) in [
        ("/d/..%2f..%2fevil", "evil"),
        ("/d/%2e%2e", "download"),
        ("/d/", "download"),
        ("/d/%c3%a4%20b?c=/x", "ä b"),
        ("/d/plain.bin;v=1", "plain.bin;v=1"),
    ] {
        assert_eq!(named(b"", path), expected, "{path}");
    }
    // Names of partial files are reserved and refused.
    for name in ["x.longhaul-part", "x.longhaul-journal"] {
        assert!(!named(b"", &format!("/{name}")).ends_with(name));
    }
}

#[test]
fn a_redirect_names_the_file_by_where_it_ends() {
    let last = Server::answering(answer(b""));
    let server = Server::redirecting(&last.url("/v2.iso"));
    let run = get().args([&server.url("/latest")]);
    run.run().ok();
    same(run.path("v2.iso"), b"ok");
}

#[test]
fn a_name_from_outside_replaces_nothing() {
    let server = Server::answering(answer(b""));
    let run = get().file("f", "precious").args([&server.url("/f")]);
    run.run().fails(73, &["f exists", "-o"]);
    same(run.path("f"), b"precious");
    fs::remove_file(run.path("f")).unwrap();
    symlink("elsewhere", run.path("f")).unwrap();
    run.run().fails(73, &["f exists"]);
    assert!(run.path("f").is_symlink() && !run.path("elsewhere").exists());
    fs::remove_file(run.path("f")).unwrap();
    fs::create_dir(run.path("f")).unwrap();
    run.run().fails(73, &["directory"]);
    // Nor does it replace a file created during the transfer.
    fs::remove_dir(run.path("f")).unwrap();
    let (held, gate) = Server::held(&File::new(content(1000, 1)), 500);
    let run = run.again([&held.url("/f")]);
    let mut running = run.start();
    running.until("the transfer began", || run.path("f.longhaul-part").exists());
    let run = run.file("f", "precious");
    gate.open();
    running.end().fails(73, &["f exists"]);
    same(run.path("f"), b"precious");
}

#[test]
fn a_given_name_is_replaced_only_when_the_new_file_is_complete() {
    let broken = Server::answering("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nnew");
    let run = get().file("f", "old").args(["--retries", "0", "-o", "f", &broken.url("/f")]);
    run.run().fails(75, &["after 3 of 9 bytes"]);
    same(run.path("f"), b"old");
    let server = Server::answering(answer(b""));
    run.again(["-o", "f", &server.url("/f")]).fetches(b"ok");
}

#[test]
fn several_urls_need_a_directory_and_no_checksum() {
    let server = Server::answering(answer(b""));
    let urls = ["/a", "/b"].map(|path| server.url(path));
    let run = get().args(["-o", "dir/"]).args(&urls);
    run.run().ok();
    assert_eq!(names(&run.path("dir")), ["a", "b"]);
    let run = run.again(["-o", "dir/a"]).args(&urls);
    run.run().fails(73, &["dir/a", "ot a directory"]);
    let run = run.again(["--checksum", "md5:d41d8cd98f00b204e9800998ecf8427e"]).args(&urls);
    run.run().fails(64, &["--checksum"]);
}
