//! Malicious listings: each bad entry is refused by name, and the rest is fetched.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Ended, Get, ListedTarget, Scripted, Server, get, listing, names, response, same};

fn file(text: &str) -> ListedTarget {
    ListedTarget::File(text.into())
}

fn json(text: &str) -> ListedTarget {
    ListedTarget::Json(text.into())
}

fn fetch(url: &str) -> (Get, Ended) {
    let run = get().args(["-r", "-o", "in/t", url]);
    fs::create_dir(run.path("in")).unwrap();
    let ended = run.run();
    (run, ended)
}

fn fetch_from(server: &Server) -> (Get, Ended) {
    fetch(&server.url("/d/"))
}

fn refuses(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.status.code(), Some(code), "{ended:?}");
    for word in words {
        assert!(ended.stderr.contains(word), "'{word}' is missing: {ended:?}");
    }
}

/// Checks that nothing was written beyond these entries of the output.
fn only_holds(run: &Get, entries: &[&str]) {
    assert_eq!(names(&run.path("in/t")), entries);
    assert_eq!((names(&run.path("in")), names(run.dir())), (vec!["t".to_owned()], vec!["in".to_owned()]));
}

#[test]
fn names_that_lead_elsewhere() {
    let long = "x".repeat(256);
    let bad = ["../up", "/etc/x", "..", ".", "", "a/b", "nul\\u0000", &long];
    let reserved = ["good.longhaul-part", "good.longhaul-journal"];
    let mut entries: Vec<_> = bad.iter().chain(&reserved).map(|name| (*name, "file")).collect();
    entries.extend([("..", "directory"), ("../..", "directory"), ("good", "file")]);
    let server = ListedTarget::serve([("/d/", listing(&entries)), ("/d/good", file("good"))]);
    let (run, ended) = fetch_from(&server);
    let words = ["'../up'", "'/etc/x'", "'..'", "'a/b'", "nul\\x00", "longer than 255", "good.longhaul-part"];
    refuses(&ended, 65, &words);
    assert_eq!(ended.stderr.lines().filter(|line| line.contains("refused '")).count(), 12, "{ended:?}");
    only_holds(&run, &["good"]);
    assert!(server.requests().iter().all(|request| ["/d/", "/d/good"].contains(&request.target.as_str())));

    let page = "<title>Index of /d/</title><a href='../'>up</a><a href='/etc/passwd'>x</a><a href='..%2f..%2fx'>x</a>\
        <a href='http://elsewhere/d/x'>x</a><a href='?C=N'>x</a><a href='good'>x</a><a href='sub/'>x</a><a href='sub/f'>x</a>";
    let server = ListedTarget::serve([
        ("/d/", ListedTarget::Html(page.into())),
        ("/d/sub/", ListedTarget::Html("<title>Index of</title>".into())),
        ("/d/good", file("good")),
    ]);
    let (run, ended) = fetch_from(&server);
    refuses(&ended, 65, &["'../../x'"]);
    only_holds(&run, &["good", "sub"]);
}

#[test]
fn names_of_ftp_servers_that_lead_elsewhere() {
    let entries = [
        ("cdir", '-', "."),
        ("pdir", 'd', ".."),
        ("file;size=4", '-', "../up"),
        ("file;size=4", '-', "/etc/x"),
        ("file;size=4", '-', ".."),
        ("file;size=4", '-', "a/b"),
        ("file;size=4", '-', "../../d/x"),
        ("file;size=4", '-', "good.longhaul-part"),
        ("dir", 'd', "../sub"),
        ("OS.unix=symlink", 'l', "link"),
        ("OS.unix=symlink", 'l', "good link"),
        ("file;size=4;modify=never", '-', "good"),
    ];
    let facts = entries.map(|(kind, _, name)| format!("type={kind}; {name}\r\n")).concat();
    let columns =
        entries.map(|(_, kind, name)| format!("{kind}rw-r--r-- 1 a b 4 Jan 1 2020 {name}\r\n")).concat();
    for (verb, lines) in [("MLSD", facts), ("LIST", columns)] {
        let server = Scripted::new(b"good".to_vec(), move |session, command| {
            if command.verb != verb {
                let is_directory = command.rest.ends_with("/link");
                if is_directory {
                    session.reply("550 not a plain file");
                }
                return is_directory;
            }
            session.reply("150 listing");
            let sent = session.data(1).iter_mut().all(|data| data.raw(lines.as_bytes()));
            session.reply(if sent { "226 complete" } else { "426 closed" });
            true
        });
        let (run, ended) = fetch(&format!("ftp://{}/d/", server.address));
        refuses(&ended, 65, &["../up", "/etc/x", "a/b", "../../d/x", "good.longhaul-part", "../sub"]);
        only_holds(&run, &["good", "good link"]);
        let mut fetched: Vec<_> = server.commands().into_iter().map(|(_, command)| command).collect();
        fetched.retain(|command| command.starts_with("RETR") || command.starts_with("ERET"));
        assert!(
            !fetched.is_empty() && fetched.iter().all(|command| command.contains("/d/good")),
            "{fetched:?}"
        );
    }
}

#[test]
fn links_to_a_directory_in_another_spelling_and_repeated_ones_are_its_entries() {
    for (directory, linked) in [
        ("/%7Eu/", "/~u/"),
        ("/~u/", "/%7Eu/"),
        ("/%5B1%5D/", "/[1]/"),
        ("/%c3%a9/", "/%C3%A9/"),
        ("/d/", ""),
    ] {
        let links = ["a", "sub/"]
            .map(|name| format!("<a href='{linked}{name}'><img></a> <a href='{linked}{name}'>x</a>"));
        let page = format!("<title>Index of</title>{}", links.concat());
        let server = ListedTarget::serve_by(move |target| match target.rsplit('/').next() {
            Some("") if target.ends_with("/sub/") => {
                ListedTarget::Html("<title>Index of</title><a href='b'>b</a>".into())
            }
            Some("") => ListedTarget::Html(page.clone()),
            _ => file("good"),
        });
        let (run, ended) = fetch(&server.url(directory));
        ended.ok();
        same(run.path("in/t/a"), b"good");
        same(run.path("in/t/sub/b"), b"good");
    }
}

#[test]
fn directory_whose_links_lead_elsewhere_is_reported() {
    let elsewhere =
        || ListedTarget::Html("<title>Index of</title><a href='/other/x'>x</a><a href='..'>up</a>".into());
    let empty =
        || ListedTarget::Html("<title>Index of</title><a href='?C=N'>x</a><a href='..'>up</a>".into());
    // Links with a query lead to files, unless several lead to one name.
    let queried = |more: &str| {
        let links = ["index.php?p=1", "index.php?p=2", more].map(|link| format!("<a href='{link}'>x</a>"));
        ListedTarget::Html(format!("<title>Index of</title>{}", links.concat()))
    };
    for (names, code, word) in [
        ("x", 65, "links to no entry"),
        ("xy", 0, "'/other/x'"),
        ("0", 0, ""),
        ("q", 0, "(1 names, such as"),
        ("qq", 65, "links to no entry"),
    ] {
        let server = ListedTarget::serve([
            ("/x/", elsewhere()),
            ("/xy/", listing(&[("x", "directory"), ("good", "file")])),
            ("/xy/x/", elsewhere()),
            ("/xy/good", file("good")),
            ("/0/", empty()),
            ("/q/", queried("good?download=1'></a><a href='good?download=1")),
            ("/q/good?download=1", file("good")),
            ("/qq/", queried("?C=N")),
        ]);
        let (run, ended) = fetch(&server.url(&format!("/{names}/")));
        refuses(&ended, code, &[word]);
        if names == "q" {
            only_holds(&run, &["good"]);
            same(run.path("in/t/good"), b"good");
        }
    }
}

#[test]
fn page_is_read_where_the_json_is_of_another_form_and_a_directory_is_no_file() {
    let page = "<title>Index of</title><a href='/d/a'>a</a><a href='/d/sub'>sub</a>";
    let server = Server::replying(move |request| {
        let in_json = request.field("accept").is_some_and(|types| types.contains("json"));
        match &*request.target {
            "/d/sub" => response("301 Moved\r\nLocation: /d/sub/", ""),
            "/d/" if in_json => response("200 OK\r\nContent-Type: application/json", "[\"a\"]"),
            "/d/" | "/d/sub/" => response("200 OK\r\nContent-Type: text/html", page),
            _ => response("200 OK", "good"),
        }
    });
    let (run, ended) = fetch_from(&server);
    refuses(&ended, 65, &["/d/sub is a directory"]);
    same(run.path("in/t/a"), b"good");
    only_holds(&run, &["a"]);
}

#[test]
fn two_entries_of_one_name() {
    let entries = "[{\"name\":\"a\",\"type\":\"file\"},{\"name\":\"b\",\"type\":\"directory\"},{\"name\":\"x\",\"href\":\"%61\",\"type\":\"file\"},\
        {\"name\":\"a\",\"type\":\"directory\"},{\"name\":\"b\",\"type\":\"file\"}]";
    let server = ListedTarget::serve([
        ("/d/", json(entries)),
        ("/d/a", file("first")),
        ("/d/b/", listing(&[("c", "file")])),
        ("/d/b/c", file("c")),
    ]);
    let (run, ended) = fetch_from(&server);
    refuses(&ended, 65, &["a second 'a'", "a second 'b'"]);
    same(run.path("in/t/a"), b"first");
    same(run.path("in/t/b/c"), b"c");
}

#[test]
fn links_in_the_output_are_not_followed() {
    let kinds =
        [("link", "directory"), ("file", "directory"), ("final", "file"), ("dir", "file"), ("good", "file")];
    let server = ListedTarget::serve([
        ("/d/", listing(&kinds)),
        ("/d/link/", listing(&[("owned", "file")])),
        ("/d/link/owned", file("bad")),
        ("/d/final", file("bad")),
        ("/d/dir", file("bad")),
        ("/d/good", file("good")),
    ]);
    let run = get().args(["-r", "-o", "t", &server.url("/d/")]);
    let run = run.file("outside/precious", "precious").file("t/file", "mine");
    fs::create_dir(run.path("t/dir")).unwrap();
    symlink("../outside", run.path("t/link")).unwrap();
    symlink("../outside/precious", run.path("t/final")).unwrap();
    refuses(&run.run(), 73, &["t/link", "symbolic link", "t/file", "t/final", "t/dir"]);
    assert_eq!(names(&run.path("outside")), ["precious"]);
    same(run.path("outside/precious"), b"precious");
    same(run.path("t/file"), b"mine");
    same(run.path("t/good"), b"good");
}

#[test]
fn loops_end() {
    let unique = |id: &str| json(&format!("[{{\"name\":\"l\",\"type\":\"directory\",\"unique\":\"{id}\"}}]"));
    let entries = [("l", "directory"), ("moved", "directory"), ("up", "directory"), ("good", "file")];
    let server = ListedTarget::serve([
        ("/d/", listing(&entries)),
        ("/d/l/", unique("1")),
        ("/d/l/l/", unique("1")),
        ("/d/moved/", ListedTarget::Moved("/d/")),
        ("/d/up/", ListedTarget::Moved("/")),
        ("/", listing(&[("d", "directory")])),
        ("/d/good", file("good")),
    ]);
    let (run, ended) = fetch_from(&server);
    refuses(&ended, 65, &["/d/l/l/l/", "a directory that it lies in", "/d/moved/", "is not below it"]);
    same(run.path("in/t/good"), b"good");
    assert!(run.path("in/t/l/l").is_dir());

    let server = ListedTarget::serve_by(|_| listing(&[("n", "directory")]));
    refuses(&fetch_from(&server).1, 65, &["more than 100 directories deep"]);
}

#[test]
fn unusable_listing_fails_only_its_directory() {
    let entries = [
        ("cut", "directory"),
        ("page", "directory"),
        ("denied", "directory"),
        ("pipe", "other"),
        ("good", "file"),
    ];
    let server = ListedTarget::serve([
        ("/d/", listing(&entries)),
        ("/d/cut/", json("[{\"name\":\"first\",\"type\":\"file\"},")),
        ("/d/cut/first", file("first")),
        ("/d/page/", ListedTarget::Html("<title>Welcome</title><a href='x'>x</a>".into())),
        ("/d/denied/", ListedTarget::Refused(403)),
        ("/d/good", file("good")),
    ]);
    let (run, ended) = fetch_from(&server);
    refuses(&ended, 65, &["cut off", "no index", "403", "pipe"]);
    same(run.path("in/t/good"), b"good");
    same(run.path("in/t/cut/first"), b"first");
}

/// Serves empty pages; `next` returns the link to the page after the one with a query.
fn empty_pages(next: impl Fn(&str) -> String + Send + Sync + 'static) -> Server {
    ListedTarget::serve_by(move |target| {
        let link = next(target.split('?').nth(1).unwrap_or_default());
        ListedTarget::JsonWith("[]".into(), format!("Link: <{link}>; rel=next"))
    })
}

#[test]
fn next_pages_must_be_of_the_same_directory_and_end() {
    for next in ["/other/", "http://elsewhere/d/?after=a", "", "//h/d/?x", "<"] {
        let server = empty_pages(|_| next.to_owned());
        let (_, ended) = fetch_from(&server);
        // A value that is no link is ignored.
        refuses(&ended, if next.is_empty() { 0 } else { 65 }, &[]);
        assert!(server.requests().len() <= 2, "{next}");
    }
    let circle = empty_pages(|query| if query == "a" { "?b" } else { "?a" }.to_owned());
    let endless = empty_pages(|query| format!("?{query}x"));
    for (server, word, most) in
        [(circle, "a page of it before", 4), (endless, "its last pages had no entries", 110)]
    {
        refuses(&fetch_from(&server).1, 65, &[word]);
        assert!(server.requests().len() <= most, "{word}: {}", server.requests().len());
    }
}

#[test]
fn listings_under_way_are_few_however_deep_the_tree() {
    let (now, most) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let highest = Arc::clone(&most);
    let server = ListedTarget::serve_by(move |target| {
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        // The first directory of each level leads to the next level while the others are still
        // being listed.
        let is_first = target.split('/').skip(2).all(|name| matches!(name, "" | "d0"));
        let deadline = Instant::now() + Duration::from_secs(20);
        while !is_first && most.load(Ordering::SeqCst) < 4 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(if is_first { 0 } else { 50 }));
        now.fetch_sub(1, Ordering::SeqCst);
        let names: Vec<_> = (0..10).map(|n| format!("d{n}")).collect();
        let entries: Vec<_> = names.iter().map(|name| (name.as_str(), "directory")).collect();
        listing(if target.matches('/').count() < 4 { &entries } else { &[] })
    });
    refuses(&fetch_from(&server).1, 0, &[]);
    let highest = highest.load(Ordering::SeqCst);
    assert!((4..=17).contains(&highest), "{highest} listings at once");
}
