//! Redirects over real connections.

use longhaul_engine::source::http::{Client, ClientConfig, Credentials, ErrorKind, HttpError};

use crate::support::{Nginx, Peer, Script, body, client, open, open_error, quick, read_all};

#[test]
fn nginx_redirects_are_followed() {
    let Some(nginx) = Nginx::start() else { return };
    nginx.file("data", b"12345");
    let mut opened = open(&client(), &nginx.url("/moved/data")).unwrap();
    assert_eq!(read_all(&mut opened.connection, 9).unwrap(), b"12345");
    assert_eq!(opened.target.url().as_str(), nginx.url("/data"));
}

/// A server where /0 leads to /1 and so on, for ever, on kept connections.
#[test]
fn endless_redirects_end_on_one_connection() {
    let server = Script::replying(|target| {
        let next = target[1..].parse::<u32>().unwrap() + 1;
        format!("HTTP/1.1 302 Found\r\nLocation: {next}\r\nContent-Length: 4\r\n\r\ngone")
    });
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
            "/loop" => b"HTTP/1.1 307 Again\r\nConnection: close\r\nLocation: /back\r\n\r\n",
            "/back" => b"HTTP/1.1 307 Again\r\nConnection: close\r\nLocation: /loop\r\n\r\n",
            _ => b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        });
    });
    assert_eq!(body(&client(), &server.url("/a")), b"ok");
    let error = open_error(&client(), &server.url("/loop"));
    assert!(matches!(error, HttpError::RedirectLoop(_)), "{error}");
    assert!(error.to_string().contains("/loop -> http"), "{error}");
}

#[test]
fn credentials_are_sent_only_to_the_origin() {
    let other = Script::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let location = other.url("/there");
    let first = Script::replying(move |_| {
        format!("HTTP/1.1 308 Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n")
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
