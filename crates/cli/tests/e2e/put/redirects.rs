//! Servers that redirect uploads: storage doors that select a pool, and load balancers.

use std::io::{Read, copy, sink};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::resuming::{SLOWLY, synced};
use super::{
    MADE, RESUMABLE, UNKNOWN, answering, body, is_verified, method, permit, put_of, put_to, read,
    requests_of, to,
};
use crate::support::{HttpRequest, RelayAction, Server, Writable, content, relay_as, same};

/// A front that redirects every request to the URL of `place`, and accepts no body.
fn front(place: impl Fn(&HttpRequest) -> String + Send + Sync + 'static) -> (Server, Arc<AtomicBool>) {
    door(move |request| format!("307 There\r\nLocation: {}\r\nContent-Length: 0", place(request)))
}

/// A server that accepts no body; returns also whether it has received a part of one.
fn door(answer: impl Fn(&HttpRequest) -> String + Send + Sync + 'static) -> (Server, Arc<AtomicBool>) {
    let got_body = Arc::new(AtomicBool::new(false));
    let received = Arc::clone(&got_body);
    let server = answering(move |peer, request| {
        let answer = answer(request);
        if request.field("expect").is_none() {
            return answer;
        }
        peer.send(format!("HTTP/1.1 {answer}\r\n\r\n"));
        received.fetch_or(!read(peer, 1).is_empty(), Ordering::SeqCst);
        String::new()
    });
    (server, got_body)
}

/// A pool in front of a real server: it accepts signed requests, and has the real server's token.
///
/// The first connection with a body is cut after `cut` bytes.
fn pool(to: SocketAddr, cut: Option<u64>) -> Server {
    let bodies = AtomicUsize::new(0);
    relay_as(to, move |request, peer| {
        if !request.target.contains("signed=yes") || request.field("authorization").is_some() {
            peer.send("HTTP/1.1 403 Not signed\r\nContent-Length: 0\r\n\r\n");
            return RelayAction::Cut;
        }
        let has_body = request.field("content-length").is_some_and(|length| length != "0");
        match cut.filter(|_| has_body && bodies.fetch_add(1, Ordering::SeqCst) == 0) {
            Some(cut) => {
                permit(peer, request);
                let _ = copy(&mut (&peer.stream).take(cut), &mut sink());
                let _ = peer.stream.shutdown(Shutdown::Both);
                RelayAction::Cut
            }
            None => {
                RelayAction::Head(request.head.replacen("\r\n", "\r\nAuthorization: Bearer sesame\r\n", 1))
            }
        }
    })
}

/// Adds a signature to the query of a target.
fn signed(target: &str) -> String {
    format!("{target}{}signed=yes", if target.contains('?') { '&' } else { '?' })
}

#[test]
fn file_arrives_and_is_verified_behind_a_front_that_redirects_every_request() {
    let site = Writable::start();
    let bytes = content((9 << 20) + 77, 1);
    for drops_query in [false, true] {
        let pool = pool(site.address(), None);
        let base = pool.url("");
        let (front, got_body) = front(move |request| {
            let path = if drops_query { request.target.split('?').next().unwrap() } else { &request.target };
            format!("{base}{}", signed(path))
        });
        for reader in ["sendfile", "direct"] {
            let run = put_to(&front.url("/f"), &site, &bytes).args(["--reader", reader]);
            assert!(is_verified(&run.run().ok()));
            site.hands_over(&bytes);
        }
        assert!(!got_body.load(Ordering::SeqCst), "the front got a part of the body");
        let is_authorised = |request: &HttpRequest| request.field("authorization").is_some();
        assert!(front.requests().iter().all(is_authorised));
        assert!(!pool.requests().iter().any(is_authorised), "the token left its origin");
    }
}

#[test]
fn token_follows_redirects_within_the_origin() {
    let site = Writable::start();
    let bytes = content(3 << 20, 2);
    let door = relay_as(site.address(), |request, peer| match request.target.strip_prefix("/door") {
        Some(rest) => {
            peer.send(format!("HTTP/1.1 308 There\r\nLocation: {rest}\r\nContent-Length: 0\r\n\r\n"));
            RelayAction::Answered
        }
        None => RelayAction::Head(request.head.clone()),
    });
    put_to(&door.url("/door/f"), &site, &bytes).run().ok();
    same(site.path("f"), &bytes);
}

#[test]
fn upload_resumes_at_another_pool_after_a_break() {
    let site = Writable::start();
    let bytes = content(24 << 20, 3);
    // A part of the file is stored by an interrupted run.
    let run = to(&site, "/f", &bytes).args(SLOWLY);
    let mut running = run.start();
    let stored = synced(&mut running, &site);
    drop(running);
    // The first pool accepts a little more and breaks; the second shares its storage.
    let pools = [pool(site.address(), Some(1 << 20)), pool(site.address(), None)];
    let bases = [pools[0].url(""), pools[1].url("")];
    let (front, _) = front(move |request| {
        // The first redirect is used until the pool breaks.
        let is_first = method(request) == "OPTIONS";
        format!("{}{}", bases[usize::from(!is_first)], signed(&request.target))
    });
    let run = run.again(["--json", "--streams", "1", "--token"]).args([site.token()]);
    let run = run.args(["f", &front.url("/f")]);
    let done = run.run().ok().done();
    assert!(done["resumed"].as_u64() >= Some(stored), "{done}");
    same(site.path("f"), &bytes);
    let sent = |pool: &Server| {
        let parts = requests_of(pool, "PATCH").into_iter();
        parts.map(|request| request.field("content-length").unwrap().parse().unwrap()).collect::<Vec<u64>>()
    };
    let [first, second] = pools.each_ref().map(sent);
    assert_eq!((first.len(), second.len()), (1, 2), "{first:?}, {second:?}");
    // What was there is not sent again.
    assert!(second[0] <= first[0] && second[0] <= (24 << 20) - stored, "{first:?}, {second:?}");
}

/// A server that has `there` bytes of a file of 3 bytes, and redirects what it is sent to `place`.
fn moved(there: usize, place: impl Fn(&HttpRequest) -> String + Send + Sync + 'static) -> Server {
    answering(move |_, request| match method(request) {
        "OPTIONS" => RESUMABLE.to_owned(),
        "HEAD" => format!("204 There\r\nUpload-Offset: {there}\r\nUpload-Length: 3"),
        _ => format!("307 There\r\nLocation: {}\r\nContent-Length: 0", place(request)),
    })
}

#[test]
fn redirected_upload_resumes_from_offset_of_new_server() {
    let new = answering(|peer, request| match method(request) {
        "OPTIONS" => RESUMABLE.to_owned(),
        "HEAD" => "204 There\r\nUpload-Offset: 2\r\nUpload-Length: 3".to_owned(),
        _ if request.field("upload-complete") == Some("?1") => MADE.to_owned(),
        _ => {
            assert_eq!(body(peer, request), b"c");
            "204 Got\r\nUpload-Offset: 3".to_owned()
        }
    });
    let place = new.url("/pool/f?ticket=1");
    let old = moved(1, move |_| place.clone());
    put_of(b"abc", &["f", &old.url("/f")]).run().ok();
    let parts = requests_of(&new, "PATCH");
    assert_eq!((parts[0].field("upload-offset"), parts[0].field("content-length")), (Some("2"), Some("1")));
    assert!(parts.iter().all(|part| part.target.starts_with("/pool/f?ticket=1&upload=")), "{parts:?}");
}

#[test]
fn size_is_queried_if_only_the_put_is_redirected() {
    let bytes = content(2 << 20, 4);
    let (length, sent) = (bytes.len(), bytes.clone());
    let pool = answering(move |peer, request| {
        assert!(request.head.starts_with("PUT /pool?uuid=1 "), "{request:?}");
        assert!(body(peer, request) == sent);
        peer.send("HTTP/1.1 201 Made\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        peer.close();
        String::new()
    });
    let place = pool.url("/pool?uuid=1");
    let (door, got_body) = door(move |request| match method(request) {
        "PUT" => format!("307 There\r\nLocation: {place}\r\nContent-Length: 0"),
        "HEAD" => format!("200 OK\r\nContent-Length: {length}"),
        _ => UNKNOWN.to_owned(),
    });
    put_of(&bytes, &["f", &door.url("/f")]).run().ok();
    assert!(!got_body.load(Ordering::SeqCst), "the redirect was read late");
    assert_eq!(pool.requests().len(), 1);
}

#[test]
fn redirect_after_the_body_is_followed_with_the_body() {
    let bytes = content(100_000, 5);
    let length = bytes.len();
    let server = answering(move |peer, request| match (method(request), request.target.as_str()) {
        ("PUT", "/new") => {
            assert_eq!(body(peer, request).len(), length);
            MADE.to_owned()
        }
        ("PUT", _) => {
            assert_eq!(read(peer, length).len(), length);
            "307 There\r\nLocation: /new\r\nContent-Length: 0".to_owned()
        }
        ("HEAD", _) => format!("200 OK\r\nContent-Length: {length}"),
        _ => UNKNOWN.to_owned(),
    });
    put_of(&bytes, &["f", &server.url("/old")]).run().ok();
}

#[test]
fn redirects_that_may_change_the_method_are_refused() {
    let elsewhere = Server::answering(format!("HTTP/1.1 {MADE}\r\n\r\n"));
    for status in [301, 302, 303] {
        // Whatever OPTIONS is answered.
        for redirected in [&["OPTIONS", "PUT"][..], &["PUT"]] {
            let to = elsewhere.url("/f");
            let server = answering(move |_, request| match redirected.contains(&method(request)) {
                true => format!("{status} Go\r\nLocation: {to}\r\nContent-Length: 0"),
                false => UNKNOWN.to_owned(),
            });
            let ended = put_of(b"abc", &["f", &server.url("/f")]).run();
            ended.fails(76, &[&elsewhere.url("/f"), "only 307 and 308", "put to that URL itself"]);
        }
    }
    assert!(elsewhere.requests().is_empty());
}

#[test]
fn redirects_without_an_end_are_bounded() {
    // Each request is redirected to the next number.
    let next = |request: &HttpRequest, last: u32| {
        let number = request.target.trim_start_matches('/').split('?').next().unwrap().parse().unwrap_or(0);
        format!("/{}", if number == last { 0 } else { number + 1 })
    };
    for (last, word) in [(u32::MAX, "too many redirects"), (1, "in a circle")] {
        let (server, _) = front(move |request| next(request, last));
        put_of(b"abc", &["f", &server.url("/0")]).run().fails(76, &[word]);
        // One more for the HEAD that is sent with the first request.
        assert!(server.requests().len() <= 52, "{}", server.requests().len());
    }
    // Only the upload is redirected.
    let server = moved(1, move |request| next(request, 1));
    put_of(b"abc", &["f", &server.url("/0")]).run().fails(76, &["in a circle"]);
}
