use std::io::{Read, Write};
use std::net::TcpListener;

use longhaul_core::units::Bytes;

use super::*;
use crate::source::http::{Client, ClientConfig};

/// The most of a body that is discarded.
const LIMIT: Bytes = Bytes::kib(64);

/// Connects to a server that sends `answer` to each request and keeps the connection open; sends a request and reads the head.
fn read_head_of(answer: String) -> Connection {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        while stream.read(&mut request).is_ok_and(|n| n > 0) && stream.write_all(answer.as_bytes()).is_ok() {}
    });
    let client = Client::new(ClientConfig::default()).unwrap();
    let mut connection = client.connect(&mut client.target(&url).unwrap(), &Cancel::new()).unwrap();
    connection.send_get(None).unwrap();
    assert_eq!(connection.read_head().unwrap().status(), 200);
    connection
}

#[test]
fn connection_serves_no_further_request_after_a_body_that_is_not_read_to_its_end() {
    let too_long = "x".repeat(2 * LIMIT.as_usize());
    for (framing, body) in [
        (format!("Content-Length: {}", too_long.len()), too_long.as_str()),
        ("Content-Length: 10".to_owned(), "half."),
        ("Transfer-Encoding: chunked".to_owned(), "5\r\nhalf.\r\n"),
    ] {
        let mut connection = read_head_of(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n{body}"));
        assert!(!connection.discard_body(LIMIT), "{framing}");
        let refused = connection.send_get(None);
        assert!(matches!(refused, Err(HttpError::ClosedBeforeHead { .. })), "{framing}: {refused:?}");
    }
}

#[test]
fn connection_serves_a_further_request_after_a_short_body_is_discarded() {
    for answer in
        ["Content-Length: 5\r\n\r\nwhole", "Transfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n0\r\n\r\n"]
    {
        let mut connection = read_head_of(format!("HTTP/1.1 200 OK\r\n{answer}"));
        assert!(connection.discard_body(LIMIT), "{answer}");
        connection.send_get(None).unwrap();
        assert_eq!(connection.read_head().unwrap().status(), 200, "{answer}");
    }
}
