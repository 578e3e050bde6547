//! Malformed answers: each ends in time, with an error that names the place and the reason.

use std::io::Write;
use std::net::TcpListener;
use std::time::Duration;

use longhaul_engine::cancel::Cancel;
use longhaul_engine::source::http::{Client, ClientConfig, ErrorKind, HttpError, Retry};

use crate::support::{Script, body, client, open, open_error, quick};

fn answer(answer: &str) -> HttpError {
    let server = Script::answering(answer.to_owned());
    let error = open_error(&client(), &server.url("/file"));
    let text = error.to_string();
    assert!(text.contains(&server.address.to_string()) && text.contains("/file"), "{text}");
    error
}

#[test]
fn head_of_a_megabyte_is_refused() {
    let head = format!("HTTP/1.1 200 OK\r\nX-Long: {}\r\n\r\n", "x".repeat(1 << 20));
    let error = answer(&head);
    assert!(matches!(error, HttpError::HeadTooLong { .. }), "{error}");
    assert_eq!(error.retry(), Retry::Never);
    let error = answer(&format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(1000)));
    assert!(matches!(error, HttpError::Head { .. }), "{error}");
}

#[test]
fn slow_head_times_out() {
    let server = Script::new(|_, peer| {
        peer.read_request();
        for byte in b"HTTP/1.1 200 OK\r\nX-Slow: ".iter().chain(std::iter::repeat(&b'z')) {
            if peer.stream.write_all(&[*byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let mut config = quick();
    config.timeouts.head = Duration::from_millis(500);
    let error = open_error(&Client::new(config).unwrap(), &server.url("/"));
    assert!(matches!(error, HttpError::Timeout { .. }), "{error}");
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Timeout, Retry::Now));
}

/// The head would be awaited for 20 seconds.
#[test]
fn silence_can_be_cancelled() {
    let cancel = Cancel::new();
    let flag = cancel.clone();
    let server = Script::new(move |_, peer| {
        peer.read_request();
        flag.cancel();
        peer.read_request();
    });
    let result = client().open(&server.url("/").parse().unwrap(), None, &cancel);
    assert!(matches!(result, Err(HttpError::Cancelled)));
}

#[test]
fn garbage_is_shown_escaped() {
    let error = answer("\x1b[31mhello\0\r\n");
    let text = error.to_string();
    assert!(
        matches!(error, HttpError::NotHttp { .. }) && text.contains("\\x1b[31mhello\\x00\\r\\n"),
        "{text}"
    );
    assert!(!text.contains('\x1b'));
    assert_eq!(error.kind(), ErrorKind::Protocol);
}

#[test]
fn other_protocols_are_recognised() {
    for (first, hint) in [
        ("\x15\x03\x01\x00\x02\x02\x16", "https://"),
        ("\0\0\x12\x04\0\0\0\0\0\0", "HTTP/2"),
        ("PRI * HTTP/2.0\r\n", "HTTP/2"),
        ("HTTP/2.0 200 OK\r\n", "HTTP/2"),
        ("SSH-2.0-OpenSSH_9.2\r\n", "SSH"),
        ("220 ftp ready\r\n", "FTP"),
    ] {
        let text = answer(first).to_string();
        assert!(text.contains(hint), "{text}");
    }
}

#[test]
fn connection_closed_without_an_answer_may_be_retried() {
    for part in ["", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Le"] {
        let error = answer(part);
        assert!(matches!(error, HttpError::ClosedBeforeHead { .. }), "{error}");
        assert_eq!(error.retry(), Retry::Now);
    }
}

#[test]
fn ambiguous_heads_are_refused() {
    for fields in ["Content-Length: 5\r\nContent-Length: 6\r\n", "A: b\r\n folded\r\n", "Bad name: x\r\n"] {
        let error = answer(&format!("HTTP/1.1 200 OK\r\n{fields}\r\nhello"));
        assert!(matches!(error, HttpError::Head { .. }), "{fields:?}: {error}");
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Protocol, Retry::Never));
    }
}

#[test]
fn encoded_bodies_are_refused() {
    let error = answer("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc");
    assert!(error.to_string().contains("'gzip'"), "{error}");
}

#[test]
fn interim_answers_are_skipped() {
    let server = Script::answering(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    );
    assert_eq!(body(&client(), &server.url("/")), b"ok");
    assert_eq!(answer("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n").kind(), ErrorKind::Protocol);
}

#[test]
fn retry_after_of_a_busy_server_is_honoured() {
    let error = answer("HTTP/1.1 503 Busy\x07\r\nRetry-After: 17\r\nContent-Length: 0\r\n\r\n");
    assert!(matches!(error, HttpError::Head { .. }), "a control character in the reason: {error}");
    let error = answer("HTTP/1.1 503 Busy\r\nRetry-After: 17\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(
        (error.kind(), error.retry()),
        (ErrorKind::Unavailable, Retry::After(Duration::from_secs(17)))
    );
    assert_eq!(answer("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n").retry(), Retry::Now);
    assert_eq!(answer("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n").kind(), ErrorKind::Denied);
}

#[test]
fn failed_connect_names_every_address() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = open_error(&client(), &format!("http://localhost:{}/x", closed.port()));
    let text = error.to_string();
    assert!(text.contains("localhost") && text.contains(&closed.to_string()), "{text}");
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unavailable, Retry::Now));
    let error = open_error(&client(), "http://no-such-host.invalid/x");
    assert!(matches!(error.kind(), ErrorKind::NoHost | ErrorKind::Timeout), "{error}");
    assert!(error.to_string().contains("no-such-host.invalid"));
}

#[test]
fn headers_set_by_the_transfer_are_refused() {
    for header in ["Range: bytes=0-1", "accept-encoding: gzip", "Connection: close", "Proxy-Authorization: x"]
    {
        let config = ClientConfig { headers: vec![header.parse().unwrap()], ..quick() };
        let error = Client::new(config).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
    }
    let own = ClientConfig {
        headers: vec!["X-Own: 1".parse().unwrap(), "user-agent: me".parse().unwrap()],
        ..quick()
    };
    let server = Script::answering("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na");
    for (config, sent, agent) in [(quick(), "Accept-Encoding: identity", true), (own, "X-Own: 1", false)] {
        open(&Client::new(config).unwrap(), &server.url("/")).unwrap();
        let request = server.requests.recv().unwrap();
        assert!(request.contains(&format!("\r\n{sent}\r\n")), "{request}");
        assert_eq!(request.contains("\r\nUser-Agent: longhaul/"), agent, "{request}");
    }
}

#[test]
fn ipv6_literals_work() {
    if TcpListener::bind("[::1]:0").is_err() {
        println!("skipped: no IPv6 on this host");
        return;
    }
    let server = Script::at("[::1]:0", |_, peer| {
        peer.read_request();
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nv6");
    });
    assert_eq!(body(&client(), &server.url("/")), b"v6");
    assert!(server.requests.recv().unwrap().contains(&format!("\r\nHost: {}\r\n", server.address)));
}
