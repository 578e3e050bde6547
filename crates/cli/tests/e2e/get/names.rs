//! File names from servers: they never leave the directory, and never replace a file.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{Server, get, partial_files, same};

fn answer(fields: &[u8]) -> Vec<u8> {
    [b"HTTP/1.1 200 OK\r\n", fields, b"Content-Length: 2\r\n\r\nok"].concat()
}

/// Fetches into `inner/`, and returns the name of the only file.
fn named(fields: &[u8], path: &str) -> String {
    let server = Server::answering(answer(fields));
    let run = get();
    fs::create_dir_all(run.path("outer/inner")).unwrap();
    let run = run.args(["-o", "outer/inner/", &server.url(path)]);
    run.run().ok();
    let names = |at: &str| -> Vec<_> {
        let entries = fs::read_dir(run.path(at)).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    };
    assert_eq!((names("."), names("outer")), (vec!["outer".to_owned()], vec!["inner".to_owned()]));
    let inner = names("outer/inner");
    assert_eq!(inner.len(), 1, "{inner:?}");
    same(run.path("outer/inner").join(&inner[0]), b"ok");
    inner[0].clone()
}

#[test]
fn hostile_names_stay_in_the_directory() {
    let long = "n".repeat(300);
    for (given, expected) in [
        ("../../evil", "evil"),
        ("/etc/cron.d/evil", "evil"),
        ("..\\\\..\\\\evil.exe", "evil.exe"),
        (".", "url"),
        ("..", "url"),
        ("", "url"),
        ("a/", "url"),
        (".bashrc", "_.bashrc"),
        ("-rf", "_-rf"),
        (&format!("{long}.tar"), &format!("{}.tar", &long[..196])),
    ] {
        let fields = format!("Content-Disposition: attachment; filename=\"{given}\"\r\n");
        assert_eq!(named(fields.as_bytes(), "/d/url"), expected, "{given}");
    }
    for (given, expected) in [
        ("a%00b%0a%1b[31m", "ab[31m"),
        ("%2e%2e%2f%2e%2e%2fevil", "evil"),
        ("gpj%e2%80%aeexe.txt", "gpjexe.txt"),
    ] {
        let fields = format!("Content-Disposition: attachment; filename*=UTF-8''{given}\r\n");
        assert_eq!(named(fields.as_bytes(), "/d/url"), expected, "{given}");
    }
}

#[test]
fn hostile_paths_of_urls_stay_in_the_directory() {
    for (path, expected) in [
        ("/d/..%2f..%2fevil", "evil"),
        ("/d/%2e%2e", "download"),
        ("/", "download"),
        ("/d/", "download"),
        ("/d/..%5c..%5cevil", "evil"),
        ("/d/a%00b", "ab"),
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
    let server = Server::new(|peer| {
        while let Some(request) = peer.read_request() {
            peer.send(if request.target == "/latest" {
                b"HTTP/1.1 302 F\r\nLocation: /v2.iso\r\nContent-Length: 0\r\n\r\n".to_vec()
            } else {
                answer(b"")
            });
        }
    });
    let run = get().args([&server.url("/latest")]);
    run.run().ok();
    same(run.path("v2.iso"), b"ok");
}

#[test]
fn a_name_from_outside_replaces_nothing() {
    let server = Server::answering(answer(b""));
    let run = get().args([&server.url("/f")]);
    fs::write(run.path("f"), "precious").unwrap();
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
    let slow = Server::new(|peer| {
        peer.read_request();
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
        peer.trickle(&[b'x'; 1000], 1000);
    });
    let run = run.again([&slow.url("/f")]);
    let mut running = run.start();
    running.until("the transfer began", || run.path("f.longhaul-part").exists());
    fs::write(run.path("f"), "precious").unwrap();
    running.end().fails(73, &["f exists"]);
    same(run.path("f"), b"precious");
}

#[test]
fn a_directory_that_exists_takes_the_name_from_the_server_and_nothing_is_replaced() {
    let server = Server::answering(answer(b"Content-Disposition: attachment; filename=\"given\"\r\n"));
    let run = get();
    fs::create_dir(run.path("dir")).unwrap();
    let run = run.args(["-o", "dir", &server.url("/f")]);
    run.run().ok();
    same(run.path("dir/given"), b"ok");
    fs::write(run.path("dir/given"), "precious").unwrap();
    run.run().fails(73, &["dir/given exists"]);
    same(run.path("dir/given"), b"precious");
    assert_eq!(partial_files(&run.path("dir")), [""; 0]);
}

#[test]
fn a_given_name_is_replaced_only_when_the_new_file_is_complete() {
    let run = get();
    fs::write(run.path("f"), "old").unwrap();
    let broken = Server::answering("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nnew");
    let run = run.args(["--retries", "0", "-o", "f", &broken.url("/f")]);
    run.run().fails(75, &["after 3 of 9 bytes"]);
    same(run.path("f"), b"old");
    let server = Server::answering(answer(b""));
    let run = run.again(["-o", "f", &server.url("/f")]);
    run.run().ok();
    same(run.path("f"), b"ok");
    assert_eq!(partial_files(run.dir()), [""; 0]);
}

#[test]
fn several_urls_into_a_directory() {
    let server = Server::new(|peer| {
        while let Some(request) = peer.read_request() {
            let body = &request.target;
            peer.send(if body == "/gone" {
                "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n".to_owned()
            } else {
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            });
        }
    });
    let urls = ["/a", "/gone", "/b"].map(|path| server.url(path));
    let run = get();
    fs::create_dir(run.path("dir")).unwrap();
    let run = run.args(["-o", "dir/"]).args(&urls);
    run.run().fails(66, &["/gone"]);
    same(run.path("dir/a"), b"/a");
    same(run.path("dir/b"), b"/b");
    let run = run.again(["-o", "missing/"]).args(&urls);
    run.run().fails(66, &["/gone"]);
    same(run.path("missing/b"), b"/b");
    let run = run.again(["-o", "dir/a"]).args(&urls);
    run.run().fails(73, &["dir/a", "ot a directory"]);
    let run = run.again(["--checksum", "md5:d41d8cd98f00b204e9800998ecf8427e"]).args(&urls);
    run.run().fails(64, &["--checksum"]);
}
