//! Error responses, and malformed heads.

use std::net::TcpListener;
use std::time::Duration;

use crate::support::{Ended, File, Server, content, get, partial_files, same};

/// Fetches with one retry, unless `args` override it; checks that a failure leaves no files.
fn fetch(server: &Server, args: &[&str]) -> Ended {
    let retries = if args.contains(&"--retries") { &[] } else { &["--retries", "1"][..] };
    let run =
        get().args(["--stall-timeout", "1s", "-o", "f", &server.url("/dir/f")]).args(retries).args(args);
    let ended = run.run();
    if !ended.status.success() {
        assert!(!run.path("f").exists(), "{ended:?}");
        assert_eq!(partial_files(run.dir()), [""; 0], "{ended:?}");
    }
    ended
}

fn answer(answer: &str) -> Ended {
    fetch(&Server::answering(answer.to_owned()), &[])
}

#[test]
fn statuses_have_their_exit_codes() {
    for (status, code, word) in [
        ("400 Bad", 76, "right port"),
        ("401 Who", 77, "login"),
        ("403 No", 77, "may not"),
        ("202 Being prepared", 76, "answered 202"),
        ("204 Nothing", 76, "answered 204"),
        ("404 None", 66, "no such file"),
        ("410 Gone", 66, "no such file"),
        ("429 Slowly", 69, "later"),
        ("500 Oops", 69, "later"),
        ("503 Busy", 69, "later"),
    ] {
        let server = Server::answering(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"));
        fetch(&server, &[]).fails(code, &[&server.url("/dir/f"), &status[..3], word]);
        let tries = if matches!(code, 69) { 2 } else { 1 };
        assert_eq!(server.requests().len(), tries, "{status}");
    }
}

#[test]
fn refusal_includes_the_text_of_the_server() {
    let refused = |media_type: &str, body: &str| {
        let length = body.len();
        let ended = answer(&format!(
            "HTTP/1.1 403 Forbidden\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        ended.fails(77, &["answered 403 Forbidden: "]).error().split_once("Forbidden: ").unwrap().1.to_owned()
    };
    assert_eq!(
        refused("text/plain", "the quota of ann is used up\nask bob\n"),
        "the quota of ann is used up ask bob"
    );
    assert_eq!(
        refused("application/json", "{\"error\":\r\n \"no \x1b[2Jroom\"}"),
        "{\"error\": \"no [2Jroom\"}"
    );
    let long = refused("text/plain; charset=utf-8", &"many words ".repeat(10_000));
    assert!(long.len() < 1100 && long.ends_with(" ..."), "{long}");
    for (media_type, body) in
        [("text/html", "<p>secret"), ("text/plain", "<html>secret"), ("image/png", "secret")]
    {
        let shown = refused(media_type, body);
        assert!(shown.contains("may not have the file") && !shown.contains("secret"), "{shown}");
    }
    // A body that never arrives does not delay the error.
    let ended = answer("HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\n");
    assert!(ended.fails(77, &["may not have the file"]).time < Duration::from_secs(5));
}

#[test]
fn retry_after_is_obeyed() {
    let file = File::new(content(100_000, 1));
    for status in ["429 Slowly", "503 Busy"] {
        let served = file.clone();
        let server = Server::new(move |peer| {
            if peer.number == 0 && peer.read_request().is_some() {
                peer.send(format!("HTTP/1.1 {status}\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"));
                return peer.close();
            }
            peer.serve(&served);
        });
        let ended = fetch(&server, &["--json"]).ok();
        assert!((1000..4000).contains(&ended.time.as_millis()), "{ended:?}");
        assert!(
            ended.json().iter().any(|line| line["event"] == "retrying" && line["wait"] == 1.0),
            "{ended:?}"
        );
    }
}

#[test]
fn retry_after_of_hours_is_an_error() {
    let ended = answer("HTTP/1.1 503 Busy\r\nRetry-After: 86400\r\nContent-Length: 0\r\n\r\n");
    ended.fails(69, &["503", "in 86400 s"]);
}

#[test]
fn redirects_that_lead_nowhere() {
    for (to, word) in [
        ("/dir/f", "circle"),
        ("file:///etc/passwd", "will not follow"),
        ("http://", "will not follow"),
        ("ftp://127.0.0.1/f", "will not follow"),
    ] {
        answer(&format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"))
            .fails(76, &[word, "/dir/f"]);
    }
    answer("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n").fails(76, &["no Location", "/dir/f"]);
    let server = Server::new(|peer| {
        while let Some(request) = peer.read_request() {
            let next = format!("{}x", request.target);
            peer.send(format!("HTTP/1.1 307 Go\r\nLocation: {next}\r\nContent-Length: 0\r\n\r\n"));
        }
    });
    fetch(&server, &[]).fails(76, &["too many redirects", "/dir/f"]);
}

#[test]
fn malformed_heads_are_refused() {
    for (head, word) in [
        (format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1 << 20)), "head of more than"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello".to_owned(), "5, 6"),
        ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n".to_owned(), "-1"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n".to_owned(), "9999"),
        ("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx".to_owned(), "gzip"),
        (
            "HTTP/1.1 206 Part\r\nContent-Range: bytes 0-4/9\r\nContent-Length: 5\r\n\r\nhello".to_owned(),
            "206",
        ),
        ("\x1b]0;owned\x07\0\0hello".to_owned(), "not HTTP"),
        ("<html>no</html>".to_owned(), "not HTTP"),
        ("220 ftp.example ready\r\n".to_owned(), "FTP"),
    ] {
        let server = Server::answering(head);
        let ended = fetch(&server, &[]).fails(76, &[&server.url("/dir/f"), word]);
        assert!(!ended.stderr.chars().any(|c| c.is_control() && c != '\n'), "{ended:?}");
        assert_eq!(server.requests().len(), 1, "nothing is asked twice of a broken server");
    }
}

#[test]
fn control_characters_of_the_server_reach_no_terminal() {
    let ended = answer("HTTP/1.1 302 F\r\nLocation: http://\x1b[2Jh\u{9b}/\r\nContent-Length: 0\r\n\r\n");
    assert!(!ended.stderr.chars().any(|c| c.is_control() && c != '\n'), "{ended:?}");
}

#[test]
fn a_length_of_more_than_there_is_disk() {
    for length in [1u64 << 50, u64::MAX - 1, u64::MAX] {
        let ended = answer(&format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"));
        ended.fails(74, &["cannot reserve", "f.longhaul-part", &length.to_string()]);
    }
}

#[test]
fn no_such_range() {
    // To the first request, with or without a range; the client then requests the whole file.
    let server = Server::new(|peer| {
        while let Some(request) = peer.read_request() {
            peer.send(match request.field("range") {
                Some(_) => "HTTP/1.1 416 No\r\nContent-Range: bytes */0\r\nContent-Length: 0\r\n\r\n",
                None => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            });
        }
    });
    fetch(&server, &["--streams", "4"]).ok();
    let always =
        Server::answering("HTTP/1.1 416 No\r\nContent-Range: bytes */7\r\nContent-Length: 0\r\n\r\n");
    fetch(&always, &["--streams", "4"])
        .fails(65, &[&always.url("/dir/f"), "no such range in a file of 7 bytes"]);
    // In mid-transfer: the file has become shorter.
    let file = File::new(content(20 << 20, 2));
    let shrunk = Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            match request.range(file.bytes.len()) {
                Some((0, _)) => {
                    let (head, body) = file.answer(&request);
                    peer.send(head);
                    peer.send(body);
                }
                _ => {
                    peer.send("HTTP/1.1 416 No\r\nContent-Range: bytes */9\r\nContent-Length: 0\r\n\r\n");
                }
            }
        }
    });
    let run = get().args(["--streams", "4", "-o", "f", &shrunk.url("/f")]);
    let ended = run.run().fails(65, &[&shrunk.url("/f"), "no such range in a file of 9 bytes"]);
    assert!(ended.time < Duration::from_secs(15), "{ended:?}");
    assert!(!run.path("f").exists());
}

#[test]
fn dripping_head_times_out() {
    let server = Server::new(|peer| {
        peer.read_request();
        for byte in b"HTTP/1.1 200 OK\r\nX-Slow: ".iter().chain([b'z'; 300].iter()) {
            if !peer.send([*byte]) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let ended = fetch(&server, &["--retries", "0"]).fails(75, &[&server.url("/dir/f"), "did not finish"]);
    assert!(ended.time < Duration::from_secs(4), "{ended:?}");
}

#[test]
fn a_server_that_speaks_tls_only() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::on(listener, |peer| {
        peer.read_request();
        peer.send(b"\x15\x03\x01\x00\x02\x02\x0a");
        peer.close();
    });
    fetch(&server, &[]).fails(76, &["https://"]);
}

#[test]
fn interim_answers_and_odd_but_legal_heads() {
    for head in [
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.0 200 OK\r\n\r\n",
        "HTTP/1.1 200\r\ncontent-length:2\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 2\n\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\nContent-Encoding: identity\r\n\r\n",
        "HTTP/1.1 203 Copy\r\nContent-Length: 2, 2\r\n\r\n",
    ] {
        let server = Server::answering(format!("{head}ok"));
        let run = get().args(["--retries", "0", "-o", "f", &server.url("/")]);
        run.run().ok();
        same(run.path("f"), b"ok");
    }
}
