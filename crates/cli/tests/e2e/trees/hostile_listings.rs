//! Malicious listings: each bad entry is refused by name, and the rest is fetched.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{Ended, Get, ListedTarget, get, listing, names, same};

fn fetch(server: &crate::support::Server) -> (Get, Ended) {
    let run = get().args(["-r", "-o", "in/t", &server.url("/d/")]);
    fs::create_dir(run.path("in")).unwrap();
    let ended = run.run();
    (run, ended)
}

fn refuses(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.status.code(), Some(code), "{ended:?}");
    for word in words {
        assert!(ended.stderr.contains(word), "'{word}' is missing: {ended:?}");
    }
}

#[test]
fn names_that_lead_elsewhere() {
    let long = "x".repeat(256);
    let bad = [
        "../up",
        "/etc/x",
        "..",
        ".",
        "",
        "a/b",
        "nul\\u0000",
        &long,
        "good.longhaul-part",
        "good.longhaul-journal",
    ];
    let mut entries: Vec<_> = bad.iter().map(|name| (*name, "file")).collect();
    entries.extend([("..", "directory"), ("../..", "directory"), ("good", "file")]);
    let server =
        ListedTarget::serve([("/d/", listing(&entries)), ("/d/good", ListedTarget::File(b"good".to_vec()))]);
    let (run, ended) = fetch(&server);
    refuses(
        &ended,
        65,
        &["'../up'", "'/etc/x'", "'..'", "'a/b'", "nul\\x00", "longer than 255", "good.longhaul-part"],
    );
    assert_eq!(ended.stderr.lines().filter(|line| line.contains("refused '")).count(), 12, "{ended:?}");
    assert_eq!(names(&run.path("in/t")), ["good"]);
    assert_eq!(names(&run.path("in")), ["t"]);
    assert_eq!(names(run.dir()), ["in"]);
    assert!(server.requests().iter().all(|request| ["/d/", "/d/good"].contains(&request.target.as_str())));
}

#[test]
fn links_of_a_page_that_lead_elsewhere() {
    let page = "<title>Index of /d/</title><a href='../'>up</a><a href='/etc/passwd'>x</a><a href='..%2f..%2fx'>x</a>\
        <a href='http://elsewhere/d/x'>x</a><a href='?C=N'>x</a><a href='good'>x</a><a href='sub/'>x</a><a href='sub/f'>x</a>";
    let server = ListedTarget::serve([
        ("/d/", ListedTarget::Html(page.into())),
        ("/d/sub/", ListedTarget::Html("<title>Index of</title>".into())),
        ("/d/good", ListedTarget::File(b"good".to_vec())),
    ]);
    let (run, ended) = fetch(&server);
    refuses(&ended, 65, &["'../../x'"]);
    assert_eq!(names(&run.path("in/t")), ["good", "sub"]);
    assert_eq!(names(run.dir()), ["in"]);
}

#[test]
fn two_entries_of_one_name() {
    let entries = "[{\"name\":\"a\",\"type\":\"file\"},{\"name\":\"b\",\"type\":\"directory\"},{\"name\":\"x\",\"href\":\"%61\",\"type\":\"file\"},\
        {\"name\":\"a\",\"type\":\"directory\"},{\"name\":\"b\",\"type\":\"file\"}]";
    let server = ListedTarget::serve([
        ("/d/", ListedTarget::Json(entries.into())),
        ("/d/a", ListedTarget::File(b"first".to_vec())),
        ("/d/b/", listing(&[("c", "file")])),
        ("/d/b/c", ListedTarget::File(b"c".to_vec())),
    ]);
    let (run, ended) = fetch(&server);
    refuses(&ended, 65, &["a second 'a'", "a second 'b'"]);
    same(run.path("in/t/a"), b"first");
    same(run.path("in/t/b/c"), b"c");
}

#[test]
fn links_in_the_output_are_not_followed() {
    let server = ListedTarget::serve([
        (
            "/d/",
            listing(&[
                ("link", "directory"),
                ("file", "directory"),
                ("final", "file"),
                ("dir", "file"),
                ("good", "file"),
            ]),
        ),
        ("/d/link/", listing(&[("owned", "file")])),
        ("/d/link/owned", ListedTarget::File(b"bad".to_vec())),
        ("/d/final", ListedTarget::File(b"bad".to_vec())),
        ("/d/dir", ListedTarget::File(b"bad".to_vec())),
        ("/d/good", ListedTarget::File(b"good".to_vec())),
    ]);
    let run = get().args(["-r", "-o", "t", &server.url("/d/")]);
    fs::create_dir_all(run.path("t/dir")).unwrap();
    fs::create_dir(run.path("outside")).unwrap();
    fs::write(run.path("outside/precious"), "precious").unwrap();
    fs::write(run.path("t/file"), "mine").unwrap();
    symlink("../outside", run.path("t/link")).unwrap();
    symlink("../outside/precious", run.path("t/final")).unwrap();
    let ended = run.run();
    refuses(&ended, 73, &["t/link", "symbolic link", "t/file", "t/final", "t/dir"]);
    assert_eq!(names(&run.path("outside")), ["precious"]);
    same(run.path("outside/precious"), b"precious");
    same(run.path("t/file"), b"mine");
    same(run.path("t/good"), b"good");
}

#[test]
fn loops_end() {
    let unique = |id: &str| {
        ListedTarget::Json(format!("[{{\"name\":\"l\",\"type\":\"directory\",\"unique\":\"{id}\"}}]"))
    };
    let server = ListedTarget::serve([
        (
            "/d/",
            listing(&[("l", "directory"), ("moved", "directory"), ("up", "directory"), ("good", "file")]),
        ),
        ("/d/l/", unique("1")),
        ("/d/l/l/", unique("1")),
        ("/d/moved/", ListedTarget::Moved("/d/")),
        ("/d/up/", ListedTarget::Moved("/")),
        ("/", listing(&[("d", "directory")])),
        ("/d/good", ListedTarget::File(b"good".to_vec())),
    ]);
    let (run, ended) = fetch(&server);
    refuses(&ended, 65, &["/d/l/l/l/", "a directory that it lies in", "/d/moved/", "is not below it"]);
    same(run.path("in/t/good"), b"good");
    assert!(run.path("in/t/l/l").is_dir());
}

#[test]
fn endless_depth_ends() {
    let server = crate::support::Server::new(|peer| {
        while let Some(_ask) = peer.read_request() {
            let text = "[{\"name\":\"n\",\"type\":\"directory\"}]";
            let length = text.len();
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{text}"
            );
            if !peer.send(head) {
                return;
            }
        }
    });
    let (_, ended) = fetch(&server);
    refuses(&ended, 65, &["more than 100 directories deep"]);
}

#[test]
fn unusable_listing_fails_only_its_directory() {
    let server = ListedTarget::serve([
        (
            "/d/",
            listing(&[
                ("cut", "directory"),
                ("page", "directory"),
                ("denied", "directory"),
                ("pipe", "other"),
                ("good", "file"),
            ]),
        ),
        ("/d/cut/", ListedTarget::Json("[{\"name\":\"first\",\"type\":\"file\"},".into())),
        ("/d/cut/first", ListedTarget::File(b"first".to_vec())),
        ("/d/page/", ListedTarget::Html("<title>Welcome</title><a href='x'>x</a>".into())),
        ("/d/denied/", ListedTarget::Refused(403)),
        ("/d/good", ListedTarget::File(b"good".to_vec())),
    ]);
    let (run, ended) = fetch(&server);
    refuses(&ended, 65, &["cut off", "no index", "403", "pipe"]);
    same(run.path("in/t/good"), b"good");
    same(run.path("in/t/cut/first"), b"first");
}

#[test]
fn next_page_must_be_of_the_same_directory() {
    for next in ["/other/", "http://elsewhere/d/?after=a", "", "//h/d/?x", "<"] {
        let server = crate::support::Server::new(move |peer| {
            while peer.read_request().is_some() {
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nLink: <{next}>; rel=next\r\nContent-Length: 2\r\n\r\n[]"
                );
                if !peer.send(head) {
                    return;
                }
            }
        });
        let (_, ended) = fetch(&server);
        // A value that is no link is ignored.
        let expected = if next.is_empty() { 0 } else { 65 };
        assert_eq!(ended.status.code(), Some(expected), "{next}: {ended:?}");
        assert!(server.requests().len() <= 2, "{next}");
    }
}

/// Serves empty pages; `next` returns the page after the one with a query.
fn empty_pages(next: impl Fn(&str) -> String + Send + Sync + 'static) -> crate::support::Server {
    crate::support::Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            let query = request.target.split('?').nth(1).unwrap_or_default();
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nLink: <?{}>; rel=next\r\nContent-Length: 2\r\n\r\n[]",
                next(query)
            );
            if !peer.send(head) {
                return;
            }
        }
    })
}

#[test]
fn pages_that_lead_in_a_circle_end() {
    let server = empty_pages(|query| if query == "a" { "b".into() } else { "a".into() });
    let (_, ended) = fetch(&server);
    refuses(&ended, 65, &["a page of it before"]);
    assert!(server.requests().len() <= 4);
}

#[test]
fn empty_pages_without_end_end() {
    let server = empty_pages(|query| format!("{query}x"));
    let (_, ended) = fetch(&server);
    refuses(&ended, 65, &["its last pages had no entries"]);
    assert!(server.requests().len() <= 110);
}

#[test]
fn listings_under_way_are_few_however_deep_the_tree() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let highest = Arc::clone(&most);
    let server = crate::support::Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            let names: Vec<String> = (0..20).map(|n| format!("d{n:02}")).collect();
            let entries: Vec<_> = names.iter().map(|name| (name.as_str(), "directory")).collect();
            let depth = request.target.matches('/').count();
            let ListedTarget::Json(text) = listing(if depth < 4 { &entries } else { &[] }) else { return };
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // The first directory of each level leads to the next level while the others are still being listed.
            let is_first = request.target.split('/').skip(2).all(|name| matches!(name, "" | "d00"));
            if !is_first {
                std::thread::sleep(std::time::Duration::from_millis(150));
            }
            now.fetch_sub(1, Ordering::SeqCst);
            let length = text.len();
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{text}"
            );
            if !peer.send(head) {
                return;
            }
        }
    });
    let (_, ended) = fetch(&server);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let highest = highest.load(Ordering::SeqCst);
    assert!((4..=17).contains(&highest), "{highest} listings at once");
}
