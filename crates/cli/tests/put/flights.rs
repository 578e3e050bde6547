//! How often a put waits for a round trip: the server here answers nothing until all that belongs to a flight has come.

use std::fs;
use std::io::Read;
use std::time::Duration;

use crate::support::{Ask, Peer, Put, Relayed, Server, Writable, content, put, relay_as, same};

const SIZE: usize = (3 << 20) + 77;
const PARTS: &str = "HTTP/1.1 204 Yes\r\nAccept-Patch: application/partial-upload\r\n\r\n";

fn method(ask: &Ask) -> &str {
    ask.head.split(' ').next().unwrap()
}

fn put_to(url: &str, bytes: &[u8], options: &[&str]) -> Put {
    let run = put().args(options).args(["f", url]);
    fs::write(run.path("f"), bytes).unwrap();
    run
}

/// Reads the next request, which must be of this method.
fn expect(peer: &mut Peer, wanted: &str) -> Ask {
    let ask = peer.ask().unwrap();
    assert_eq!(method(&ask), wanted);
    ask
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
            // The second: nothing is answered before the request that completes the upload is there.
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
        assert_eq!(server.asks().len(), 4, "{ended:?}");
    }
}

#[test]
fn a_server_that_answers_one_request_at_a_time_is_served_all_the_same() {
    let site = Writable::start();
    let bytes = content(SIZE, 2);
    let address = site.address();
    // A connection for each answer; what came behind the request is lost.
    let server = relay_as(address, |ask, _| {
        let closing = ask.head.replacen("\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1);
        Relayed::Head(closing)
    });
    let run = put_to(&server.url("/f"), &bytes, &["--token"]);
    let run = run.again(["--token"]).args([site.token()]).args(["f", &server.url("/f")]);
    run.run().ok();
    same(site.path("f"), &bytes);
    assert_eq!(site.names(), ["f"]);
}

#[test]
fn a_refusal_amid_the_body_ends_the_put_soon_and_says_why() {
    for (status, code, word) in
        [(401, 77, "--token"), (403, 77, "another"), (413, 73, "smaller files"), (507, 74, "disk is full")]
    {
        for drains in [true, false] {
            let server = Server::new(move |peer| {
                while let Some(ask) = peer.ask() {
                    match method(&ask) {
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
            let parts = server.asks().iter().filter(|ask| method(ask) == "PATCH").count();
            // One that was reset asks before it sends the body again.
            assert!(parts == 1 || !drains && parts == 2, "{parts}: {ended:?}");
        }
    }
}

#[test]
fn a_server_that_refuses_to_say_what_it_has_is_asked_before_the_body() {
    let site = Writable::start();
    let run = put_to(&site.url("/none/f"), &content(1 << 20, 4), &[]);
    let server = relay_as(site.address(), |ask, _| Relayed::Head(ask.head.clone()));
    let run = run.again(["--token"]).args([site.token()]).args(["f", &server.url("/none/f")]);
    run.run().fails(73, &["409", "directory"]);
    let asks = server.asks();
    let part = asks.iter().find(|ask| method(ask) == "PATCH").unwrap();
    assert_eq!(part.field("expect"), Some("100-continue"));
}
