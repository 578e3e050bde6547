//! Servers that redirect uploads: storage doors that select a pool, and load balancers.

use std::fs;
use std::io::Read;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::serve::to;
use crate::support::{HttpRequest, Peer, Put, RelayAction, Server, Writable, content, put, relay_as, same};

const EMPTY: &str = "Content-Length: 0\r\n\r\n";

fn put_of(bytes: &[u8], args: &[&str]) -> Put {
    let run = put().args(args);
    fs::write(run.path("f"), bytes).unwrap();
    run
}

/// A front that redirects every request to the URL of `place`, and accepts no body.
fn front(place: impl Fn(&HttpRequest) -> String + Send + Sync + 'static) -> (Server, Arc<AtomicBool>) {
    let got_body = Arc::new(AtomicBool::new(false));
    let messages = Arc::clone(&got_body);
    let server = Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            peer.send(format!("HTTP/1.1 307 There\r\nLocation: {}\r\n{EMPTY}", place(&request)));
            if request.field("expect").is_some() {
                messages.fetch_or(matches!(peer.stream.read(&mut [0]), Ok(1)), Ordering::SeqCst);
                return;
            }
        }
    });
    (server, got_body)
}

/// A pool in front of a real server: it accepts signed requests, and has the real server's token.
///
/// The first connections with a body are cut after the byte counts in `cuts`.
fn pool(to: SocketAddr, cuts: &'static [u64]) -> Server {
    let cut = AtomicUsize::new(0);
    relay_as(to, move |request, peer| {
        if !request.target.contains("signed=yes") || request.field("authorization").is_some() {
            peer.send(format!("HTTP/1.1 403 Not signed\r\n{EMPTY}"));
            return RelayAction::Cut;
        }
        let authorised = request.head.replacen("\r\n", "\r\nAuthorization: Bearer sesame\r\n", 1);
        if request.field("content-length").is_some_and(|length| length != "0")
            && let Some(bytes) = cuts.get(cut.fetch_add(1, Ordering::SeqCst))
        {
            peer.send("HTTP/1.1 100 Continue\r\n\r\n");
            let _ = std::io::copy(&mut (&peer.stream).take(*bytes), &mut std::io::sink());
            let _ = peer.stream.shutdown(Shutdown::Both);
            return RelayAction::Cut;
        }
        RelayAction::Head(authorised)
    })
}

/// Adds a signature to the query of a target.
fn signed(target: &str) -> String {
    format!("{target}{}signed=yes", if target.contains('?') { '&' } else { '?' })
}

#[test]
fn a_file_arrives_and_is_verified_behind_a_front_that_redirects_every_request() {
    let site = Writable::start();
    let bytes = content((9 << 20) + 77, 1);
    for drops_query in [false, true] {
        let pool = pool(site.address(), &[]);
        let base = pool.url("");
        let (front, got_body) = front(move |request| {
            let path = if drops_query { request.target.split('?').next().unwrap() } else { &request.target };
            format!("{base}{}", signed(path))
        });
        for reader in ["sendfile", "direct"] {
            let token = site.token();
            let args =
                ["--json", "--reader", reader, "--token", token.to_str().unwrap(), "f", &front.url("/f")];
            let done = put_of(&bytes, &args).run().ok().done();
            assert!(done["digest"].as_str().unwrap().starts_with("blake3:"), "{done}");
            same(site.path("f"), &bytes);
            fs::remove_file(site.path("f")).unwrap();
        }
        assert!(!got_body.load(Ordering::SeqCst), "the front got a part of the body");
        assert!(front.requests().iter().all(|request| request.field("authorization").is_some()));
        assert!(
            pool.requests().iter().all(|request| request.field("authorization").is_none()),
            "the token left its origin"
        );
    }
}

#[test]
fn token_follows_redirects_within_the_origin() {
    let site = Writable::start();
    let bytes = content(3 << 20, 2);
    let door = relay_as(site.address(), |request, peer| match request.target.strip_prefix("/door") {
        Some(rest) => {
            peer.send(format!("HTTP/1.1 308 There\r\nLocation: {rest}\r\n{EMPTY}"));
            RelayAction::Answered
        }
        None => RelayAction::Head(request.head.clone()),
    });
    let run = to(&site, "/f", &bytes);
    let run = run.again(["--token"]).args([site.token()]).args(["f", &door.url("/door/f")]);
    run.run().ok();
    same(site.path("f"), &bytes);
}

#[test]
fn upload_resumes_at_another_pool_after_a_break() {
    const SIZE: usize = 24 << 20;
    let site = Writable::start();
    let bytes = content(SIZE, 3);
    // Half of the file is stored by an interrupted run.
    let run = to(&site, "/f", &bytes).args(["--limit", "8MB/s"]);
    let running = run.start();
    std::thread::sleep(std::time::Duration::from_millis(2800));
    drop(running);
    // The first pool accepts a little more and breaks; the second shares its storage.
    let pools = [pool(site.address(), &[1 << 20]), pool(site.address(), &[])];
    let bases = [pools[0].url(""), pools[1].url("")];
    let (front, _) = front(move |request| {
        // The first redirect is used until the pool breaks.
        let first = request.head.starts_with("OPTIONS");
        format!("{}{}", bases[usize::from(!first)], signed(&request.target))
    });
    let run = run.again(["--json", "--token"]).args([site.token()]).args(["f", &front.url("/f")]);
    let done = run.run().ok().done();
    assert!(done["resumed"].as_u64() > Some(8 << 20), "{done}");
    same(site.path("f"), &bytes);
    let sent = |pool: &Server| {
        let parts = pool.requests().into_iter().filter(|request| request.head.starts_with("PATCH"));
        parts.map(|request| request.field("content-length").unwrap().parse().unwrap()).collect::<Vec<usize>>()
    };
    let [first, second] = pools.each_ref().map(sent);
    assert_eq!((first.len(), second.len()), (1, 2), "{first:?}, {second:?}");
    assert!(second[0] <= first[0] && second[0] < SIZE * 3 / 4, "what was there was sent again");
}

/// A server that accepts parts of "abc", and has `there` bytes of it.
fn takes_abc(there: usize) -> Server {
    Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            let answer = match request.head.split(' ').next().unwrap_or_default() {
                "OPTIONS" => "204 Yes\r\nAccept-Patch: application/partial-upload".to_owned(),
                "HEAD" => format!("204 There\r\nUpload-Offset: {there}\r\nUpload-Length: 3"),
                _ if request.field("upload-complete") == Some("?1") => {
                    "201 Made\r\nContent-Length: 0".to_owned()
                }
                _ => {
                    peer.send("HTTP/1.1 100 Continue\r\n\r\n");
                    let mut rest = vec![0; 3 - there];
                    (&peer.stream).read_exact(&mut rest).unwrap();
                    assert_eq!(rest, b"abc"[there..]);
                    "204 Got\r\nUpload-Offset: 3".to_owned()
                }
            };
            peer.send(format!("HTTP/1.1 {answer}\r\n\r\n"));
        }
    })
}

#[test]
fn redirected_upload_resumes_from_offset_of_new_server() {
    let new = takes_abc(2);
    let place = new.url("/pool/f?ticket=1");
    let old = Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            let answer = match request.head.split(' ').next().unwrap_or_default() {
                "OPTIONS" => "204 Yes\r\nAccept-Patch: application/partial-upload".to_owned(),
                "HEAD" => "204 There\r\nUpload-Offset: 1\r\nUpload-Length: 3".to_owned(),
                _ => format!("307 There\r\nLocation: {place}\r\nContent-Length: 0"),
            };
            peer.send(format!("HTTP/1.1 {answer}\r\n\r\n"));
        }
    });
    put_of(b"abc", &["f", &old.url("/f")]).run().ok();
    let parts: Vec<_> =
        new.requests().into_iter().filter(|request| request.head.starts_with("PATCH")).collect();
    assert_eq!((parts[0].field("upload-offset"), parts[0].field("content-length")), (Some("2"), Some("1")));
    assert!(parts.iter().all(|part| part.target.starts_with("/pool/f?ticket=1&upload=")), "{parts:?}");
}

#[test]
fn size_is_queried_if_only_the_put_is_redirected() {
    let bytes = content(2 << 20, 4);
    let (length, sent) = (bytes.len(), bytes.clone());
    let pool = Server::new(move |peer| {
        let request = peer.read_request().unwrap();
        assert!(request.head.starts_with("PUT /pool?uuid=1 "), "{request:?}");
        peer.send("HTTP/1.1 100 Continue\r\n\r\n");
        let mut body = vec![0; length];
        (&peer.stream).read_exact(&mut body).unwrap();
        assert!(body == sent);
        peer.send(format!("HTTP/1.1 201 Made\r\nConnection: close\r\n{EMPTY}"));
        peer.close();
    });
    let place = pool.url("/pool?uuid=1");
    let door = Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            peer.send(match request.head.split(' ').next() {
                Some("PUT") => format!("HTTP/1.1 307 There\r\nLocation: {place}\r\n{EMPTY}"),
                Some("HEAD") => format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"),
                _ => format!("HTTP/1.1 405 No\r\n{EMPTY}"),
            });
        }
    });
    let ended = put_of(&bytes, &["f", &door.url("/f")]).run().ok();
    assert!(ended.time.as_secs() < 2, "the redirect came late: {ended:?}");
    assert_eq!(pool.requests().len(), 1);
}

#[test]
fn redirect_after_the_body_is_followed_with_the_body() {
    let bytes = content(100_000, 5);
    let length = bytes.len();
    let server = Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            let mut body = vec![0; length];
            let answer = match (request.head.split(' ').next(), request.target.as_str()) {
                (Some("PUT"), place) => {
                    if place == "/new" {
                        peer.send("HTTP/1.1 100 Continue\r\n\r\n");
                    }
                    (&peer.stream).read_exact(&mut body).unwrap();
                    match place {
                        "/new" => format!("HTTP/1.1 201 Made\r\n{EMPTY}"),
                        _ => format!("HTTP/1.1 307 There\r\nLocation: /new\r\n{EMPTY}"),
                    }
                }
                (Some("HEAD"), _) => format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"),
                _ => format!("HTTP/1.1 405 No\r\n{EMPTY}"),
            };
            peer.send(answer);
        }
    });
    put_of(&bytes, &["f", &server.url("/old")]).run().ok();
}

#[test]
fn redirects_that_may_change_the_method_are_refused() {
    let elsewhere = Server::answering(format!("HTTP/1.1 201 Made\r\n{EMPTY}"));
    for status in [301, 302, 303] {
        for method in ["OPTIONS", "PUT"] {
            let to = elsewhere.url("/f");
            let server = Server::new(move |peer| {
                while let Some(request) = peer.read_request() {
                    peer.send(match request.head.starts_with(method) {
                        true => format!("HTTP/1.1 {status} Go\r\nLocation: {to}\r\n{EMPTY}"),
                        false => format!("HTTP/1.1 405 No\r\n{EMPTY}"),
                    });
                }
            });
            let ended = put_of(b"abc", &["f", &server.url("/f")]).run();
            ended.fails(76, &[&elsewhere.url("/f"), "only 307 and 308", "put to that URL itself"]);
        }
    }
    assert!(elsewhere.requests().is_empty());
}

/// Redirects the first request to /1, the next to /2, and so on.
fn counting(peer: &mut Peer, last: u32) {
    while let Some(request) = peer.read_request() {
        let number = request.target.trim_start_matches('/').split('?').next().unwrap().parse().unwrap_or(0);
        let next = if number == last { 0 } else { number + 1 };
        peer.send(format!("HTTP/1.1 307 On\r\nLocation: /{next}\r\n{EMPTY}"));
    }
}

#[test]
fn redirects_without_an_end_are_bounded() {
    for (last, word) in [(u32::MAX, "too many redirects"), (1, "in a circle")] {
        let server = Server::new(move |peer| counting(peer, last));
        put_of(b"abc", &["f", &server.url("/0")]).run().fails(76, &[word]);
        // One more for the HEAD that is sent with the first request.
        assert!(server.requests().len() <= 22, "{}", server.requests().len());
    }
}

#[test]
fn servers_that_redirect_the_upload_to_each_other_are_found_out() {
    let server = Server::new(|peer| {
        while let Some(request) = peer.read_request() {
            let other = if request.target.starts_with("/a") { "/b" } else { "/a" };
            let answer = match request.head.split(' ').next().unwrap_or_default() {
                "OPTIONS" => "204 Yes\r\nAccept-Patch: application/partial-upload".to_owned(),
                "HEAD" => "204 There\r\nUpload-Offset: 1\r\nUpload-Length: 3".to_owned(),
                _ => format!("307 There\r\nLocation: {other}\r\nContent-Length: 0"),
            };
            peer.send(format!("HTTP/1.1 {answer}\r\n\r\n"));
        }
    });
    put_of(b"abc", &["f", &server.url("/a")]).run().fails(76, &["in a circle"]);
}
