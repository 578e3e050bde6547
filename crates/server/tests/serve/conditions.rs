//! Validators on the wire; the whole table of precedence is tested with the pure logic.

use std::fs::File;

use crate::site::{Answer, Site};

#[test]
fn conditions_decide_before_the_body() {
    let site = Site::start();
    site.write("f.txt", b"content");
    let whole = site.get("/f.txt", &[]);
    let (etag, date) = (whole.header("ETag").unwrap(), whole.header("Last-Modified").unwrap());
    let past = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (lines, status) in [
        (format!("If-None-Match: {etag}"), 304),
        (format!("If-Modified-Since: {date}"), 304),
        (format!("If-Modified-Since: {past}"), 200),
        (format!("If-Match: {etag}"), 200),
        ("If-Match: \"x\"".to_owned(), 412),
        (format!("If-Unmodified-Since: {past}"), 412),
        (format!("If-Match: {etag}\r\nRange: bytes=0-1"), 206),
        ("If-Match: \"x\"\r\nRange: bytes=90-".to_owned(), 412),
    ] {
        let answer = site.get("/f.txt", &[&lines]);
        assert_eq!((answer.status, answer.header("ETag")), (status, Some(etag)), "{lines:?}");
        if status == 304 {
            assert_eq!((answer.body.as_str(), answer.header("Content-Length")), ("", None));
            assert_eq!(answer.header("Last-Modified"), Some(date));
        }
    }
}

#[test]
fn entity_tag_follows_the_content_and_replicas_share_it() {
    let (site, replica) = (Site::start(), Site::start());
    let tag = |site: &Site| site.get("/f", &[]).header("ETag").unwrap().to_owned();
    let path = site.write("f", b"content");
    let before = tag(&site);
    assert!(before == tag(&site) && before.starts_with('"'), "a strong tag: {before}");
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    let copy = replica.write("f", b"content");
    File::options().write(true).open(&copy).unwrap().set_modified(modified).unwrap();
    assert_eq!(before, tag(&replica));
    replica.write("f", b"another");
    std::fs::rename(site.write("g", b"two"), path).unwrap();
    for changed in [&site, &replica] {
        assert_ne!(before, tag(changed));
    }
}

#[test]
fn head_of_a_reply_is_that_of_get() {
    let site = Site::start();
    site.write("f.txt", b"content");
    site.write("d/x", b"");
    for target in ["/f.txt", "/d/", "/d", "/missing", "/%00"] {
        let stable = |answer: &Answer| -> Vec<String> {
            answer.head.lines().filter(|line| !line.starts_with("Date")).map(str::to_owned).collect()
        };
        let (get, head) = (site.get(target, &[]), site.ask("HEAD", target, &[]));
        assert_eq!(stable(&get), stable(&head), "{target}");
        assert_eq!((head.body.as_str(), get.body.is_empty()), ("", false), "{target}");
    }
}
