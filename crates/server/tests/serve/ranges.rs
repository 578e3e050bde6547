//! Single, suffix, open, multiple, overlapping and unsatisfiable ranges.

use crate::site::Site;

const DIGITS: &[u8] = b"0123456789";

fn site() -> Site {
    let site = Site::start();
    site.write("f.txt", DIGITS);
    site.write("empty", b"");
    site
}

#[test]
fn one_range_of_every_form() {
    let site = site();
    for (range, body, content_range) in [
        ("bytes=0-0", "0", "bytes 0-0/10"),
        ("bytes=2-5", "2345", "bytes 2-5/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=-3", "789", "bytes 7-9/10"),
        ("bytes=-99", "0123456789", "bytes 0-9/10"),
        ("bytes=8-99", "89", "bytes 8-9/10"),
        ("bytes=0-4,3-6", "0123456", "bytes 0-6/10"),
        ("bytes=3-4,99-", "34", "bytes 3-4/10"),
    ] {
        let answer = site.get("/f.txt", &[&format!("Range: {range}")]);
        assert_eq!((answer.status, answer.body.as_str()), (206, body), "{range}");
        assert_eq!(answer.header("Content-Range"), Some(content_range), "{range}");
        assert_eq!(answer.header("Content-Length"), Some(body.len().to_string().as_str()));
        assert_eq!(answer.header("Accept-Ranges"), Some("bytes"));
    }
}

#[test]
fn many_ranges_come_as_multipart() {
    let site = site();
    let answer = site.get("/f.txt", &["Range: bytes=0-1, 4-4, -2"]);
    assert_eq!(answer.status, 206);
    let media = answer.header("Content-Type").unwrap();
    let boundary = media.strip_prefix("multipart/byteranges; boundary=").unwrap();
    let part = |range: &str, body: &str| {
        format!(
            "\r\n--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes {range}/10\r\n\r\n{body}"
        )
    };
    let expected =
        part("0-1", "01") + &part("4-4", "4") + &part("8-9", "89") + &format!("\r\n--{boundary}--\r\n");
    assert_eq!(answer.body, expected);
    assert_eq!(answer.header("Content-Length"), Some(expected.len().to_string().as_str()));
    assert_eq!(answer.header("Content-Range"), None);
}

#[test]
fn what_does_not_exist_is_416_with_the_size() {
    let site = site();
    let many = format!("bytes={}", (0..70).map(|i| format!("{i}-{i},")).collect::<String>());
    for (target, range, size) in [
        ("/f.txt", "bytes=10-", "bytes */10"),
        ("/f.txt", "bytes=-0", "bytes */10"),
        ("/f.txt", many.as_str(), "bytes */10"),
        ("/empty", "bytes=0-", "bytes */0"),
    ] {
        let answer = site.get(target, &[&format!("Range: {range}")]);
        assert_eq!((answer.status, answer.header("Content-Range")), (416, Some(size)), "{target} {range}");
    }
}

#[test]
fn what_is_no_byte_range_is_ignored() {
    let site = site();
    for range in ["lines=0-1", "bytes=5-4", "bytes=x", "bytes"] {
        let answer = site.get("/f.txt", &[&format!("Range: {range}")]);
        assert_eq!((answer.status, answer.body.as_bytes()), (200, DIGITS), "{range}");
    }
    assert_eq!(site.get("/empty", &["Range: bytes=-5"]).status, 200);
    // HEAD has no range (RFC 9110, section 14.2).
    let head = site.ask("HEAD", "/f.txt", &["Range: bytes=0-1"]);
    assert_eq!((head.status, head.header("Content-Length")), (200, Some("10")));
}

#[test]
fn if_range_guards_against_another_version() {
    let site = site();
    let path = site.dir.path().join("f.txt");
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(1000);
    std::fs::File::open(&path).unwrap().set_modified(old).unwrap();
    let whole = site.get("/f.txt", &[]);
    let (etag, date) = (whole.header("ETag").unwrap(), whole.header("Last-Modified").unwrap());
    for (value, status) in
        [(etag, 206), (date, 206), ("\"other\"", 200), ("Sun, 06 Nov 1994 08:49:37 GMT", 200)]
    {
        let answer = site.get("/f.txt", &["Range: bytes=0-1", &format!("If-Range: {value}")]);
        assert_eq!(answer.status, status, "{value}");
    }
    site.write("f.txt", b"abcdefghij");
    let answer = site.get("/f.txt", &["Range: bytes=0-1", &format!("If-Range: {etag}")]);
    assert_eq!((answer.status, answer.body.as_str()), (200, "abcdefghij"));
}
