//! `longhaul serve --writable`: verified, refused and concurrent uploads, and directories.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;

use super::{holding, is_verified, put_to, to};
use crate::support::{Writable, content, old_kernel, put, same};

#[test]
fn every_size_arrives_by_either_reader_and_is_verified() {
    let site = Writable::start();
    let bytes = content((9 << 20) + 4097, 1);
    for reader in ["sendfile", "direct"] {
        for size in [0, 1, 4095, 4096, 4097, 4 << 20, (4 << 20) + 1, bytes.len()] {
            let ended = to(&site, "/", &bytes[..size]).args(["--reader", reader]).run().ok();
            let done = ended.done();
            assert_eq!((done["bytes"].as_u64(), done["resumed"].as_u64()), (Some(size as u64), Some(0)));
            assert!(is_verified(&ended), "{done}");
            same(site.path("f"), &bytes[..size]);
        }
    }
    let unverified = to(&site, "/unverified", &bytes).args(["--no-verify"]);
    assert!(unverified.run().ok().done()["digest"].is_null());
    assert_eq!(site.names(), ["f", "unverified"]);
}

#[test]
fn file_arrives_over_tls() {
    let site = Writable::encrypted();
    let bytes = content((20 << 20) + 77, 3);
    for (streams, reader) in [("1", "sendfile"), ("1", "direct"), ("4", "auto")] {
        let run = to(&site, "/", &bytes).args(["--streams", streams, "--reader", reader, "--cacert"]);
        assert_eq!(run.args([site.ca()]).run().ok().done()["streams"].to_string(), streams);
        same(site.path("f"), &bytes);
    }
}

#[test]
fn file_system_without_direct_io_is_read_through_the_cache() {
    let Some(old_kernel) = old_kernel() else { return };
    let site = Writable::start();
    // A tmpfs, on a kernel without cachestat(2).
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let bytes = content(20 << 20, 10);
    let path = dir.path().join("f");
    fs::write(&path, &bytes).unwrap();
    let run = put().through(&[&old_kernel]).args(["--json", "--token"]).args([site.token()]);
    let run = run.args([path.as_os_str(), site.url("/").as_ref()]);
    let ended = run.run().ok();
    let opened = ended.json().into_iter().find(|line| line["event"] == "opened").unwrap();
    assert_eq!(opened["writer"], "sendfile");
    same(site.path("f"), &bytes);
    let direct = put().args(["--reader", "direct"]).args([path.as_os_str(), site.url("/").as_ref()]);
    direct.run().fails(64, &["Direct I/O", "--reader auto"]);
}

#[test]
fn targets_that_may_not_be_written_are_refused() {
    let site = Writable::start();
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), site.path("out")).unwrap();
    fs::create_dir(site.path("dir")).unwrap();
    for (path, code, why) in [
        ("/out/f", 77, "nothing may be written there"),
        ("/%2e%2e%2ff", 76, "an encoded slash"),
        ("/.hidden", 77, "files of this name are not taken"),
        ("/f.longhaul-part", 77, "files of this name are not taken"),
        ("/none/f", 73, "the directory does not exist"),
        ("/dir", 73, "there is a directory of this name"),
        (&format!("/{}", "x".repeat(256)), 73, "choose a shorter name"),
    ] {
        to(&site, path, b"bytes").run().fails(code, &[why]);
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    assert_eq!(site.names(), ["dir", "out"]);
}

#[test]
fn two_puts_to_one_name_do_not_mix() {
    let site = Writable::start();
    let (first, second) = (content(16 << 20, 5), content(16 << 20, 6));
    for streams in ["1", "4"] {
        let (relay, midway, release) = holding(site.address());
        let run = put_to(&relay.url("/f"), &site, &first).args(["--streams", streams]);
        let mut running = run.start();
        running.until("it is midway", || midway.try_recv().is_ok());
        let other = to(&site, "/f", &second).args(["--streams", streams]);
        other.run().fails(75, &["423", "being written by another upload"]);
        drop(release);
        running.end().ok();
        same(site.path("f"), &first);
        other.run().ok();
        site.hands_over(&second);
    }
}

/// Sends a MKCOL with additional fields; returns status and head of the response.
fn mkcol(site: &Writable, path: &str, fields: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(site.address()).unwrap();
    let head = format!("MKCOL {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no answer for {path}: {answer:?}")), answer)
}

const LOGIN: &str = "Authorization: Bearer sesame\r\n";

#[test]
fn directory_is_made_only_in_one_that_is_there() {
    let site = Writable::start();
    for (path, status) in [("/a/", 201), ("/a/b", 201), ("/a/b%20c/", 201), ("/a/", 405), ("/x/y/", 409)] {
        assert_eq!(mkcol(&site, path, LOGIN).0, status, "{path}");
    }
    assert!(site.path("a/b").is_dir() && site.path("a/b c").is_dir() && !site.path("x").exists());
    to(&site, "/a", &content(1000, 1)).run().fails(73, &["directory of this name"]);
    assert!(site.path("a/b").is_dir());
}

#[test]
fn refused_mkcol_changes_nothing() {
    let site = Writable::start();
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), site.path("out")).unwrap();
    symlink("nowhere", site.path("dangling")).unwrap();
    fs::write(site.path("file"), "mine").unwrap();
    let long = format!("/{}/", "x".repeat(256));
    let with_body = format!("{LOGIN}Content-Length: 3\r\n");
    for (path, fields, statuses) in [
        ("/", LOGIN, 405..=405),
        ("/file", LOGIN, 405..=405),
        ("/file/", LOGIN, 405..=405),
        ("/dangling/", LOGIN, 405..=405),
        ("/.hidden/", LOGIN, 403..=403),
        ("/f.longhaul-part/", LOGIN, 403..=403),
        ("/f.longhaul-journal/d/", LOGIN, 403..=403),
        ("/out/d/", LOGIN, 403..=403),
        (&long, LOGIN, 414..=414),
        ("/../d/", LOGIN, 403..=403),
        ("/a%2Fb/", LOGIN, 400..=400),
        ("/a/", &with_body, 415..=415),
        ("/a/", "", 401..=403),
        ("/a/", "Authorization: Bearer wrong\r\n", 401..=403),
    ] {
        let (status, head) = mkcol(&site, path, fields);
        assert!(statuses.contains(&status), "{path} {fields}: {head}");
        assert_eq!(head.to_lowercase().contains("\r\nallow: "), status == 405, "{head}");
    }
    same(site.path("file"), b"mine");
    assert_eq!(site.names(), ["dangling", "file", "out"]);
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}
