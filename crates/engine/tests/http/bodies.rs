//! Bodies with each kind of end, and with invalid ends.

use std::time::Duration;

use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::source::http::{Connection, ErrorKind, HttpError, Read, Retry};

use crate::support::{Script, client, open, read_all};

#[test]
fn body_of_unknown_length_ends_with_the_connection() {
    let server = Script::answering("HTTP/1.1 200 OK\r\n\r\nall of it");
    let mut opened = open(&client(), &server.url("/")).unwrap();
    assert_eq!(read_all(&mut opened.connection, 4).unwrap(), b"all of it");
    assert!(!opened.connection.reusable());
}

#[test]
fn empty_body_ends_at_once() {
    let server = Script::replying(|_| "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned());
    let mut opened = open(&client(), &server.url("/")).unwrap();
    assert_eq!(opened.connection.read_body(&mut [0; 8]).unwrap(), Read::End);
    assert!(opened.connection.reusable());
}

#[test]
fn early_close_is_an_error() {
    let server = Script::answering("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this");
    let mut opened = open(&client(), &server.url("/big")).unwrap();
    let error = read_all(&mut opened.connection, 50).unwrap_err();
    assert!(matches!(&error, HttpError::ClosedEarly { got, expected, .. }
        if *got == Bytes::new(9) && *expected == Some(Bytes::new(100))));
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Io, Retry::Now));
    let text = error.to_string();
    assert!(text.contains("/big") && text.contains("9 of 100 bytes"), "{text}");
    assert!(!opened.connection.reusable());
}

#[test]
fn invalid_chunked_body_is_an_error() {
    for (body, truncated) in [
        ("5\r\nhel", true),
        ("5\r\nhello", true),
        ("5\r\nhello\r\n", true),
        ("5\r\nhello\r\n0\r\n", true),
        ("5\r\nhello\r\n0\r\nA: b\r\n", true),
        ("nonsense", false),
    ] {
        let server =
            Script::answering(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}"));
        let mut opened = open(&client(), &server.url("/")).unwrap();
        match read_all(&mut opened.connection, 50).unwrap_err() {
            HttpError::ClosedEarly { expected: None, .. } => assert!(truncated, "{body:?}"),
            error @ HttpError::Chunked { .. } => {
                assert!(!truncated && error.kind() == ErrorKind::Protocol, "{body:?}: {error}");
            }
            error => panic!("{body:?}: {error}"),
        }
    }
}

#[test]
fn chunks_arriving_byte_by_byte_are_put_together() {
    let server = Script::new(|_, peer| {
        peer.stream.set_nodelay(true).unwrap();
        peer.read_request();
        let answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nb;x=y\r\nhello world\r\n1\r\n!\r\n0\r\n\r\n";
        for byte in answer {
            peer.send(&[*byte]);
            std::thread::sleep(Duration::from_millis(1));
        }
        peer.read_request();
    });
    let mut opened = open(&client(), &server.url("/")).unwrap();
    assert_eq!(read_all(&mut opened.connection, 64).unwrap(), b"hello world!");
    assert!(opened.connection.reusable());
}

/// Sends two requests at once.
fn asked_twice(server: &Script) -> Connection {
    let client = client();
    let mut target = client.target(&server.url("/").parse().unwrap()).unwrap();
    let mut connection = client.connect(&mut target, &Cancel::new()).unwrap();
    connection.send_get(None).unwrap();
    connection.send_get(None).unwrap();
    connection
}

#[test]
fn bytes_after_a_head_belong_to_its_answer() {
    // Two answers in one segment: the second must not become part of the first body.
    let server = Script::new(|_, peer| {
        peer.read_request();
        peer.read_request();
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirstHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond");
        peer.read_request();
    });
    let mut connection = asked_twice(&server);
    assert_eq!(connection.unanswered(), 2);
    for expected in [b"first".as_slice(), b"second"] {
        assert_eq!(connection.read_head().unwrap().status(), 200);
        assert_eq!(read_all(&mut connection, 64).unwrap(), expected);
    }
    assert!(matches!(connection.read_head(), Err(HttpError::OutOfOrder { .. })));
}

#[test]
fn requests_after_a_closing_answer_are_reported_as_lost() {
    let server = Script::new(|_, peer| {
        peer.read_request();
        peer.read_request();
        peer.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
    });
    let mut connection = asked_twice(&server);
    connection.read_head().unwrap();
    assert!(matches!(connection.read_head(), Err(HttpError::OutOfOrder { .. })), "the body is unread");
    assert_eq!(read_all(&mut connection, 64).unwrap(), b"ok");
    assert!(!connection.reusable() && connection.unanswered() == 1);
    let error = connection.read_head().unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Io, Retry::Now), "{error}");
    assert!(connection.send_get(None).is_err());
}

#[test]
fn silent_read_returns_idle_and_can_be_cancelled() {
    let server = Script::new(|_, peer| {
        peer.read_request();
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome");
        peer.read_request();
    });
    let cancel = Cancel::new();
    let mut opened = client().open(&server.url("/").parse().unwrap(), None, &cancel).unwrap();
    let mut buffer = [0; 64];
    let mut got = 0;
    loop {
        match opened.connection.read_body(&mut buffer).unwrap() {
            Read::Data(n) => got += n,
            Read::Idle if got == 4 => break,
            Read::Idle => {}
            Read::End => panic!("the body cannot be complete"),
        }
    }
    cancel.cancel();
    assert!(matches!(opened.connection.read_body(&mut buffer), Err(HttpError::Cancelled)));
}
