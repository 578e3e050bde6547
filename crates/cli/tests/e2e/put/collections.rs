//! MKCOL to `longhaul serve --writable`: created and refused directories.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;

use crate::support::{Writable, content, same};

/// Sends a request with additional fields; returns status and head of the response.
fn ask(site: &Writable, method: &str, path: &str, fields: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(site.address()).unwrap();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no answer to {method} {path}: {answer:?}")), answer)
}

const LOGIN: &str = "Authorization: Bearer sesame\r\n";

#[test]
fn a_directory_is_made_in_one_that_is_there() {
    let site = Writable::start();
    for (path, status) in [("/a/", 201), ("/a/b", 201), ("/a/b%20c/", 201), ("/a/", 405), ("/x/y/", 409)] {
        assert_eq!(ask(&site, "MKCOL", path, LOGIN).0, status, "{path}");
    }
    assert!(site.path("a/b").is_dir() && site.path("a/b c").is_dir() && !site.path("x").exists());
}

#[test]
fn mkcol_keeps_existing_entries() {
    let site = Writable::start();
    fs::write(site.path("file"), "mine").unwrap();
    symlink("nowhere", site.path("dangling")).unwrap();
    for path in ["/", "/file", "/file/", "/dangling/"] {
        let (status, head) = ask(&site, "MKCOL", path, LOGIN);
        assert_eq!(status, 405, "{path}");
        assert!(head.contains("\r\nallow: ") || head.contains("\r\nAllow: "), "{head}");
    }
    same(site.path("file"), b"mine");
    assert!(!site.path("nowhere").exists());
}

#[test]
fn names_and_places_that_are_not_allowed_are_refused() {
    let site = Writable::start();
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), site.path("out")).unwrap();
    let long = format!("/{}/", "x".repeat(256));
    for (path, status) in [
        ("/.hidden/", 403),
        ("/f.longhaul-part/", 403),
        ("/f.longhaul-journal/d/", 403),
        ("/out/d/", 403),
        (&long, 414),
        ("/../d/", 403),
        ("/a%2Fb/", 400),
    ] {
        assert_eq!(ask(&site, "MKCOL", path, LOGIN).0, status, "{path}");
    }
    assert_eq!(site.names(), ["out"]);
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn a_body_and_a_missing_token_are_refused() {
    let site = Writable::start();
    let with_body = format!("{LOGIN}Content-Length: 3\r\n");
    assert_eq!(ask(&site, "MKCOL", "/a/", &with_body).0, 415);
    for login in ["", "Authorization: Bearer wrong\r\n"] {
        assert!(matches!(ask(&site, "MKCOL", "/a/", login).0, 401 | 403), "{login}");
    }
    assert_eq!(site.names(), [""; 0]);
}

#[test]
fn a_directory_under_an_uploads_name_is_no_target() {
    let site = Writable::start();
    assert_eq!(ask(&site, "MKCOL", "/f/", LOGIN).0, 201);
    crate::put::serve::to(&site, "/f", &content(1000, 1)).run().fails(73, &["directory of this name"]);
    assert!(site.path("f").is_dir());
}
