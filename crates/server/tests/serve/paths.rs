//! No name leads out of the directory, and none makes the server wait.

use std::os::unix::fs::symlink;

use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, OFlags, inotify, mknodat, open};

use crate::site::{Site, curl};

const SECRET: &str = "the secret";

/// A site whose parent directory holds a secret, as a sibling and behind links.
fn site() -> (tempfile::TempDir, Site) {
    let outer = tempfile::tempdir().unwrap();
    std::fs::write(outer.path().join("secret"), SECRET).unwrap();
    let root = outer.path().join("root");
    std::fs::create_dir_all(root.join("sub/deep")).unwrap();
    std::fs::write(root.join("file"), "inside").unwrap();
    std::fs::write(root.join(".hidden"), SECRET).unwrap();
    symlink("../secret", root.join("up")).unwrap();
    symlink(outer.path().join("secret"), root.join("absolute")).unwrap();
    symlink("..", root.join("parent")).unwrap();
    symlink("/proc/self/root", root.join("magic")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    symlink("../../file", root.join("sub/deep/within")).unwrap();
    mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    let site = Site::with(|config| config.files.root = root);
    (outer, site)
}

#[test]
fn nothing_above_the_root_is_reached() {
    let (outer, site) = site();
    let absolute = format!("/{}/secret", outer.path().display());
    let long = format!("/{}", "a".repeat(300));
    let deep = format!("/{}file", "x/".repeat(2500));
    for (status, targets) in [
        (400, "/../secret /sub/../../secret /%2e%2e/secret /.%2E/secret /%2e%2e%2fsecret"),
        (400, "/file%00.txt secret file:///etc/passwd"),
        (404, "/..%5csecret /%252e%252e/secret /up /absolute /parent/secret /magic/etc/passwd /loop /fifo"),
        (404, "/.hidden /%2ehidden /file/ /file/more"),
        (404, absolute.as_str()),
        (404, long.as_str()),
        (404, deep.as_str()),
    ] {
        for target in targets.split(' ') {
            let answer = site.get(target, &[]);
            assert_eq!(answer.status, status, "{}", &target[..target.len().min(80)]);
            assert!(!answer.body.contains(SECRET), "{target}");
        }
    }
    let Some((_, body)) = curl(&["--path-as-is", &site.url("/../../../../etc/passwd")]) else { return };
    assert!(!String::from_utf8_lossy(&body).contains("root:"));
}

#[test]
fn only_what_lies_inside_is_served_listed_and_redirected_to() {
    let (_outer, site) = site();
    for target in
        ["/file", "//file", "/./file", "/%66ile", "/sub/deep/within", "http://other/file", "/file?x=../y"]
    {
        let answer = site.get(target, &[]);
        assert_eq!((answer.status, answer.body.as_str()), (200, "inside"), "{target}");
    }
    for (target, location) in
        [("//sub", "/sub/"), ("/sub/deep?a=b", "/sub/deep/?a=b"), ("http://evil.example/sub", "/sub/")]
    {
        assert_eq!(site.get(target, &[]).header("Location"), Some(location), "{target}");
    }
    let page = site.get("/", &[]).body;
    for name in ["up", "absolute", "parent", "magic", "loop", "fifo", ".hidden"] {
        assert!(!page.contains(&format!(">{name}")), "{name}");
    }
    assert!(page.contains("./file") && page.contains("./sub/"));
    assert!(site.get("/sub/deep/", &[]).body.contains("./within"));
}

#[test]
fn hidden_names_are_served_on_request() {
    let site = Site::with(|config| config.files.hidden = true);
    site.write(".well-known/x", b"seen");
    assert_eq!(site.get("/.well-known/x", &[]).body, "seen");
    assert!(site.get("/", &[]).body.contains(".well-known/"));
}

#[test]
fn no_path_that_can_be_written_gives_the_secret() {
    let (_outer, site) = site();
    let piece = proptest::sample::select(vec![
        "/", "..", ".", "%2e", "%2F", "%00", "%", "up", "parent", "magic", "absolute", "secret", "sub",
        "deep", "\\", "file", "%c0%ae", "?", ";", "within", "proc", "root", "\u{ff0e}",
    ]);
    let targets = proptest::collection::vec(piece, 1..12);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    runner
        .run(&targets, |pieces| {
            let answer = site.get(&format!("/{}", pieces.concat()), &[]);
            prop_assert!(matches!(answer.status, 200 | 301 | 400 | 404), "{}", answer.status);
            prop_assert!(!answer.body.contains(SECRET) && !answer.body.contains("root:"));
            Ok(())
        })
        .unwrap();
}

#[test]
fn fifo_is_not_even_opened() {
    let (outer, site) = site();
    let fifo = outer.path().join("root/fifo");
    let events = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&events, &fifo, inotify::WatchFlags::OPEN).unwrap();
    let is_opened = || rustix::io::read(&events, &mut [0; 1000]).is_ok();
    assert_eq!(site.get("/fifo", &[]).status, 404);
    assert!(!site.get("/", &[]).body.contains("fifo"));
    assert!(!is_opened(), "the server opened the FIFO");
    open(&fifo, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
    assert!(is_opened(), "no event tells of an open FIFO");
}
