//! Round trips of a put: the server answers nothing until a whole flight of requests has arrived.

use super::{MADE, RESUMABLE, method, put_of, put_to, read, requests_of};
use crate::support::{HttpRequest, Peer, RelayAction, Server, Writable, content, relay, relay_as, same};

const SIZE: usize = (3 << 20) + 77;

/// Reads the next request, which must have this method.
fn expect(peer: &mut Peer, wanted: &str) -> HttpRequest {
    let request = peer.read_request().unwrap();
    assert_eq!(method(&request), wanted);
    request
}

#[test]
fn questions_come_in_one_flight_and_all_else_in_the_next() {
    let bytes = content(SIZE, 1);
    for options in [&[][..], &["--no-verify"]] {
        let (sent, verifies) = (bytes.clone(), options.is_empty());
        let server = Server::once(move |peer| {
            // The first flight.
            expect(peer, "OPTIONS");
            let held = expect(peer, "HEAD");
            assert!(held.target.starts_with("/f?upload="), "{held:?}");
            peer.send(format!("HTTP/1.1 {RESUMABLE}\r\n\r\nHTTP/1.1 404 No\r\n\r\n"));
            // The second flight: nothing is answered before the request that completes the upload has arrived.
            let part = expect(peer, "PATCH");
            assert_eq!((part.field("expect"), part.field("upload-offset")), (None, Some("0")));
            assert!(read(peer, sent.len()) == sent);
            let complete = expect(peer, "PATCH");
            assert_eq!(complete.field("upload-complete"), Some("?1"));
            assert_eq!(complete.field("repr-digest").is_some(), verifies);
            peer.send(format!("HTTP/1.1 204 Got\r\nUpload-Offset: {SIZE}\r\n\r\nHTTP/1.1 {MADE}\r\n\r\n"));
            peer.close();
        });
        let run = put_of(&bytes, &["--retries", "0", "--stall-timeout", "20s", "f", &server.url("/f")]);
        let ended = run.args(options).run().ok();
        assert_eq!(server.requests().len(), 4, "{ended:?}");
    }
}

#[test]
fn server_without_pipelining_gets_the_file() {
    let site = Writable::start();
    let bytes = content(SIZE, 2);
    // A connection for each response; requests pipelined behind it are lost.
    let server = relay_as(site.address(), |request, _| {
        RelayAction::Head(request.head.replacen("\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1))
    });
    put_to(&server.url("/f"), &site, &bytes).run().ok();
    same(site.path("f"), &bytes);
    assert_eq!(site.names(), ["f"]);
}

#[test]
fn refused_query_makes_the_body_wait_for_100_continue() {
    let site = Writable::start();
    let server = relay(site.address(), |_, _| true);
    put_to(&server.url("/none/f"), &site, &content(1 << 20, 4)).run().fails(73, &["409", "directory"]);
    assert_eq!(requests_of(&server, "PATCH")[0].field("expect"), Some("100-continue"));
}
