//! Round trips of a put: the server answers nothing until a whole flight of requests has arrived.

use std::fs;
use std::io::Read;
use std::time::Duration;

use crate::support::{HttpRequest, Peer, Put, RelayAction, Server, Writable, content, put, relay_as, same};

const SIZE: usize = (3 << 20) + 77;
const PARTS: &str = "HTTP/1.1 204 Yes\r\nAccept-Patch: application/partial-upload\r\n\r\n";

fn method(request: &HttpRequest) -> &str {
    request.head.split(' ').next().unwrap()
}

fn put_to(url: &str, bytes: &[u8], options: &[&str]) -> Put {
    let run = put().args(options).args(["f", url]);
    fs::write(run.path("f"), bytes).unwrap();
    run
}

/// Reads the next request, which must have this method.
fn expect(peer: &mut Peer, wanted: &str) -> HttpRequest {
    let request = peer.read_request().unwrap();
    assert_eq!(method(&request), wanted);
    request
}

#[test]
fn questions_come_in_one_flight_and_all_else_in_the_next() {
    let bytes = content(SIZE, 1);
    for verify in [true, false] {
        let sent = bytes.clone();
        let server = Server::once(move |peer| {
            // The first flight.
            expect(peer, "OPTIONS");
            let held = expect(peer, "HEAD");
            assert!(held.target.starts_with("/f?upload="), "{held:?}");
            peer.send(PARTS);
            peer.send("HTTP/1.1 404 No\r\n\r\n");
            // The second flight: nothing is answered before the request that completes the upload has arrived.
            let part = expect(peer, "PATCH");
            assert_eq!((part.field("expect"), part.field("upload-offset")), (None, Some("0")));
            let mut body = vec![0; sent.len()];
            (&peer.stream).read_exact(&mut body).unwrap();
            assert!(body == sent);
            let complete = expect(peer, "PATCH");
            assert_eq!(complete.field("upload-complete"), Some("?1"));
            assert_eq!(complete.field("repr-digest").is_some(), verify);
            peer.send(format!("HTTP/1.1 204 Got\r\nUpload-Offset: {SIZE}\r\n\r\n"));
            peer.send("HTTP/1.1 201 Made\r\nContent-Length: 0\r\n\r\n");
            peer.close();
        });
        let options: &[&str] = if verify { &["--retries", "0"] } else { &["--retries", "0", "--no-verify"] };
        let ended = put_to(&server.url("/f"), &bytes, options).args(["--stall-timeout", "20s"]).run().ok();
        assert_eq!(server.requests().len(), 4, "{ended:?}");
    }
}

#[test]
fn server_without_pipelining_gets_the_file() {
    let site = Writable::start();
    let bytes = content(SIZE, 2);
    let address = site.address();
    // A connection for each response; requests pipelined behind it are lost.
    let server = relay_as(address, |request, _| {
        let closing = request.head.replacen("\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1);
        RelayAction::Head(closing)
    });
    let run = put_to(&server.url("/f"), &bytes, &["--token"]);
    let run = run.again(["--token"]).args([site.token()]).args(["f", &server.url("/f")]);
    run.run().ok();
    same(site.path("f"), &bytes);
    assert_eq!(site.names(), ["f"]);
}

#[test]
fn refusal_amid_the_body_ends_the_put_with_its_reason() {
    for (status, code, word) in
        [(401, 77, "--token"), (403, 77, "another"), (413, 73, "smaller files"), (507, 74, "disk is full")]
    {
        for drains in [true, false] {
            let server = Server::new(move |peer| {
                while let Some(request) = peer.read_request() {
                    match method(&request) {
                        "OPTIONS" => assert!(peer.send(PARTS)),
                        "HEAD" => assert!(peer.send("HTTP/1.1 404 No\r\n\r\n")),
                        _ => {
                            peer.send(format!(
                                "HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                            ));
                            if drains {
                                peer.close();
                            }
                            return;
                        }
                    }
                }
            });
            let options = ["--limit", "20MB/s"];
            let ended = put_to(&server.url("/f"), &content(400 << 20, 3), &options).run();
            assert!(ended.time < Duration::from_secs(12), "{ended:?}");
            let ended = ended.fails(code, &[word, &status.to_string()]);
            let parts = server.requests().iter().filter(|request| method(request) == "PATCH").count();
            // After a reset the client queries the state before it sends the body again.
            assert!(parts == 1 || !drains && parts == 2, "{parts}: {ended:?}");
        }
    }
}

#[test]
fn refused_query_makes_the_body_wait_for_100_continue() {
    let site = Writable::start();
    let run = put_to(&site.url("/none/f"), &content(1 << 20, 4), &[]);
    let server = relay_as(site.address(), |request, _| RelayAction::Head(request.head.clone()));
    let run = run.again(["--token"]).args([site.token()]).args(["f", &server.url("/none/f")]);
    run.run().fails(73, &["409", "directory"]);
    let asks = server.requests();
    let part = asks.iter().find(|request| method(request) == "PATCH").unwrap();
    assert_eq!(part.field("expect"), Some("100-continue"));
}
