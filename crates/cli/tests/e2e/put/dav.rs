//! Ranges of one file to Apache's mod_dav_fs, and to servers that identify as such.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::sync::{Arc, Mutex};

use crate::support::{Apache, Ended, Put, Server, Site, content, put, same};

const SIZE: usize = (40 << 20) + 4097;

fn put_to(url: &str, bytes: &[u8], options: &[&str]) -> Put {
    let run = put().args(["--json"]).args(options).args(["f", url]);
    fs::write(run.path("f"), bytes).unwrap();
    run
}

fn names(site: &Site) -> Vec<String> {
    let names = fs::read_dir(site.path("dav")).unwrap();
    let mut names: Vec<_> = names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "private" && !name.starts_with(".DAV"));
    names.sort();
    names
}

fn streams(ended: &Ended) -> u64 {
    ended.done()["streams"].as_u64().unwrap()
}

#[test]
fn a_file_arrives_whole_over_several_streams_and_replaces_another() {
    let Some(site) = Apache::start() else { return };
    let bytes = content(SIZE, 1);
    for (options, replaces) in
        [(&["--streams", "4"][..], false), (&["--streams", "3", "--reader", "direct"], true)]
    {
        assert_eq!(site.path("dav/f").exists(), replaces);
        let ended = put_to(&site.url("/dav/"), &bytes, options).run().ok();
        assert_eq!(streams(&ended).to_string(), options[1], "{ended:?}");
        same(site.path("dav/f"), &bytes);
        assert_eq!(names(&site), ["f"]);
        fs::write(site.path("dav/f"), "old").unwrap();
    }
    let ended = put_to(&site.tls_url("/dav/tls"), &bytes, &["--streams", "3", "--cacert"]);
    let ended = ended.again(["--json", "--streams", "3", "f", &site.tls_url("/dav/tls"), "--cacert"]);
    assert_eq!(streams(&ended.args([site.ca()]).run().ok()), 3);
    same(site.path("dav/tls"), &bytes);
    // With a login that is requested by a challenge only.
    let run = put_to(&site.url("/dav/private/f"), &bytes, &["--streams", "3"]);
    fs::write(run.path(".netrc"), "machine 127.0.0.1 login ann password secret\n").unwrap();
    assert_eq!(streams(&run.run().ok()), 3);
    same(site.path("dav/private/f"), &bytes);
}

/// Uploads into a directory where only writing requires a login.
fn put_guarded(site: &Site, name: &str, bytes: &[u8]) -> Put {
    let run = put_to(&site.url(&format!("/guarded/{name}")), bytes, &["--streams", "3"]);
    fs::write(run.path(".netrc"), "machine 127.0.0.1 login ann password secret\n").unwrap();
    run
}

#[test]
fn login_for_writing_is_sent_with_every_range_and_the_move() {
    let Some(site) = Apache::start() else { return };
    let bytes = content(SIZE, 7);
    for _ in 0..2 {
        assert_eq!(streams(&put_guarded(&site, "f", &bytes).run().ok()), 3);
        same(site.path("guarded/f"), &bytes);
        let names = fs::read_dir(site.path("guarded")).unwrap().map(|name| name.unwrap().file_name());
        let names: Vec<_> = names.filter(|name| name != ".DAV").collect();
        assert_eq!(names, ["f"]);
        fs::write(site.path("guarded/f"), "old").unwrap();
    }
    // An interrupt removes the temporary file, also with a login.
    let run = put_guarded(&site, "g", &bytes).args(["--limit", "4MB/s"]);
    let parts = || {
        let names = fs::read_dir(site.path("guarded")).unwrap().map(|name| name.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().contains(".longhaul-")).count()
    };
    let mut running = run.start();
    running.until("it has begun", || parts() == 1);
    running.signal(rustix::process::Signal::INT);
    running.end().fails(130, &["cannot resume"]);
    assert_eq!(parts(), 0);
}

#[test]
fn a_directory_of_the_name_keeps_what_it_holds() {
    let Some(site) = Apache::start() else { return };
    let inner = site.path("guarded/d/inner");
    fs::create_dir_all(&inner).unwrap();
    fs::write(inner.join("precious"), "precious").unwrap();
    for path in [site.path("guarded/d"), inner.clone()] {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    put_guarded(&site, "d", &content(SIZE, 8)).run().fails(73, &["409"]);
    same(inner.join("precious"), b"precious");
    let names = fs::read_dir(site.path("guarded")).unwrap().map(|name| name.unwrap().file_name());
    assert_eq!(names.filter(|name| name.to_string_lossy().contains(".longhaul-")).count(), 0);
}

#[test]
fn one_stream_is_one_request() {
    let Some(site) = Apache::start() else { return };
    let bytes = content(SIZE, 2);
    for (options, url) in [
        (&["--streams", "1"][..], site.url("/dav/f")),
        // Each of several requests would satisfy the condition.
        (
            &["--streams", "4", "--header", "If-Unmodified-Since: Thu, 01 Jan 2099 00:00:00 GMT"],
            site.url("/dav/g"),
        ),
    ] {
        assert_eq!(streams(&put_to(&url, &bytes, options).run().ok()), 1, "{options:?}");
    }
    same(site.path("dav/f"), &bytes);
    same(site.path("dav/g"), &bytes);
}

#[test]
fn an_interrupted_put_leaves_the_old_file_and_nothing_else() {
    let Some(site) = Apache::start() else { return };
    fs::write(site.path("dav/f"), "old").unwrap();
    let run = put_to(&site.url("/dav/f"), &content(SIZE, 3), &["--streams", "4", "--limit", "4MB/s"]);
    let mut running = run.start();
    running.until("it has begun", || names(&site).len() == 2);
    running.signal(rustix::process::Signal::INT);
    running.end().fails(130, &["cannot resume"]);
    assert_eq!(names(&site), ["f"]);
    same(site.path("dav/f"), b"old");
}

#[test]
fn refusal_is_reported_for_the_whole_file() {
    let Some(site) = Apache::start() else { return };
    let run = put_to(&site.url("/dav/none/f"), &content(SIZE, 4), &["--streams", "4"]);
    run.run().fails(73, &["409", "directory must exist"]);
    let run = put_to(&site.url("/dav/private/f"), &content(SIZE, 4), &["--streams", "4"]);
    run.run().fails(77, &["401"]);
}

type Files = Arc<Mutex<HashMap<String, Vec<u8>>>>;

/// A server that identifies as Apache with mod_dav_fs, but stores a part as if it were the whole file. With `refuses`
/// it answers Content-Range with that status instead.
fn ignoring(refuses: Option<u16>) -> (Server, Files) {
    let files: Files = Arc::default();
    files.lock().unwrap().insert("/f".to_owned(), b"old".to_vec());
    let kept = Arc::clone(&files);
    let server = Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            let (method, target) =
                (request.head.split(' ').next().unwrap().to_owned(), request.target.clone());
            let size = |target: &str| kept.lock().unwrap().get(target).map(Vec::len);
            let answer = match method.as_str() {
                "OPTIONS" => "200 OK\r\nServer: Apache/2.4.62 (Unix)\r\nDAV: 1,2\r\n\
                              DAV: <http://apache.org/dav/propset/fs/1>\r\nContent-Length: 0"
                    .to_owned(),
                "HEAD" => match size(&target) {
                    Some(size) => format!("200 OK\r\nContent-Length: {size}"),
                    None => "404 No\r\nContent-Length: 0".to_owned(),
                },
                "PUT" => {
                    if request.field("expect").is_some() {
                        peer.send("HTTP/1.1 100 Continue\r\n\r\n");
                    }
                    let length = request.field("content-length").unwrap().parse().unwrap();
                    let mut body = vec![0; length];
                    (&peer.stream).read_exact(&mut body).unwrap();
                    match refuses.filter(|_| request.field("content-range").is_some()) {
                        Some(status) => format!("{status} No\r\nContent-Length: 0"),
                        None => {
                            kept.lock().unwrap().insert(target, body);
                            "204 Stored".to_owned()
                        }
                    }
                }
                "DELETE" => {
                    kept.lock().unwrap().remove(&target);
                    "204 Gone".to_owned()
                }
                _ => "405 No\r\nContent-Length: 0".to_owned(),
            };
            if !peer.send(format!("HTTP/1.1 {answer}\r\n\r\n")) {
                return;
            }
        }
    });
    (server, files)
}

#[test]
fn server_without_ranges_gets_the_file_in_one_request() {
    let bytes = content(SIZE, 5);
    for refuses in [None, Some(400), Some(501)] {
        let (server, files) = ignoring(refuses);
        let ended = put_to(&server.url("/f"), &bytes, &["--streams", "4"]).run().ok();
        assert_eq!(streams(&ended), 1, "{ended:?}");
        let files = files.lock().unwrap();
        assert!(files.len() == 1 && files["/f"] == bytes, "{refuses:?}: {:?}", files.keys());
        // The file itself was never the target of a part.
        let asks = server.requests();
        let parts = asks.iter().filter(|request| request.field("content-range").is_some());
        assert!(parts.clone().all(|request| request.target.starts_with("/f.longhaul-")));
        assert_eq!(parts.count(), 1, "one byte shows it");
    }
}

#[test]
fn a_server_that_is_not_apache_is_not_tried() {
    for server_field in ["nginx", "Apache/2.4"] {
        let server = Server::new(move |peer| {
            while let Some(request) = peer.read_request() {
                let answer = match request.head.split(' ').next().unwrap() {
                    "OPTIONS" => format!("200 OK\r\nServer: {server_field}\r\nDAV: 1,2\r\nContent-Length: 0"),
                    "HEAD" => format!("200 OK\r\nContent-Length: {SIZE}"),
                    _ => {
                        peer.send("HTTP/1.1 100 Continue\r\n\r\n");
                        let mut body = vec![0; SIZE];
                        (&peer.stream).read_exact(&mut body).unwrap();
                        "201 Made\r\nContent-Length: 0".to_owned()
                    }
                };
                peer.send(format!("HTTP/1.1 {answer}\r\n\r\n"));
            }
        });
        put_to(&server.url("/f"), &content(SIZE, 6), &["--streams", "4"]).run().ok();
        let puts: Vec<_> =
            server.requests().into_iter().filter(|request| request.head.starts_with("PUT")).collect();
        assert_eq!((puts.len(), puts[0].field("content-range")), (1, None), "{server_field}");
    }
}
