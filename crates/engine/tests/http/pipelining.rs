//! Several requests on one connection, and reads of a silent one.

use longhaul_core::failure::FailureKind;
use longhaul_core::retry::Retry;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::connect::Received;
use longhaul_engine::source::http::{Connection, HttpError};

use crate::support::{Script, client, read_all};

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
    assert_out_of_order(&connection.read_head().unwrap_err());
}

fn assert_out_of_order(error: &HttpError) {
    assert!(error.kind() == FailureKind::Internal && error.to_string().contains("out of order"), "{error}");
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
    // The body is unread.
    assert_out_of_order(&connection.read_head().unwrap_err());
    assert_eq!(read_all(&mut connection, 64).unwrap(), b"ok");
    assert!(!connection.reusable() && connection.unanswered() == 1);
    let error = connection.read_head().unwrap_err();
    assert_eq!((error.is_broken_connection(), error.retry()), (true, Retry::Backoff), "{error}");
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
            Received::Data(n) => got += n,
            Received::Idle if got == 4 => break,
            Received::Idle => {}
            Received::End { .. } => panic!("the body cannot be complete"),
        }
    }
    cancel.cancel();
    assert!(opened.connection.read_body(&mut buffer).is_err_and(|error| error.is_cancelled()));
}
