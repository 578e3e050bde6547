//! Directory trees of real servers: HTTP, FTP and GridFTP.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::{Command, Stdio};

use longhaul_core::event::Event;
use longhaul_scope::record::Record;
use rustix::process::Signal;

use super::{fetch_all, put_all, tree_without};
use crate::support::{
    Apache, Globus, Nginx, Proftpd, ServerProcess, Vsftpd, Writable, age, assert_equal, content,
    fetched_and_unchanged, free_port, get, installed, many_files, same, site_dir,
};

/// nginx and Apache list no hidden files, and serve an index file instead of a listing.
const UNLISTED: [&str; 3] = [".hidden", "...", "index.html"];

#[test]
fn serve_with_every_awkward_name() {
    let server = Writable::hidden();
    let files = tree_without(&server.path("t"), &[]);
    fetch_all(&server.url("/t/"), &server.path("t"), files);
    let run = get().args(["-r", "--record", "r", &server.url("/t/")]);
    run.run().ok();
    let jobs = Record::load_jobs(&run.path("r")).unwrap();
    assert_eq!(jobs.len(), files.min(64), "a job for each file");
    assert!(jobs.iter().all(|job| matches!(job.outcome(), Some(Event::Done(_)))), "{jobs:?}");
    fs::write(server.path("t/a b"), "other").unwrap();
    let run = run.again(["-r", "--json", &server.url("/t/")]);
    let (fetched, unchanged) = fetched_and_unchanged(&run.run().ok());
    assert_eq!((fetched, unchanged.len()), (vec!["a%20b".to_owned()], files - 1));
    assert_equal(&server.path("t"), &run.path("t"));
    let run = run.again(["-r", "--json", "--no-resume", &server.url("/t/")]);
    assert_eq!(fetched_and_unchanged(&run.run().ok()).0.len(), files);
    // A file without -r has the time of its fetching.
    let run = get().args([server.url("/t/100%2525")]);
    run.run().ok();
    assert!(fs::metadata(run.path("100%25")).unwrap().mtime() > 1_000_000_000);
    same(run.path("100%25"), &content(1000, 1));
}

#[test]
fn nginx_by_json_and_by_its_pages() {
    let Some(site) = Nginx::start() else { return };
    let files = tree_without(&site.path("tree"), &UNLISTED);
    for path in ["/tree/", "/pages/"] {
        fetch_all(&site.url(path), &site.path("tree"), files);
    }
}

#[test]
fn apache_by_its_pages() {
    let Some(site) = Apache::start() else { return };
    let files = tree_without(&site.path("tree"), &UNLISTED);
    fetch_all(&site.url("/tree/"), &site.path("tree"), files);
}

#[test]
fn lighttpd_python_and_webfs_by_their_pages() {
    let dir = site_dir();
    let (tree, config) = (dir.path().join("files"), dir.path().join("lighttpd.conf"));
    // webfs links to `a:b;c` as to the scheme `a`.
    let files = tree_without(&tree, &[&UNLISTED[..], &["a:b;c"]].concat());
    for (program, arguments) in [
        ("/usr/sbin/lighttpd", "-D -f CONFIG"),
        ("/usr/bin/python3", "-m http.server --bind 127.0.0.1 --directory TREE PORT"),
        ("/usr/bin/webfsd", "-F -i 127.0.0.1 -p PORT -r TREE"),
    ] {
        let Some(program) = installed(&[program]) else { continue };
        let port = free_port();
        let root = tree.display();
        let text = format!(
            "server.document-root = \"{root}\"\nserver.bind = \"127.0.0.1\"\nserver.port = {port}\n\
             dir-listing.activate = \"enable\"\nmimetype.assign = (\"\" => \"application/octet-stream\")\n"
        );
        fs::write(&config, text).unwrap();
        let values = [
            ("CONFIG", config.display().to_string()),
            ("TREE", root.to_string()),
            ("PORT", port.to_string()),
        ];
        let arguments =
            values.iter().fold(arguments.to_owned(), |line, (name, value)| line.replace(name, value));
        let mut command = Command::new(program);
        command.args(arguments.split(' ')).stderr(Stdio::null());
        let _server = ServerProcess::listening(command, port);
        fetch_all(&format!("http://127.0.0.1:{port}/"), &tree, files);
    }
}

#[test]
fn directory_of_several_pages_and_a_name_that_is_no_text() {
    let server = Writable::start();
    let run = get().args(["-r", "-q", &server.url("/t"), "--parallel", "64"]);
    // More than the 10,000 entries of a page, most of them links to one file. All but a few exist
    // locally.
    for (directory, last) in [(server.path("t"), 10_050), (run.path("t"), 10_040)] {
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("0"), "x").unwrap();
        age(&directory, 1_000_000_000);
        for number in 1..=last {
            fs::hard_link(directory.join("0"), directory.join(number.to_string())).unwrap();
        }
    }
    fs::write(server.path("t").join(OsStr::from_bytes(b"\xff\n")), "y").unwrap();
    run.run().ok();
    assert_equal(&server.path("t"), &run.path("t"));
}

#[test]
fn many_files_arrive_although_the_run_is_killed_and_interrupted() {
    let server = Writable::start();
    many_files(&server.path("t"), 400);
    fs::write(server.path("t/large"), content(48 << 20, 5)).unwrap();
    let run = get().args(["-r", "--limit", "10Mbit", &server.url("/t/"), "-o", "here/there"]);
    for (stops, signal) in [Signal::KILL, Signal::KILL, Signal::INT].into_iter().enumerate() {
        let has_more = || {
            let count = |name| fs::read_dir(run.path("here/there").join(name)).map_or(0, Iterator::count);
            ["d0", "d1", "d2"].map(count).iter().sum::<usize>() > 50 * stops
        };
        let code = run.signalled(signal, "some files are there", has_more).status.code();
        assert_eq!(code, if signal == Signal::INT { Some(130) } else { None });
    }
    let run = run.again(["-r", &server.url("/t/"), "-o", "here/there"]);
    run.run().ok();
    assert_equal(&server.path("t"), &run.path("here/there"));
}

#[test]
fn url_without_a_listing_is_no_directory() {
    let server = Writable::start();
    fs::write(server.path("f"), content(100, 1)).unwrap();
    let run = get().args(["-r", &server.url("/f"), "-o", "t"]);
    run.run().fails(65, &["lists no files", "/f"]);
    let run = run.again(["-r", &server.url("/missing/")]);
    run.run().fails(66, &["404"]);
    assert!(!run.path("missing").exists(), "an empty directory was left");
}

#[test]
fn options_that_do_not_fit_are_refused() {
    for (args, word) in [(&["http://h/a/", "http://h/b/"][..], "one directory"), (&["http://h/..%2f/"], "-o")]
    {
        get().args(["-r"]).args(args).run().fails(64, &[word]);
    }
}

/// Before the last change of the files: a server that keeps times shows any difference.
const EARLIER: u64 = 900_000_000;

/// Returns the absolute path of `name` as a URL (RFC 1738, section 3.2.2).
fn absolute_url(server: &Globus, name: &str) -> String {
    format!("ftp://127.0.0.1:{}/{}", server.port(), server.path(name).display())
}

#[test]
fn globus() {
    let Some(server) = Globus::start() else { return };
    let tree = server.path("t");
    // Globus strips non-ASCII bytes from the paths of commands.
    let files = tree_without(&tree, &["\u{fc}\u{20ac}"]);
    fs::rename(tree.join("dir with space & \u{fc}"), tree.join("dir with space &")).unwrap();
    fetch_all(&absolute_url(&server, "t/"), &tree, files);
    put_all(&absolute_url(&server, "new/place/"), &server.path("new/place"), EARLIER);
    get().args(["-r", &absolute_url(&server, "missing/")]).run().fails(66, &["MLSD", "missing"]);

    // A loop of links to a parent directory ends.
    fs::create_dir_all(server.path("l/sub")).unwrap();
    fs::write(server.path("l/sub/f"), "f").unwrap();
    symlink("..", server.path("l/sub/up")).unwrap();
    let run = get().args(["-r", "-o", "t", &absolute_url(&server, "l/")]);
    let ended = run.run();
    assert_eq!(ended.status.code(), Some(65), "{ended:?}");
    assert!(ended.stderr.contains("a directory that it lies in"), "{ended:?}");
    same(run.path("t/sub/f"), b"f");
    // Listings do not name the root: the loop is detected at the second visit of a directory.
    assert!(!run.path("t/sub/up/sub").exists());
}

#[test]
fn proftpd() {
    let Some(server) = Proftpd::start() else { return };
    let files = tree_without(&server.path("t"), &[]);
    fetch_all(&server.url("t/"), &server.path("t"), files);
    let absolute_url = format!("ftp://ann:secret%20word@127.0.0.1:{}/new/place/", server.port());
    put_all(&absolute_url, &server.path("new/place"), EARLIER);
}

#[test]
fn vsftpd_without_mlsd() {
    let Some(server) = Vsftpd::start() else { return };
    // vsftpd lists no hidden files.
    let files = tree_without(&server.path("t"), &UNLISTED[..2]);
    fetch_all(&server.url("t/"), &server.path("t"), files);
}
