//! Ranges of one file to Apache's mod_dav_fs, and to servers that identify as such.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;

use super::scripted_dav::{DavAction, scripted_dav};
use super::{MADE, answering, body, put_of, requests_of};
use crate::support::{Apache, Ended, Put, Site, content, names, same};

const SIZE: usize = (24 << 20) + 4097;
const STREAMS: [&str; 2] = ["--streams", "3"];

fn put_json(url: &str, bytes: &[u8], options: &[&str]) -> Put {
    put_of(bytes, &["--json", "f", url]).args(options)
}

/// Puts with a login that is used only where the server requests one.
fn put_with_login(url: &str, bytes: &[u8]) -> Put {
    let run = put_json(url, bytes, &STREAMS);
    fs::write(run.path(".netrc"), "machine 127.0.0.1 login ann password secret\n").unwrap();
    run
}

/// Returns the files in a directory, with temporary ones.
fn stored(site: &Site, directory: &str) -> Vec<String> {
    let mut names = names(&site.path(directory));
    names.retain(|name| name != "private" && !name.starts_with(".DAV"));
    names
}

fn streams(ended: &Ended) -> u64 {
    ended.done()["streams"].as_u64().unwrap()
}

#[test]
fn file_arrives_over_several_streams_and_replaces_another() {
    let Some(site) = Apache::start() else { return };
    let bytes = content(SIZE, 1);
    let ca = site.ca();
    // In `dav/private` each request needs a login, in `guarded` only those that write.
    let runs: [(&str, &dyn Fn() -> Put); 6] = [
        ("dav", &|| put_json(&site.url("/dav/"), &bytes, &STREAMS)),
        ("dav", &|| put_json(&site.url("/dav/"), &bytes, &STREAMS).args(["--reader", "direct"])),
        ("dav", &|| put_json(&site.tls_url("/dav/f"), &bytes, &STREAMS).args(["--cacert"]).args([&ca])),
        ("dav/private", &|| put_with_login(&site.url("/dav/private/f"), &bytes)),
        ("guarded", &|| put_with_login(&site.url("/guarded/f"), &bytes)),
        ("guarded", &|| put_with_login(&site.url("/guarded/f"), &bytes)),
    ];
    for (number, (directory, run)) in runs.iter().enumerate() {
        let path = site.path(directory).join("f");
        assert_eq!(path.exists(), [1, 2, 5].contains(&number));
        // At this rate each stream connects before the others have sent all.
        assert_eq!(streams(&run().args(["--limit", "48MB/s"]).run().ok()), 3, "run {number}");
        same(&path, &bytes);
        assert_eq!(stored(&site, directory), ["f"], "run {number}");
        fs::write(path, "old").unwrap();
    }
}

#[test]
fn one_stream_is_one_request() {
    let Some(site) = Apache::start() else { return };
    let bytes = content(SIZE, 2);
    for options in [
        &["--streams", "1"][..],
        // Each of several requests would satisfy the condition.
        &["--streams", "4", "--header", "If-Unmodified-Since: Thu, 01 Jan 2099 00:00:00 GMT"],
    ] {
        assert_eq!(streams(&put_json(&site.url("/dav/f"), &bytes, options).run().ok()), 1, "{options:?}");
        same(site.path("dav/f"), &bytes);
        fs::remove_file(site.path("dav/f")).unwrap();
    }
}

#[test]
fn interrupted_put_leaves_the_old_file_and_nothing_else() {
    let Some(site) = Apache::start() else { return };
    for directory in ["dav", "guarded"] {
        let path = site.path(directory).join("f");
        fs::write(&path, "old").unwrap();
        let run = put_with_login(&site.url(&format!("/{directory}/f")), &content(SIZE, 3));
        let run = run.args(["--limit", "2MB/s"]);
        let mut running = run.start();
        running.until("it has begun", || stored(&site, directory).len() == 2);
        running.signal(Signal::INT);
        running.end().fails(130, &["cannot resume"]);
        assert_eq!(stored(&site, directory), ["f"]);
        same(path, b"old");
    }
}

#[test]
fn refusal_is_reported_for_the_whole_file() {
    let Some(site) = Apache::start() else { return };
    // A directory of the file's name keeps its content.
    let inner = site.path("guarded/d/inner");
    fs::create_dir_all(&inner).unwrap();
    fs::write(inner.join("precious"), "precious").unwrap();
    for path in [site.path("guarded/d"), inner.clone()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let bytes = content(SIZE, 4);
    put_with_login(&site.url("/guarded/d"), &bytes).run().fails(73, &["409"]);
    same(inner.join("precious"), b"precious");
    assert_eq!(stored(&site, "guarded"), ["d"]);
    let run = put_json(&site.url("/dav/none/f"), &bytes, &STREAMS);
    run.run().fails(73, &["409", "directory must exist"]);
    put_json(&site.url("/dav/private/f"), &bytes, &STREAMS).run().fails(77, &["401"]);
}

#[test]
fn server_without_ranges_gets_the_file_in_one_request() {
    let bytes = content(SIZE, 5);
    for refusal in [None, Some("400 No\r\nContent-Length: 0"), Some("501 No\r\nContent-Length: 0")] {
        let (server, files) = scripted_dav(move |method, request| match method {
            "MOVE" => DavAction::Answer("405 No\r\nContent-Length: 0"),
            "PUT" if request.field("content-range").is_some() => {
                refusal.map_or(DavAction::StoreWhole, DavAction::Answer)
            }
            _ => DavAction::Honest,
        });
        let ended = put_json(&server.url("/f"), &bytes, &STREAMS).run().ok();
        assert_eq!(streams(&ended), 1, "{ended:?}");
        let files = files.lock().unwrap();
        assert!(files.len() == 1 && files["/f"] == bytes, "{refusal:?}: {:?}", files.keys());
        // One byte shows it, and the file itself was never the target of a part.
        let mut parts = requests_of(&server, "PUT");
        parts.retain(|request| request.field("content-range").is_some());
        assert!(parts.len() == 1 && parts[0].target.starts_with("/f.longhaul-"), "{parts:?}");
    }
}

#[test]
fn server_that_is_not_apache_is_not_tried() {
    for server_field in ["nginx", "Apache/2.4"] {
        let server = answering(move |peer, request| match super::method(request) {
            "OPTIONS" => format!("200 OK\r\nServer: {server_field}\r\nDAV: 1,2\r\nContent-Length: 0"),
            "HEAD" => format!("200 OK\r\nContent-Length: {SIZE}"),
            _ => {
                body(peer, request);
                MADE.to_owned()
            }
        });
        put_json(&server.url("/f"), &content(SIZE, 6), &STREAMS).run().ok();
        let puts = requests_of(&server, "PUT");
        assert_eq!((puts.len(), puts[0].field("content-range")), (1, None), "{server_field}");
    }
}
