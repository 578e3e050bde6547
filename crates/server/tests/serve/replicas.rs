//! Entity tags that replicas share, conditions of uploads, and pages that clients have uploaded.

use std::fs::File;

use crate::site::Site;
use crate::uploads::{Talk, head, writable};

#[test]
fn copy_with_the_same_time_has_the_same_entity_tag() {
    let (site, replica) = (Site::start(), Site::start());
    let path = site.write("f", b"content");
    let modified = std::fs::metadata(path).unwrap().modified().unwrap();
    let copy = replica.dir.path().join("f");
    std::fs::write(&copy, b"content").unwrap();
    File::options().write(true).open(&copy).unwrap().set_modified(modified).unwrap();
    let tag = |site: &Site| site.get("/f", &[]).header("ETag").unwrap().to_owned();
    assert_eq!(tag(&site), tag(&replica));
    replica.write("f", b"another");
    assert_ne!(tag(&site), tag(&replica));
}

#[test]
fn if_match_replaces_only_the_file_that_it_names() {
    let site = writable();
    site.write("f", b"first");
    let tag = site.get("/f", &[]).header("ETag").unwrap().to_owned();
    let mut talk = Talk::to(&site);
    let put = |name: &str, tag: &str| {
        let lines = [format!("If-Match: {tag}"), "Content-Length: 6".to_owned()];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let mut talk = Talk::to(&site);
        talk.send(&head("PUT", name, &lines), b"second");
        talk.answer().status
    };
    assert_eq!(put("/f", "\"other\""), 412);
    assert_eq!(put("/missing", "*"), 412);
    assert_eq!(std::fs::read(site.dir.path().join("f")).unwrap(), b"first");
    assert_eq!(put("/f", &tag), 204);
    assert_eq!(put("/f", &tag), 412);
    assert_eq!(std::fs::read(site.dir.path().join("f")).unwrap(), b"second");
    talk.send(&head("PUT", "/f", &["If-None-Match: *", "Content-Length: 5"]), b"third");
    assert_eq!(talk.answer().status, 412);
}

#[test]
fn uploaded_page_runs_no_scripts() {
    for (site, sandboxed) in [(writable(), true), (Site::start(), false)] {
        for name in ["page.html", "image.svg", "page.xhtml"] {
            site.write(name, b"<script>");
            let answer = site.get(&format!("/{name}"), &[]);
            let policy = answer.header("Content-Security-Policy");
            assert_eq!(policy, sandboxed.then_some("sandbox"), "{name}");
            assert_eq!(answer.header("Content-Disposition"), sandboxed.then_some("attachment"), "{name}");
        }
        site.write("f.bin", b"x");
        assert_eq!(site.get("/f.bin", &[]).header("Content-Disposition"), None);
    }
}
