//! The pages of directories, and the headers of pages that are files.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use crate::site::Site;
use crate::uploads::{Talk, writable};

#[test]
fn names_are_escaped_in_text_and_in_links() {
    let site = Site::start();
    site.write("<img src=x onerror=alert(1)>&\"'", b"1");
    site.write("a:b #?%", b"2");
    std::fs::write(site.dir.path().join(OsStr::from_bytes(b"bad\xff\nname")), b"3").unwrap();
    let page = site.get("/", &[]);
    for part in [
        "&lt;img src=x onerror=alert(1)&gt;&amp;&quot;&#39;",
        "href=\"./a%3Ab%20%23%3F%25\"",
        "bad%FF%0Aname",
    ] {
        assert!(page.body.contains(part), "{part} in {page:?}");
    }
    for part in ["<img", "<script", "http://"] {
        assert!(!page.body.contains(part), "{part} in {page:?}");
    }
    assert!(page.header("Content-Security-Policy").unwrap().starts_with("default-src 'none'"));
    for (link, content) in [("/a%3Ab%20%23%3F%25", "2"), ("/bad%FF%0Aname", "3")] {
        assert_eq!(site.get(link, &[]).body, content);
    }
}

#[test]
fn entries_are_sorted_as_asked_directories_first() {
    let site = Site::start();
    for (name, size) in [("B", 10), ("a", 300), ("c", 2), ("z/inner", 0)] {
        site.write(name, &vec![0; size]);
    }
    for (query, order) in [
        ("", ["z/", "a", "B", "c"]),
        ("?sort=name&order=desc", ["z/", "c", "B", "a"]),
        ("?sort=size", ["z/", "c", "B", "a"]),
        ("?sort=size&order=desc", ["z/", "a", "B", "c"]),
        ("?sort=nonsense&<>", ["z/", "a", "B", "c"]),
    ] {
        let page = site.get(&format!("/{query}"), &[]).body;
        let places = order.map(|name| {
            page.find(&format!("\">{name}</a></td>")).unwrap_or_else(|| panic!("{name} in {page}"))
        });
        assert!(places.is_sorted(), "{query}: {places:?}");
    }
}

#[test]
fn page_shows_the_way_up_and_what_is_there() {
    let site = Site::start();
    site.write("x & y/sub/f.bin", &vec![0; 3 << 20]);
    let page = site.get("/x%20%26%20y/sub/", &[]).body;
    for part in [
        "<a href=\"/x%20%26%20y/\">x &amp; y</a>",
        "href=\"../\"",
        "title=\"3145728 bytes\">3 MiB<",
        "0 directories, 1 file, 3 MiB",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
}

#[test]
fn index_takes_the_place_of_the_page() {
    let site = Site::start();
    site.write("d/index.html", b"<p>mine");
    let answer = site.get("/d/", &[]);
    let media = answer.header("Content-Type");
    assert_eq!((answer.body.as_str(), media), ("<p>mine", Some("text/html; charset=utf-8")));
    assert!(answer.header("ETag").is_some());
    // Also where it leads nowhere: the names are not uncovered.
    site.write("e/secret-name", b"");
    std::os::unix::fs::symlink("index.html", site.dir.path().join("e/index.html")).unwrap();
    let answer = site.get("/e/", &[]);
    assert!(answer.status == 404 && !answer.body.contains("secret-name"), "{answer:?}");
}

#[test]
fn huge_directory_is_sorted_then_bounded() {
    let site = Site::with(|config| config.limits.listings.entries = 100);
    for i in 0..350 {
        std::fs::write(site.dir.path().join(format!("f{i:03}")), b"").unwrap();
    }
    for (target, first, last, beyond) in [("/", 0, 99, 100), ("/?order=desc", 349, 250, 249)] {
        let page = site.get(target, &[]).body;
        assert_eq!(page.matches("href=\"./f").count(), 100);
        assert!(page.contains("250 more names are not shown here"));
        let shown = [first, last, beyond].map(|number| page.contains(&format!("./f{number:03}\"")));
        assert_eq!(shown, [true, true, false], "{target}");
    }
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

#[test]
fn only_so_many_pages_are_made_at_once() {
    let none = Site::with(|config| config.limits.listings.per_disk = 0);
    none.write("f", b"x");
    let answer = none.get("/", &[]);
    assert_eq!((answer.status, answer.header("Retry-After")), (503, Some("1")));
    assert_eq!(none.get("/f", &[]).status, 200);
    let one = Site::with(|config| (config.limits.listings.per_disk, config.limits.listings.in_all) = (1, 8));
    for number in 0..1000 {
        one.write(&format!("{number:0>200}"), b"");
    }
    // Larger than what a client that does not read takes.
    let unread: Vec<_> = (0..6).map(|_| one.connect()).collect();
    let begun = unread.iter().filter(|stream| {
        (&**stream).write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        let mut status = [0; 12];
        while stream.peek(&mut status).unwrap() < status.len() {}
        status == *b"HTTP/1.1 200"
    });
    assert_eq!(begun.count(), 4, "one client has half of the places");
    let mut other = Talk(one.connect_from_another());
    other.fetch("/");
    assert_eq!(one.get("/", &[]).status, 503);
}
