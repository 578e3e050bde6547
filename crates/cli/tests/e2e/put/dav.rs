//! Ranges of one file to Apache's mod_dav_fs, and to servers that identify as such but behave
//! differently: the file arrives anyway, or the old one stays.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::Signal;

use super::scripted_dav::{DavAction, Files, scripted_dav};
use super::streams::connected;
use super::{MADE, answering, body, put_of, requests_of};
use crate::support::{Apache, Ended, HttpRequest, Put, Server, Site, content, names, same};

const SIZE: usize = (24 << 20) + 4097;
const STREAMS: [&str; 2] = ["--streams", "3"];

fn put_json(url: &str, bytes: &[u8], options: &[&str]) -> Put {
    put_of(bytes, &["--json", "f", url]).args(options)
}

/// Puts with a login that is used only where the server requests one.
fn put_with_login(url: &str, bytes: &[u8]) -> Put {
    put_json(url, bytes, &STREAMS).file(".netrc", "machine 127.0.0.1 login ann password secret\n")
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
        let ended = run.signalled(Signal::INT, "it has begun", || stored(&site, directory).len() == 2);
        ended.fails(130, &["cannot resume"]);
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

#[track_caller]
fn only_holds(files: &Files, bytes: &[u8]) {
    let files = files.lock().unwrap();
    assert!(files.len() == 1 && files["/f"] == bytes, "{:?}", files.keys());
}

/// Puts a file to a server whose requests `play` handles; returns the end, and the server.
#[track_caller]
fn file_arrives(
    play: impl Fn(&str, &HttpRequest) -> DavAction + Send + Sync + 'static,
    options: &[&str],
) -> (Ended, Server) {
    let bytes = content(SIZE, 1);
    let (server, files) = scripted_dav(play);
    let ended = put_json(&server.url("/f"), &bytes, &STREAMS).args(options).run().ok();
    only_holds(&files, &bytes);
    (ended, server)
}

/// Returns whether the request uploads a range, except the first byte, which tests whether ranges
/// are stored.
fn is_range(method: &str, request: &HttpRequest) -> bool {
    method == "PUT" && request.field("content-range").is_some_and(|range| !range.starts_with("bytes 1-1/"))
}

fn whole_puts(server: &Server) -> usize {
    requests_of(server, "PUT").iter().filter(|request| request.target == "/f").count()
}

#[test]
fn honest_server_gets_ranges_and_a_conditional_move() {
    let (ended, server) = file_arrives(|_, _| DavAction::Honest, &[]);
    assert_eq!(ended.done()["streams"], 3, "{ended:?}");
    let condition = format!("<{}> ([\"3\"])", server.url("/f"));
    let moves = requests_of(&server, "MOVE");
    let conditions: Vec<_> = moves.iter().map(|m| (m.field("overwrite"), m.field("if"))).collect();
    assert_eq!(conditions, [(Some("F"), None), (Some("T"), Some(&*condition))]);
}

#[test]
fn refused_step_leads_to_one_put() {
    // 207 is the response if a part of a tree could not be moved.
    for answer in
        ["207 Some\r\nContent-Length: 0", "403 No\r\nContent-Length: 0", "412 No\r\nContent-Length: 0"]
    {
        one_put("a MOVE that is not done", move |method, _| match method {
            "MOVE" => DavAction::Answer(answer),
            _ => DavAction::Honest,
        });
    }
    let ranges = AtomicUsize::new(0);
    one_put("a refused range after the first", move |method, request| {
        match is_range(method, request) && ranges.fetch_add(1, Ordering::SeqCst) > 0 {
            true => DavAction::Answer("400 No\r\nContent-Length: 0"),
            false => DavAction::Honest,
        }
    });
    let sizes = AtomicUsize::new(0);
    one_put("a wrong size", move |method, request| {
        // The first HEAD is that of the test for range support.
        let is_part = method == "HEAD" && request.target.contains(".longhaul-");
        match is_part && sizes.fetch_add(1, Ordering::SeqCst) > 0 {
            true => DavAction::Answer("200 OK\r\nContent-Length: 25169920"),
            false => DavAction::Honest,
        }
    });
}

fn one_put(what: &str, play: impl Fn(&str, &HttpRequest) -> DavAction + Send + Sync + 'static) {
    let (ended, server) = file_arrives(play, &[]);
    assert!(ended.stderr.contains("sent in one piece"), "{what}: {ended:?}");
    assert_eq!(whole_puts(&server), 1, "{what}");
}

#[test]
fn target_without_an_etag_is_never_replaced_by_a_move() {
    let play = |method: &str, request: &HttpRequest| match (method, request.target.as_str()) {
        // As for a directory.
        ("HEAD", "/f") => DavAction::Answer("200 OK\r\nContent-Length: 25169921"),
        _ => DavAction::Honest,
    };
    let moves = requests_of(&file_arrives(play, &[]).1, "MOVE");
    assert!(moves.iter().all(|request| request.field("overwrite") == Some("F")), "{moves:?}");
}

#[test]
fn connection_that_is_cut_in_a_range_costs_only_that_range() {
    let ranges = AtomicUsize::new(0);
    let play = move |method: &str, request: &HttpRequest| match is_range(method, request)
        && ranges.fetch_add(1, Ordering::SeqCst) == 1
    {
        true => DavAction::Cut,
        false => DavAction::Honest,
    };
    // At this rate each stream connects before the others have sent all.
    let (ended, server) = file_arrives(play, &["--limit", "24MB/s"]);
    assert_eq!((connected(&ended), whole_puts(&server)), (3, 0), "{ended:?}");
}

#[test]
fn changed_source_keeps_the_old_file() {
    let (server, files) = scripted_dav(|_, _| DavAction::Honest);
    let run = put_json(&server.url("/f"), &content(SIZE, 7), &STREAMS).args(["--limit", "12MB/s"]);
    let mut running = run.start();
    running.until("it has begun", || files.lock().unwrap().values().any(|bytes| bytes.len() > 1 << 20));
    fs::write(run.path("f"), content(SIZE, 8)).unwrap();
    running.end().fails(65, &["changed"]);
    only_holds(&files, b"old");
}
