//! What is not taken: told before the body comes, with nothing written.

use std::os::unix::fs::symlink;

use longhaul_core::proto::http::UploadId;

use crate::site::{Answer, noise, wait_for};
use crate::uploads::{
    ID, Talk, content, expect, head, names, offset, patch, put, range, resource, status, writable,
};

#[test]
fn without_the_token_nothing_is_written_nor_told() {
    let site = writable();
    site.write("f", b"content");
    let url = &*resource("f", ID);
    // Which tokens are wrong is tested where they are compared.
    for (method, target) in
        [("PUT", "/f"), ("PUT", "/g"), ("PATCH", url), ("DELETE", url), ("HEAD", url), ("PUT", "/../g")]
    {
        let body = if method == "HEAD" { "X: y" } else { "Content-Length: 1000000\r\nExpect: 100-continue" };
        let line = "Authorization: Bearer s3cre";
        let text = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n{line}\r\n{body}\r\n\r\n");
        let answer = Talk::to(&site).ask(&text, b"");
        assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some("Bearer")), "{method}");
    }
    // Reading and asking need none.
    assert_eq!((site.get("/f", &[]).status, site.ask("HEAD", "/f", &[]).status), (200, 200));
    assert_eq!(site.ask("OPTIONS", "/f", &[]).status, 204);
    assert_eq!((names(&site), content(&site, "f")), (vec!["f".to_owned()], b"content".to_vec()));
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
    // What other users of a shared directory may have planted.
    let planted = |name: &str| site.dir.path().join(name);
    symlink(outside.path().join("file"), planted("a.longhaul-part")).unwrap();
    std::fs::create_dir(planted("b.longhaul-part")).unwrap();
    symlink("file", planted("c.longhaul-journal")).unwrap();
    std::fs::create_dir(planted("e.longhaul-journal")).unwrap();
    std::os::unix::net::UnixListener::bind(planted("d.longhaul-part")).unwrap();
    let _ = ["c", "e"].map(|name| site.write(&format!("{name}.longhaul-part"), b""));
    let before = names(&site);
    for (status, targets) in [
        (400, "/..%2ff etc/f"),
        (403, "/../f /dir/%2e%2e/%2E%2e/f /out/f /link /fifo /in"),
        (403, "/a /b /c /d /e"),
        (403, "/.hidden /.git/f /f.longhaul-part /f.longhaul-journal /f.longhaul-journal~"),
        (409, "//etc/f /dir /dir/ /new/ / /none/f /file/f"),
        (414, &format!("/{}", "x".repeat(300))),
    ] {
        for target in targets.split(' ') {
            let part = patch(&format!("{target}?upload={ID}"), 0, 5, 5, true);
            for request in [head("PUT", target, &["Content-Length: 5"]), part] {
                assert_eq!(self::status(&site, &expect(&request), b""), status, "{request}");
            }
        }
    }
    assert_eq!(names(&site), before);
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(site.dir.path().join("dir")).unwrap().count(), 0);
    // A link that stays inside is a way like any other.
    assert_eq!(put(&site, "/in/f", b"ok"), 201);
    assert_eq!(content(&site, "dir/f"), b"ok");
}

#[test]
fn parts_that_do_not_follow_what_is_there() {
    let (site, url) = (writable(), resource("f", ID));
    let mut talk = Talk::to(&site);
    let at = |answer: &Answer| (answer.status, answer.header("upload-offset").map(str::to_owned));
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
        assert_eq!(status(&site, &request, b""), 423);
    }
    assert_eq!(first.ask("", b"67890").status, 201);
    assert_eq!((content(&site, "f"), names(&site)), (b"1234567890".to_vec(), vec!["f".to_owned()]));
}

/// The body is more than the sockets hold: the server reads all of it, so that no reset overtakes
/// the answer.
#[test]
fn client_that_sends_at_once_still_receives_the_refusal() {
    assert_eq!(put(&writable(), "/none/f", &noise(32 << 20)), 409);
}

#[test]
fn file_larger_than_the_disk_is_refused_before_its_first_byte() {
    let (site, url) = (writable(), resource("f", ID));
    let paused = resource("f", UploadId::new([1; 16]));
    let size = 900_000_000_000_000usize;
    let put = |size: u64| head("PUT", "/f", &[&format!("Content-Length: {size}")]);
    for is_paused in [false, true] {
        for request in [patch(&url, 0, 5, size, false), put(size as u64)] {
            // Too much for the disk, or for one file of this file system.
            let status = status(&site, &expect(&request), b"");
            assert!(matches!(status, 507 | 413), "{status}");
            // It takes nothing away from an upload that is paused.
            assert_eq!(offset(&site, &paused), if is_paused { "5" } else { "" });
        }
        if !is_paused {
            // No file has a size of more than 63 bits.
            for size in [1 << 63, u64::MAX] {
                let of_that = range(&url, 0..5, 9).replace("0-4/9", &format!("0-4/{size}"));
                for request in [put(size), of_that] {
                    assert_eq!(status(&site, &expect(&request), b""), 413, "{size}");
                }
            }
            assert_eq!(names(&site).len(), 0);
            assert_eq!(status(&site, &patch(&paused, 0, 5, 9, false), b"12345"), 204);
        }
    }
    assert_eq!(status(&site, &patch(&paused, 5, 4, 9, true), b"6789"), 201);
    assert_eq!(content(&site, "f"), b"123456789");
}
