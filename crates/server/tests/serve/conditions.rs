//! Validators on the wire; the whole table of precedence is tested with the pure logic.

use crate::site::{Site, curl};

#[test]
fn conditions_decide_before_the_body() {
    let site = Site::start();
    site.write("f.txt", b"content");
    let whole = site.get("/f.txt", &[]);
    let (etag, date) = (whole.header("ETag").unwrap(), whole.header("Last-Modified").unwrap());
    let past = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (lines, status) in [
        (vec![format!("If-None-Match: {etag}")], 304),
        (vec![format!("If-None-Match: \"x\", W/{etag}")], 304),
        (vec!["If-None-Match: *".to_owned()], 304),
        (vec!["If-None-Match: \"x\"".to_owned(), format!("If-Modified-Since: {date}")], 200),
        (vec![format!("If-Modified-Since: {date}")], 304),
        (vec![format!("If-Modified-Since: {past}")], 200),
        (vec![format!("If-Match: {etag}")], 200),
        (vec!["If-Match: \"x\"".to_owned()], 412),
        (vec![format!("If-Match: {etag}"), format!("If-Unmodified-Since: {past}")], 200),
        (vec![format!("If-Unmodified-Since: {past}")], 412),
        (vec![format!("If-Match: {etag}"), "Range: bytes=0-1".to_owned()], 206),
        (vec!["If-Match: \"x\"".to_owned(), "Range: bytes=90-".to_owned()], 412),
    ] {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let answer = site.get("/f.txt", &lines);
        assert_eq!(answer.status, status, "{lines:?}");
        assert_eq!(answer.header("ETag"), Some(etag));
        if status == 304 {
            assert_eq!((answer.body.as_str(), answer.header("Content-Length")), ("", None));
            assert_eq!(answer.header("Last-Modified"), Some(date));
        }
    }
}

#[test]
fn the_entity_tag_follows_the_content() {
    let site = Site::start();
    let path = site.write("f", b"one");
    let before = site.get("/f", &[]).header("ETag").unwrap().to_owned();
    assert_eq!(site.get("/f", &[]).header("ETag"), Some(before.as_str()));
    std::fs::rename(site.write("g", b"two"), path).unwrap();
    assert_ne!(site.get("/f", &[]).header("ETag"), Some(before.as_str()));
    assert!(before.starts_with('"'), "a strong tag: {before}");
}

#[test]
fn a_tag_is_weak_while_the_next_write_could_leave_it() {
    let site = Site::start();
    let path = site.write("f", b"content");
    std::fs::write(path, "changed").unwrap();
    let fresh = site.get("/f", &[]).header("ETag").unwrap().to_owned();
    assert!(fresh.starts_with("W/\""), "{fresh}");
    let resumed = site.get("/f", &[&format!("If-Range: {fresh}"), "Range: bytes=3-"]);
    assert_eq!((resumed.status, resumed.body.as_str()), (200, "changed"));
    assert_eq!(site.get("/f", &[&format!("If-None-Match: {fresh}")]).status, 304);
}

#[test]
fn head_is_gets_head() {
    let site = Site::start();
    site.write("f.txt", b"content");
    site.write("d/x", b"");
    for target in ["/f.txt", "/d/", "/d", "/missing", "/%00"] {
        let stable = |answer: &crate::site::Answer| -> Vec<String> {
            answer.head.lines().filter(|line| !line.starts_with("Date")).map(str::to_owned).collect()
        };
        let (get, head) = (site.get(target, &[]), site.ask("HEAD", target, &[]));
        assert_eq!(stable(&get), stable(&head), "{target}");
        assert_eq!((head.body.as_str(), get.body.is_empty()), ("", false), "{target}");
    }
}

#[test]
fn curl_resumes_and_revalidates() {
    let site = Site::start();
    let content = crate::site::noise(300_000);
    site.write("f", &content);
    let out = site.dir.path().join("out");
    std::fs::write(&out, &content[..100_000]).unwrap();
    let (url, out) = (site.url("/f"), out.to_str().unwrap());
    let Some((code, _)) = curl(&["-C", "-", "-o", out, &url]) else { return };
    assert_eq!(code, 0);
    assert!(std::fs::read(out).unwrap() == content);
    let tags = site.dir.path().join("tags");
    let tags = tags.to_str().unwrap();
    let save = curl(&["--etag-save", tags, "-o", "/dev/null", "-w", "%{http_code}", &url]).unwrap();
    let again = curl(&["--etag-compare", tags, "-o", "/dev/null", "-w", "%{http_code}", &url]).unwrap();
    assert_eq!((save.1.as_slice(), again.1.as_slice()), (&b"200"[..], &b"304"[..]));
}
