use std::io::{Read, Write};
use std::net::TcpListener;

use super::*;
use crate::source::http::{Client, ClientConfig};

/// Connects to a server that sends `answer` to each request and keeps the connection open; sends a
/// request and reads the head.
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
fn connection_serves_a_further_request_only_after_a_body_that_is_read_to_its_end() {
    let too_long = "x".repeat(2 * answers::MAX_DISCARDED.as_usize());
    let too_long = format!("Content-Length: {}\r\n\r\n{too_long}", too_long.len());
    for (answer, is_whole) in [
        (too_long.as_str(), false),
        ("Content-Length: 10\r\n\r\nhalf.", false),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nhalf.\r\n", false),
        ("Content-Length: 5\r\n\r\nwhole", true),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n0\r\n\r\n", true),
    ] {
        let shown = answer.get(..40).unwrap_or(answer);
        let mut connection = read_head_of(format!("HTTP/1.1 200 OK\r\n{answer}"));
        assert_eq!(connection.discard_body(), is_whole, "{shown}");
        match connection.send_get(None) {
            Ok(_) if is_whole => assert_eq!(connection.read_head().unwrap().status(), 200, "{shown}"),
            Err(HttpError::ClosedBeforeHead { .. }) if !is_whole => {}
            other => panic!("{shown}: {other:?}"),
        }
    }
}
