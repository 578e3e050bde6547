//! What is not taken: told before the body comes, with nothing written.

use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use longhaul_core::proto::http::UploadId;

use crate::site::{Site, noise};
use crate::uploads::{ID, TOKEN, Talk, content, head, names, patch, resource, writable, writable_with};

#[test]
fn without_the_token_nothing_is_written_nor_told() {
    let site = writable();
    site.write("f", b"content");
    let url = resource("f", ID);
    for line in
        ["X: y", "Authorization: Bearer s3cre", "Authorization: Basic s3cret", "Authorization: Bearer"]
    {
        for (method, target) in [
            ("PUT", "/f"),
            ("PUT", "/g"),
            ("PATCH", url.as_str()),
            ("DELETE", &url),
            ("HEAD", &url),
            ("PUT", "/../g"),
        ] {
            let body =
                if method == "HEAD" { "" } else { "Content-Length: 1000000\r\nExpect: 100-continue\r\n" };
            let text = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n{line}\r\n{body}\r\n");
            let answer = Talk::to(&site).ask(&text, b"");
            assert_eq!(
                (answer.status, answer.header("www-authenticate")),
                (401, Some("Bearer")),
                "{method} {line}"
            );
        }
    }
    // Reading and asking need none.
    assert_eq!((site.get("/f", &[]).status, site.ask("HEAD", "/f", &[]).status), (200, 200));
    assert_eq!(site.ask("OPTIONS", "/f", &[]).status, 204);
    assert_eq!((names(&site), content(&site, "f")), (vec!["f".to_owned()], b"content".to_vec()));
}

#[test]
fn a_server_that_is_only_read_says_so() {
    let site = Site::start();
    let url = resource("f", ID);
    for (method, target) in [("PUT", "/f"), ("PATCH", url.as_str()), ("DELETE", &url)] {
        let answer = Talk::to(&site).ask(&head(method, target, &[]), b"");
        assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD, OPTIONS")), "{method}");
    }
    assert_eq!(site.ask("OPTIONS", "/f", &[]).header("accept-patch"), None);
    site.write("f", b"x");
    assert_eq!(site.ask("HEAD", &url, &[TOKEN]).status, 200);
}

#[test]
fn targets_that_are_no_place_for_a_file() {
    let (site, outside) = (writable(), tempfile::tempdir().unwrap());
    std::fs::create_dir(site.dir.path().join("dir")).unwrap();
    symlink(outside.path(), site.dir.path().join("out")).unwrap();
    symlink(outside.path().join("file"), site.dir.path().join("link")).unwrap();
    symlink("dir", site.dir.path().join("in")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, site.dir.path().join("fifo"), rustix::fs::Mode::RWXU).unwrap();
    site.write("file", b"content");
    let long = format!("/{}", "x".repeat(300));
    let before = names(&site);
    for (target, status) in [
        ("/../f", 403),
        ("/dir/%2e%2e/%2E%2e/f", 403),
        ("/..%2ff", 400),
        ("//etc/f", 409),
        ("/out/f", 403),
        ("/link", 403),
        ("/fifo", 403),
        ("/dir", 409),
        ("/dir/", 409),
        ("/new/", 409),
        ("/", 409),
        ("/in", 403),
        ("/none/f", 409),
        ("/file/f", 409),
        ("/.hidden", 403),
        ("/.git/f", 403),
        ("/f.longhaul-part", 403),
        ("/f.longhaul-journal", 403),
        ("/f.longhaul-journal~", 403),
        (&long, 414),
        ("etc/f", 400),
    ] {
        for (method, query) in [("PUT", String::new()), ("PATCH", format!("?upload={ID}"))] {
            let target = format!("{target}{query}");
            let request = if method == "PUT" {
                head("PUT", &target, &["Content-Length: 5", "Expect: 100-continue"])
            } else {
                patch(&target, 0, 5, 5, true).replacen("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n", 1)
            };
            assert_eq!(Talk::to(&site).ask(&request, b"").status, status, "{method} {target}");
        }
    }
    assert_eq!(names(&site), before);
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(site.dir.path().join("dir")).unwrap().count(), 0);
    // A link that stays inside is a way like any other.
    assert_eq!(Talk::to(&site).ask(&head("PUT", "/in/f", &["Content-Length: 2"]), b"ok").status, 201);
    assert_eq!(content(&site, "dir/f"), b"ok");
}

#[test]
fn parts_that_do_not_follow_what_is_there() {
    let (site, url) = (writable(), resource("f", ID));
    let mut talk = Talk::to(&site);
    let at =
        |answer: &crate::site::Answer| (answer.status, answer.header("upload-offset").map(str::to_owned));
    let ask = |request: String| at(&Talk::to(&site).ask(&request, b"12345"));
    assert_eq!(ask(patch(&url, 3, 5, 9, false)), (409, Some("0".into())));
    assert_eq!(ask(patch(&url, 0, 5, 4, false)).0, 400);
    assert_eq!(names(&site).len(), 0);
    assert_eq!(talk.ask(&patch(&url, 0, 5, 9, false), b"12345").status, 204);
    for offset in [0, 4, 6] {
        assert_eq!(ask(patch(&url, offset, 3, 9, false)), (409, Some("5".into())), "{offset}");
    }
    // Complete, it says, and is not.
    assert_eq!(at(&Talk::to(&site).ask(&patch(&url, 5, 2, 9, true), b"67")), (409, Some("7".into())));
    // Another size; more than there is to come.
    assert_eq!(ask(patch(&url, 7, 5, 12, false)).0, 400);
    assert_eq!(ask(patch(&url, 7, 3, 9, false)).0, 400);
    let there = talk.ask(&head("HEAD", &url, &[]), b"");
    assert_eq!(at(&there), (204, Some("7".into())));
    assert_eq!(talk.ask(&patch(&url, 7, 2, 9, true), b"89").status, 201);
    assert_eq!(content(&site, "f"), b"123456789");
}

#[test]
fn a_digest_that_does_not_match_drops_the_upload() {
    let (site, url) = (writable(), resource("f", ID));
    site.write("f", b"old");
    let mut talk = Talk::to(&site);
    let wrong = crate::uploads::blake3_field(b"something else");
    for request in [
        patch(&url, 0, 3, 3, true).replacen("\r\n\r\n", &format!("\r\n{wrong}\r\n\r\n"), 1),
        head("PUT", "/f", &["Content-Length: 3", &wrong]),
    ] {
        assert_eq!(talk.ask(&request, b"new").status, 422);
        assert_eq!((content(&site, "f"), names(&site)), (b"old".to_vec(), vec!["f".to_owned()]));
    }
}

#[test]
fn two_uploads_to_one_name() {
    let (site, url) = (writable(), resource("f", ID));
    let mut first = Talk::to(&site);
    first.send(&patch(&url, 0, 10, 10, true), b"12345");
    wait_for(|| names(&site).len() == 2);
    let other = resource("f", UploadId::new([1; 16]));
    for request in [
        patch(&other, 0, 5, 5, true),
        patch(&url, 0, 5, 10, true),
        head("PUT", "/f", &["Content-Length: 5"]),
        head("DELETE", &url, &[]),
    ] {
        assert_eq!(Talk::to(&site).ask(&request, b"").status, 423);
    }
    assert_eq!(first.ask("", b"67890").status, 201);
    assert_eq!((content(&site, "f"), names(&site)), (b"1234567890".to_vec(), vec!["f".to_owned()]));
}

#[test]
fn file_without_a_length_is_refused() {
    let answer = Talk::to(&writable()).ask(&head("PUT", "/f", &[]), b"");
    assert_eq!(answer.head.lines().next(), Some("HTTP/1.1 411 Length Required"));
}

#[test]
fn more_uploads_than_there_are_places_for() {
    let site = writable_with(|config| config.limits.uploads = 1);
    let mut first = Talk::to(&site);
    first.send(&head("PUT", "/f", &["Content-Length: 10"]), b"12345");
    wait_for(|| names(&site).len() == 1);
    let second = Talk::to(&site).ask(&head("PUT", "/g", &["Content-Length: 5"]), b"");
    assert!(second.status == 503 && second.header("retry-after").is_some());
    assert_eq!(first.ask("", b"67890").status, 201);
    assert_eq!(Talk::to(&site).ask(&head("PUT", "/g", &["Content-Length: 5"]), b"12345").status, 201);
}

#[test]
fn who_sends_without_being_asked_still_hears_why_not() {
    let (site, body) = (writable(), noise(32 << 20));
    let length = format!("Content-Length: {}", body.len());
    let mut talk = Talk::to(&site);
    // More than the sockets hold: the server reads it off, so that no reset overtakes its answer.
    talk.send(&head("PUT", "/none/f", &[&length]), &body);
    assert_eq!(talk.answer().status, 409);
}

#[test]
fn a_file_larger_than_the_disk_is_refused_before_its_first_byte() {
    let (site, url) = (writable(), resource("f", ID));
    let size = 900_000_000_000_000usize;
    let expect = |request: String| request.replacen("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n", 1);
    for request in [
        expect(patch(&url, 0, 5, size, false)),
        expect(head("PUT", "/f", &[&format!("Content-Length: {size}")])),
    ] {
        let status = Talk::to(&site).ask(&request, b"").status;
        // Too much for the disk, or for one file of this file system.
        assert!(matches!(status, 507 | 413), "{status}");
    }
    // No file has a size of more than 63 bits.
    for size in [1 << 63, u64::MAX] {
        let (whole, range) = (format!("Content-Length: {size}"), format!("Content-Range: bytes 0-4/{size}"));
        let part = ["Content-Type: application/partial-upload", "Upload-Complete: ?0", "Content-Length: 5"];
        for request in [head("PUT", "/f", &[&whole]), head("PATCH", &url, &[&part[..], &[&range]].concat())] {
            assert_eq!(Talk::to(&site).ask(&expect(request), b"").status, 413, "{size}");
        }
    }
    assert_eq!(names(&site).len(), 0);
    // What does not fit takes nothing away from an upload that is paused.
    let paused = resource("f", UploadId::new([1; 16]));
    assert_eq!(Talk::to(&site).ask(&patch(&paused, 0, 5, 9, false), b"12345").status, 204);
    for request in [
        expect(patch(&url, 0, 5, size, false)),
        expect(head("PUT", "/f", &[&format!("Content-Length: {size}")])),
    ] {
        assert!(matches!(Talk::to(&site).ask(&request, b"").status, 507 | 413));
        let there = Talk::to(&site).ask(&head("HEAD", &paused, &[]), b"");
        assert_eq!(there.header("upload-offset"), Some("5"));
    }
    assert_eq!(Talk::to(&site).ask(&patch(&paused, 5, 4, 9, true), b"6789").status, 201);
    assert_eq!(content(&site, "f"), b"123456789");
}

/// Waits until something has happened that nobody tells of.
pub(crate) fn wait_for(happened: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !happened() {
        assert!(Instant::now() < until, "it does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}
