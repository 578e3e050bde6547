//! Proxies: forwarded requests, and tunnels.

use std::io::{Write, copy};
use std::net::{Shutdown, TcpStream};

use longhaul_engine::cancel::Cancel;
use longhaul_engine::source::http::{Client, ClientConfig, ErrorKind, HttpError, ProxyPolicy};

use crate::support::{Nginx, Peer, Script, next, open, open_error, quick, read_all};

/// A proxy for one connection at a time: tunnels on CONNECT, else answers itself.
fn proxy(login: Option<&'static str>) -> Script {
    Script::new(move |_, peer| {
        let request = peer.read_request();
        if login
            .is_some_and(|login| !request.contains(&format!("\r\nProxy-Authorization: Basic {login}\r\n")))
        {
            return peer.send(
                b"HTTP/1.1 407 Login needed\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n",
            );
        }
        if !request.starts_with("CONNECT ") {
            return peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nproxy");
        }
        let Ok(mut server) = TcpStream::connect(Peer::target(&request)) else {
            return peer.send(b"HTTP/1.1 502 Cannot reach it\r\n\r\n");
        };
        peer.send(b"HTTP/1.1 200 Connection established\r\n\r\n");
        let (mut from, mut to) = (peer.stream.try_clone().unwrap(), server.try_clone().unwrap());
        let up = std::thread::spawn(move || {
            let _ = copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
        let _ = copy(&mut server, &mut peer.stream);
        let _ = peer.stream.flush();
        let _ = peer.stream.shutdown(Shutdown::Both);
        up.join().unwrap();
    })
}

fn through(variables: &[(&str, String)], config: ClientConfig) -> Client {
    let find = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone());
    Client::new(ClientConfig { proxies: ProxyPolicy::from_vars(find), ..config }).unwrap()
}

#[test]
fn plain_requests_are_forwarded_in_absolute_form() {
    let proxy = proxy(Some("dTpw"));
    let client = through(&[("http_proxy", format!("http://u:p@{}", proxy.address))], quick());
    let mut opened = open(&client, "http://far.invalid:81/file?q#f").unwrap();
    assert_eq!(read_all(&mut opened.connection, 9).unwrap(), b"proxy");
    let request = proxy.requests.recv().unwrap();
    assert!(
        request.starts_with("GET http://far.invalid:81/file?q HTTP/1.1\r\nHost: far.invalid:81\r\n"),
        "{request}"
    );
    assert_eq!(opened.connection.peer(), proxy.address);
}

#[test]
fn proxy_that_requires_a_login_or_is_unreachable_is_reported() {
    let proxy = proxy(Some("dTpw"));
    let client = through(&[("all_proxy", proxy.address.to_string())], quick());
    let error = open_error(&client, "http://far.invalid/");
    assert_eq!(error.kind(), ErrorKind::Denied);
    let error = open_error(&client, "https://far.invalid/");
    assert!(matches!(error, HttpError::ProxyRefused { status: 407, .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Denied);
    // One that cannot be reached is named without its password.
    let client = through(&[("http_proxy", "http://u:secret@127.0.0.1:1".to_owned())], quick());
    let text = open_error(&client, "http://far.invalid/").to_string();
    assert!(text.contains("the proxy http://127.0.0.1:1") && !text.contains("secret"), "{text}");
}

#[test]
fn tls_uses_a_tunnel() {
    let Some(nginx) = Nginx::start() else { return };
    nginx.file("data", b"12345");
    let proxy = proxy(None);
    let config = ClientConfig { ca_file: Some(nginx.dir.path().join("ca.pem")), ..quick() };
    let client = through(&[("https_proxy", proxy.address.to_string())], config);
    let url = format!("https://localhost:{}/data", nginx.tls_port);
    let mut opened = open(&client, &url).unwrap();
    assert_eq!(read_all(&mut opened.connection, 9).unwrap(), b"12345");
    let request = proxy.requests.recv().unwrap();
    assert!(request.starts_with(&format!("CONNECT localhost:{} HTTP/1.1\r\n", nginx.tls_port)), "{request}");
    drop(opened.connection);
    let mut second = client.connect(&mut opened.target, &Cancel::new()).unwrap();
    assert_eq!(next(&mut second, None).0, 200);
}
