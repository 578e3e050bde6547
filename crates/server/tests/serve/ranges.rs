//! Ranges on the wire; all forms of the field are tested with the pure logic.

use std::time::{Duration, SystemTime};

use crate::site::Site;

fn site() -> Site {
    let site = Site::start();
    site.write("f.txt", b"0123456789");
    site.write("empty", b"");
    site
}

#[test]
fn range_is_sent_refused_or_ignored() {
    let site = site();
    for (target, range, status, body, content_range) in [
        ("/f.txt", "bytes=2-5", 206, "2345", Some("bytes 2-5/10")),
        ("/f.txt", "bytes=-3", 206, "789", Some("bytes 7-9/10")),
        ("/f.txt", "bytes=0-4,3-6", 206, "0123456", Some("bytes 0-6/10")),
        ("/f.txt", "bytes=10-", 416, "", Some("bytes */10")),
        ("/empty", "bytes=0-", 416, "", Some("bytes */0")),
        ("/f.txt", "bytes=5-4", 200, "0123456789", None),
        ("/empty", "bytes=-5", 200, "", None),
    ] {
        let answer = site.get(target, &[&format!("Range: {range}")]);
        assert_eq!((answer.status, answer.header("Content-Range")), (status, content_range), "{range}");
        if status != 416 {
            assert_eq!(answer.body, body, "{range}");
            assert_eq!(answer.header("Content-Length"), Some(body.len().to_string().as_str()), "{range}");
            assert_eq!(answer.header("Accept-Ranges"), Some("bytes"), "{range}");
        }
    }
    // HEAD has no range (RFC 9110, section 14.2).
    let head = site.ask("HEAD", "/f.txt", &["Range: bytes=0-1"]);
    assert_eq!((head.status, head.header("Content-Length")), (200, Some("10")));
}

#[test]
fn many_ranges_come_as_multipart() {
    let answer = site().get("/f.txt", &["Range: bytes=0-1, 4-4, -2"]);
    assert_eq!(answer.status, 206);
    let media = answer.header("Content-Type").unwrap();
    let boundary = media.strip_prefix("multipart/byteranges; boundary=").unwrap();
    let part = |(range, body)| {
        format!(
            "\r\n--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes {range}/10\r\n\r\n{body}"
        )
    };
    let parts: String = [("0-1", "01"), ("4-4", "4"), ("8-9", "89")].map(part).concat();
    let expected = format!("{parts}\r\n--{boundary}--\r\n");
    assert_eq!(answer.body, expected);
    assert_eq!(answer.header("Content-Length"), Some(expected.len().to_string().as_str()));
    assert_eq!(answer.header("Content-Range"), None);
}

#[test]
fn if_range_guards_against_another_version() {
    let site = site();
    let whole = site.get("/f.txt", &[]);
    let (etag, date) = (whole.header("ETag").unwrap(), whole.header("Last-Modified").unwrap());
    let get = |condition: &str| {
        let answer = site.get("/f.txt", &["Range: bytes=0-1", &format!("If-Range: {condition}")]);
        (answer.status, answer.body)
    };
    for (value, status) in
        [(etag, 206), (date, 206), ("\"other\"", 200), ("Sun, 06 Nov 1994 08:49:37 GMT", 200)]
    {
        assert_eq!(get(value).0, status, "{value}");
    }
    // Written just now: the reply waits until no write can keep the entity tag.
    let path = site.dir.path().join("f.txt");
    for _ in 0..3 {
        std::fs::write(&path, b"abcdefghij").unwrap();
        let fresh = site.get("/f.txt", &[]).header("ETag").unwrap().to_owned();
        assert!(fresh != etag && fresh.starts_with('"'), "{fresh}");
        assert_eq!(get(&fresh).0, 206);
    }
    // With a time of whole seconds, as some file systems keep it, the tag is weak for longer than a
    // reply waits, and no range may follow it.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let coarse = SystemTime::UNIX_EPOCH + Duration::from_secs(now + 1);
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(coarse).unwrap();
    let fresh = site.get("/f.txt", &[]).header("ETag").unwrap().to_owned();
    assert!(fresh.starts_with("W/\""), "{fresh}");
    for tag in [etag, &fresh] {
        assert_eq!(get(tag), (200, "abcdefghij".to_owned()), "{tag}");
    }
    assert_eq!(site.get("/f.txt", &[&format!("If-None-Match: {fresh}")]).status, 304);
}
