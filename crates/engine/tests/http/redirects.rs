//! Redirects over real connections.

use longhaul_engine::source::http::{Client, ClientConfig, Credentials, ErrorKind, HttpError};

use crate::support::{Nginx, Peer, Script, client, open, open_error, quick, read_all};

/// A server where /0 leads to /1 and so on, for ever, on kept connections.
fn endless() -> Script {
    Script::new(|_, peer| {
        loop {
            let request = peer.read_request();
            let Ok(number) = Peer::target(&request).trim_start_matches('/').parse::<u32>() else { return };
            let next = number + 1;
            peer.send(
                format!("HTTP/1.1 302 Found\r\nLocation: {next}\r\nContent-Length: 4\r\n\r\ngone").as_bytes(),
            );
        }
    })
}

#[test]
fn nginx_redirects_are_followed() {
    let Some(nginx) = Nginx::start() else { return };
    nginx.file("data", b"12345");
    let mut opened = open(&client(), &nginx.url("/moved/data")).unwrap();
    assert_eq!(read_all(&mut opened.connection, 9).unwrap(), b"12345");
    assert_eq!(opened.target.url().as_str(), nginx.url("/data"));
}

#[test]
fn endless_redirects_end_on_one_connection() {
    let server = endless();
    let error = open_error(&client(), &server.url("/0"));
    let text = error.to_string();
    assert!(matches!(error, HttpError::TooManyRedirects(_)), "{text}");
    assert!(text.contains("/0 -> ") && text.contains("/1"), "{text}");
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert_eq!(server.requests.iter().take(21).count(), 21, "one request and twenty redirects");
}

#[test]
fn server_that_closes_after_a_redirect_is_asked_again() {
    let server = Script::new(|_, peer| {
        let request = peer.read_request();
        peer.send(match Peer::target(&request) {
            "/a" => b"HTTP/1.1 301 Moved\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n",
            _ => b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        });
    });
    let mut opened = open(&client(), &server.url("/a")).unwrap();
    assert_eq!(read_all(&mut opened.connection, 9).unwrap(), b"ok");
}

#[test]
fn redirect_loop_is_reported() {
    let server = Script::new(|_, peer| {
        let request = peer.read_request();
        let to = if Peer::target(&request) == "/a" { "/b" } else { "/a" };
        peer.send(format!("HTTP/1.1 307 Again\r\nConnection: close\r\nLocation: {to}\r\n\r\n").as_bytes());
    });
    let error = open_error(&client(), &server.url("/a"));
    assert!(matches!(error, HttpError::RedirectLoop(_)), "{error}");
    assert!(error.to_string().contains("/a -> http"), "{error}");
}

#[test]
fn credentials_are_sent_only_to_the_origin() {
    let other = Script::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let location = other.url("/there");
    let first = Script::new(move |_, peer| {
        peer.read_request();
        peer.send(
            format!("HTTP/1.1 308 Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n").as_bytes(),
        );
    });
    let config = ClientConfig {
        headers: vec!["Cookie: secret".parse().unwrap(), "X-Kept: 1".parse().unwrap()],
        credentials: Some(Credentials::Bearer("secret".into())),
        ..quick()
    };
    open(&Client::new(config).unwrap(), &first.url("/here")).unwrap();
    let sent = first.requests.recv().unwrap();
    assert!(sent.contains("Authorization: Bearer secret") && sent.contains("Cookie: secret"), "{sent}");
    let sent = other.requests.recv().unwrap();
    assert!(sent.contains("X-Kept: 1") && !sent.contains("secret"), "{sent}");
}
