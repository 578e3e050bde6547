//! The pages of directories.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::site::Site;

#[test]
fn names_are_escaped_in_text_and_in_links() {
    let site = Site::start();
    site.write("<img src=x onerror=alert(1)>&\"'", b"1");
    site.write("a:b #?%", b"2");
    std::fs::write(site.dir.path().join(OsStr::from_bytes(b"bad\xff\nname")), b"3").unwrap();
    let page = site.get("/", &[]);
    assert!(page.body.contains("&lt;img src=x onerror=alert(1)&gt;&amp;&quot;&#39;"));
    assert!(!page.body.contains("<img"));
    assert!(page.body.contains("href=\"./a%3Ab%20%23%3F%25\"") && page.body.contains("bad%FF%0Aname"));
    assert!(page.header("Content-Security-Policy").unwrap().starts_with("default-src 'none'"));
    assert!(!page.body.contains("<script") && !page.body.contains("http://"));
    for (link, content) in [("/a%3Ab%20%23%3F%25", "2"), ("/bad%FF%0Aname", "3")] {
        assert_eq!(site.get(link, &[]).body, content);
    }
}

#[test]
fn entries_are_sorted_as_asked_directories_first() {
    let site = Site::start();
    site.write("B", &[0; 10]);
    site.write("a", &[0; 300]);
    site.write("c", &[0; 2]);
    site.write("z/inner", b"");
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
fn a_page_shows_the_way_up_and_what_is_there() {
    let site = Site::start();
    site.write("x & y/sub/f.bin", &vec![0; 3 << 20]);
    let page = site.get("/x%20%26%20y/sub/", &[]).body;
    assert!(page.contains("<a href=\"/x%20%26%20y/\">x &amp; y</a>"));
    assert!(page.contains("href=\"../\"") && page.contains("title=\"3145728 bytes\">3 MiB<"));
    assert!(page.contains("0 directories, 1 file, 3 MiB"));
}

#[test]
fn an_index_takes_the_pages_place() {
    let site = Site::start();
    site.write("d/index.html", b"<p>mine");
    let answer = site.get("/d/", &[]);
    assert_eq!(
        (answer.body.as_str(), answer.header("Content-Type")),
        ("<p>mine", Some("text/html; charset=utf-8"))
    );
    assert!(answer.header("ETag").is_some());
}

#[test]
fn a_huge_directory_is_bounded() {
    let site = Site::with(|config| config.limits.listing = 100);
    for i in 0..350 {
        site.write(&format!("f{i:03}"), b"");
    }
    let page = site.get("/", &[]).body;
    assert_eq!(page.matches("href=\"./f").count(), 100);
    assert!(page.contains("250 more names are not shown here"));
    // Sorted before it is cut.
    assert!(page.contains("./f000\"") && page.contains("./f099\"") && !page.contains("./f100\""));
    let page = site.get("/?order=desc", &[]).body;
    assert!(page.contains("./f349\"") && page.contains("./f250\"") && !page.contains("./f249\""));
}

#[test]
fn media_types_follow_names() {
    let site = Site::start();
    for (name, media) in [
        ("a.txt", "text/plain; charset=utf-8"),
        ("a.json", "application/json"),
        ("a.png", "image/png"),
        ("a.nothing-known", "application/octet-stream"),
        ("a", "application/octet-stream"),
    ] {
        site.write(name, b"x");
        assert_eq!(site.get(&format!("/{name}"), &[]).header("Content-Type"), Some(media), "{name}");
    }
}

#[test]
fn an_index_that_leads_nowhere_good_does_not_uncover_the_names() {
    let site = Site::start();
    site.write("d/secret-name", b"");
    std::os::unix::fs::symlink("index.html", site.dir.path().join("d/index.html")).unwrap();
    let answer = site.get("/d/", &[]);
    assert_eq!(answer.status, 404);
    assert!(!answer.body.contains("secret-name"));
}

#[test]
fn only_so_many_pages_are_made_at_once() {
    let none = Site::with(|config| config.limits.pages = 0);
    none.write("f", b"x");
    let answer = none.get("/", &[]);
    assert_eq!((answer.status, answer.header("Retry-After")), (503, Some("1")));
    assert_eq!(none.get("/f", &[]).status, 200);
    let one = Site::with(|config| config.limits.pages = 1);
    for _ in 0..3 {
        assert_eq!(one.get("/", &[]).status, 200);
    }
}
