//! `longhaul probe` as a process.
mod bad_input;
mod servers;

use crate::support::{HttpRequest, Server, misses, probe, report};

/// Answers each request with a head, without the length, and a body; bare handshakes are ignored.
fn answering(answer: impl Fn(&HttpRequest) -> (String, Vec<u8>) + Send + Sync + 'static) -> Server {
    Server::replying(move |request| {
        let (head, body) = answer(request);
        let head = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n", body.len());
        [head.as_bytes(), &body].concat()
    })
}

/// Answers as an endpoint that offers a ceiling of 1 Gbit/s, and UDP by `udp`.
fn measuring(udp: impl Fn() -> (String, Vec<u8>) + Send + Sync + 'static) -> Server {
    let offer = r#"{"version":1,"ceiling_bps":1000000000,"stream_bytes":8000000,"congestion":["reno"],"tcp_wmem_max":null}"#;
    answering(move |request| match request.target.as_str() {
        "/.longhaul/measure" => ("200 OK\r\nServer: longhaul".to_owned(), offer.into()),
        "/.longhaul/measure/udp" => udp(),
        _ => ("200 OK\r\nServer: longhaul".to_owned(), vec![7; 8_000_000]),
    })
}
