//! MKCOL to `longhaul serve --writable`: created and refused directories.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;

use super::to;
use crate::support::{Writable, content, same};

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
