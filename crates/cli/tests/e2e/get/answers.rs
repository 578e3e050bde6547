//! Error responses, and malformed heads.

use std::time::Duration;

use super::mirrors::NOWHERE;
use crate::support::{Ended, File, Gate, Get, HttpRequest, Server, at_once, content, get, response, same};

fn run(server: &Server) -> Get {
    get().args(["--stall-timeout", "30s", "--retries", "1", "-o", "f", &server.url("/dir/f")])
}

/// Fails unless a fetch of this answer ends with `code` and `words`, and leaves no files.
#[track_caller]
fn refused(answer: impl AsRef<[u8]> + Send + Sync + 'static, code: i32, words: &[&str]) -> (Server, Ended) {
    let server = Server::answering(answer);
    let ended = run(&server).fails_without_files(code, &[&[server.url("/dir/f").as_str()], words].concat());
    assert!(!ended.stderr.chars().any(|c| c.is_control() && c != '\n'), "{ended:?}");
    (server, ended)
}

#[test]
fn statuses_have_their_exit_codes() {
    for (status, code, word) in [
        ("400 Bad", 76, "right port"),
        ("401 Who", 77, "login"),
        ("401 Who\r\nWWW-Authenticate: NTLM\r\nWWW-Authenticate: Negotiate", 77, "does not speak"),
        ("403 No", 77, "may not"),
        ("202 Being prepared", 76, "no file yet"),
        ("205 None\r\nTransfer-Encoding: chunked", 76, "no content"),
        ("206 Part\r\nTransfer-Encoding: chunked", 76, "206"),
        ("207 Others", 76, "207"),
        ("204 Nothing", 76, "no content"),
        ("226 Difference\r\nIM: vcdiff", 76, "226"),
        ("404 None", 66, "no such file"),
        ("410 Gone", 66, "no such file"),
        ("429 Slowly", 69, "later"),
        ("500 Oops", 69, "later"),
        ("503 Busy", 69, "later"),
    ] {
        let (server, _) = refused(response(status, ""), code, &[&status[..3], word]);
        assert_eq!(server.requests().len(), if code == 69 { 2 } else { 1 }, "{status}");
    }
    // A wait of hours is not awaited.
    refused(response("503 Busy\r\nRetry-After: 86400", ""), 69, &["503", "in 86400 s"]);
}

#[test]
fn refusal_includes_the_text_of_the_server() {
    let shown = |media_type: &str, body: &str| {
        let head = format!("403 Forbidden\r\nContent-Type: {media_type}");
        let (_, ended) = refused(response(&head, body), 77, &["answered 403 Forbidden: "]);
        ended.error().split_once("Forbidden: ").unwrap().1.to_owned()
    };
    assert_eq!(
        shown("application/json", "{\"error\":\r\n \"no \x1b[2Jroom\"}"),
        "{\"error\": \"no [2Jroom\"}"
    );
    let long = shown("text/plain; charset=utf-8", &"many words ".repeat(10_000));
    assert!(long.len() < 1100 && long.ends_with(" ..."), "{long}");
    let page = shown("text/html", "<p>secret");
    assert!(page.contains("may not have the file") && !page.contains("secret"), "{page}");
    // The error does not wait for a body that never arrives.
    let server = Server::new(|peer| {
        peer.read_request();
        peer.send("HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\n");
        peer.stay_silent();
    });
    run(&server).fails_without_files(77, &["may not have the file"]);
}

#[test]
fn retry_after_is_obeyed() {
    let file = File::new(content(100_000, 1));
    for status in ["429 Slowly", "503 Busy"] {
        let server = Server::with(&file, move |peer, served| match peer.number {
            0 => peer.answer(response(&format!("{status}\r\nRetry-After: 1"), "")),
            _ => peer.serve(served),
        });
        let ended = run(&server).args(["--json"]).fetches(&file.bytes);
        assert!(ended.time >= Duration::from_secs(1), "{ended:?}");
        assert_eq!(ended.events("retrying")[0]["wait"], 1.0, "{ended:?}");
    }
}

#[test]
fn redirects_that_lead_nowhere() {
    for (location, word) in [
        ("Location: /dir/f", "circle"),
        ("Location: file:///etc/passwd", "will not follow"),
        ("Location: http://", "will not follow"),
        ("Location: ftp://127.0.0.1/f", "will not follow"),
        ("X: y", "no Location"),
    ] {
        refused(response(&format!("302 Found\r\n{location}"), ""), 76, &[word]);
    }
    let escapes = "HTTP/1.1 302 F\r\nLocation: http://\x1b[2Jh\u{9b}/\r\nContent-Length: 0\r\n\r\n";
    assert!(!run(&Server::answering(escapes)).run().stderr.chars().any(|c| c.is_control() && c != '\n'));
    let endless =
        Server::replying(|request| response(&format!("307 Go\r\nLocation: {}x", request.target), ""));
    run(&endless).fails_without_files(76, &["too many redirects", "/dir/f"]);
}

#[test]
fn malformed_heads_are_refused() {
    for (head, word) in [
        (&*format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1 << 20)), "head of more than"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "5, 6"),
        ("HTTP/1.1 200 OK\r\nX: a\rContent-Length: 1\r\n\r\nx", "malformed line"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: \u{a0}chunked\r\n\r\nx", "chunked"),
        (&"HTTP/1.1 100 Go\r\n\r\n".repeat(1 << 16), "interim"),
        ("HTTP/1.1 206 Part\r\nContent-Range: bytes 0-4/9\r\nContent-Length: 5\r\n\r\nhello", "206"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX", "chunked"),
        ("\x1b]0;owned\x07\0\0hello", "not HTTP"),
        ("<html>no</html>", "not HTTP"),
        ("220 ftp.example ready\r\n", "FTP"),
        ("SSH-2.0-OpenSSH_9.2\r\n", "SSH"),
        ("\0\0\x12\x04\0\0\0\0\0\0", "HTTP/2"),
        ("PRI * HTTP/2.0\r\n", "HTTP/2"),
        ("HTTP/3 200\r\n\r\n", "not HTTP"),
        ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", "101"),
        // A server that speaks TLS only sends an alert.
        ("\x15\x03\x01\x00\x02\x02\x0a", "https://"),
    ] {
        let (server, _) = refused(head.to_owned(), 76, &[word]);
        assert_eq!(server.requests().len(), 1, "nothing is asked twice of a broken server");
    }
    for cut in ["", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Le"] {
        let (server, _) = refused(cut, 75, &["closed"]);
        assert_eq!(server.requests().len(), 2, "{cut}");
    }
}

#[test]
fn no_such_range() {
    // Of an empty file: the client then requests the whole file.
    let empty = Server::replying(|request| match request.field("range") {
        Some(_) => response("416 No\r\nContent-Range: bytes */0", ""),
        None => response("200 OK", ""),
    });
    run(&empty).args(["--streams", "4"]).fetches(b"");
    let always = Server::answering(response("416 No\r\nContent-Range: bytes */7", ""));
    run(&always)
        .args(["--streams", "4"])
        .fails_without_files(65, &[&always.url("/dir/f"), "no such range in a file of 7 bytes"]);
    // In mid-transfer: the file has become shorter.
    let file = File::new(content(20 << 20, 2));
    let shrunk = Server::replying(move |request| match request.range(file.bytes.len()) {
        Some((0, _)) => file.response(request),
        _ => response("416 No\r\nContent-Range: bytes */9", "").into(),
    });
    let run = run(&shrunk).args(["--streams", "4"]);
    run.fails_unnamed(65, &[&shrunk.url("/dir/f"), "no such range in a file of 9 bytes"]);
}

#[test]
fn interim_answers_and_odd_heads() {
    let many = "Set-Cookie: a=b\r\n".repeat(300);
    let long = "x".repeat(200_000);
    for head in [
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.0 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 2\n\n",
        "HTTP/1.1 203 Copy\r\nContent-Length: 2, 2\r\n\r\n",
        "HTTP/1.1 201 Made\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 226 Used\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 299Odd\r\nTransfer-Encoding: none\r\r\nContent-Length: 2\r\r\n\r\r\n",
        // As of broken servers, whose framing is not in doubt.
        "\r\nHTTP/1.1  200 OK\r\nX : y\r\nPHP Warning: x in y on line 0\r\nnone\r\nContent-Length: 2\r\n\r\n",
        &format!("HTTP/1.1 200 OK\r\n{many}X: {long}\r\nContent-Length: 2\r\n\r\n"),
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\nok\n0\nA: b\n\n",
        "HTTP/1.1 206 All\r\nContent-Range: 0-1/2\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 206 All\r\nTransfer-Encoding:\r\nContent-Length: 2 bytes\r\n\r\n",
        "HTTP/2 200\r\nTransfer-Encoding: identity, chunked\r\n\r\n2;a=b\nok\n0\n\n",
        "HTTP/2.0 205 X\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 207 X\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Encoding: x-gzip\r\nETag: \"a\"\r\nContent-Length: 2\r\n\r\n",
    ] {
        let body = if head.contains("chunked") { "" } else { "ok" };
        let ended = run(&Server::answering(format!("{head}{body}"))).args(["--json"]).fetches(b"ok");
        assert_eq!(ended.warnings(), "", "{head:?}");
    }
    let coded = "200 OK\r\nVary: Accept-Encoding\r\nContent-Encoding: gzip";
    let ended = run(&Server::answering(response(coded, "ok"))).args(["--json"]).fetches(b"ok");
    assert!(ended.warnings().contains("coding 'gzip'"), "{ended:?}");
}

/// Answers a request for a range of `file` badly.
fn answer_range(file: &File, request: &HttpRequest, kind: &str) -> Option<String> {
    let (head, body) = file.answer(request);
    let body = String::from_utf8_lossy(body);
    Some(match kind {
        "close" => return None,
        "no HTTP" => "garbage\r\n\r\n".to_owned(),
        "no range" => response("206 Part", &body),
        // The length of the part is said to be that of the file.
        "short" => response("206 Part\r\nContent-Range: bytes 0-16777215/16777216", &"x".repeat(16 << 20)),
        "parts" => response("206 Part\r\nContent-Type: multipart/byteranges; boundary=B", "--B--"),
        "unit" => head.replace("bytes ", "") + &body,
        "blanks" => head.replace("bytes ", "Bytes: ").replace("/300000", " / 300000") + &body,
        status => response(status, ""),
    })
}

/// From its first answer to a range on, or after a good first one.
#[test]
fn server_that_fails_at_ranges_is_asked_for_the_whole_file() {
    let kinds = [
        "400 X", "401 X", "403 X", "404 X", "405 X", "410 X", "416 X", "429 X", "500 X", "501 X", "503 X",
        "close", "hang", "no HTTP", "no range", "parts", "short", "unit", "blanks",
    ];
    let same_length = "416 X\r\nContent-Range: bytes */25165824";
    let later = ["401 X", "404 X", "410 X", "416 X", same_length, "503 X", "close", "hang"];
    // ASCII, for `answer_range`. The first range is not all of the larger file.
    let file = |size| File::new(content(size, 9).into_iter().map(|byte| byte & 0x7f).collect());
    let (small, large) = (file(300_000), file(24 << 20));
    let cases = kinds.map(|kind| (kind, false)).into_iter().chain(later.map(|kind| (kind, true)));
    at_once(cases, |(kind, later)| {
        let file = if later { &large } else { &small };
        let (served, breaks, begins) = (file.clone(), Gate::default(), Gate::default());
        let server = Server::new(move |peer| {
            while let Some(request) = peer.read_request() {
                let is_ranged = request.field("range").is_some();
                if is_ranged && !(later && begins.open()) {
                    if kind == "hang" {
                        return peer.stay_silent();
                    }
                    match answer_range(&served, &request, kind) {
                        Some(answer) => _ = peer.send(answer),
                        None => return peer.close(),
                    }
                    continue;
                }
                // The first whole answer breaks off.
                let (head, body) = served.answer(&request);
                let is_cut = !is_ranged && !later && breaks.open();
                let length = if is_cut { body.len() / 2 } else { body.len() };
                if !(peer.send(head) && peer.send(&body[..length])) || is_cut {
                    return peer.close();
                }
            }
        });
        let urls = ["/f", "/g"].map(|path| server.url(path));
        let patience = ["--stall-timeout", "2s", "--retries", "3"];
        let run = get().args(["--streams", "4", "--parallel", "1", "-o", "d/"]).args(patience).args(&urls);
        run.run().ok();
        for name in ["f", "g"] {
            same(run.path("d").join(name), &file.bytes);
        }
        let (first, second): (Vec<_>, Vec<_>) =
            server.requests().into_iter().partition(|request| request.target == "/f");
        let ranged = |asks: &[HttpRequest]| asks.iter().filter(|ask| ask.field("range").is_some()).count();
        assert_eq!(ranged(&second) > 0, matches!(kind, "unit" | "blanks"), "{kind}");
        assert!(!later || first.len() - ranged(&first) == 1, "{kind}");
        // One of several URLs, too, once no other describes the file.
        get().args(["-o", "f", "--mirror", NOWHERE, &urls[0]]).args(patience).fetches(&file.bytes);
    });
    // A cache repeats the part that was asked for.
    let cache = Server::answering(response("206 Part", &"x".repeat(16 << 20)));
    run(&cache).args(["--streams", "4"]).fails_without_files(76, &["206"]);
}
