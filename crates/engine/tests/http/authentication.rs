//! Logins of .netrc and of proxies.

use std::fs;

use longhaul_engine::cancel::Cancel;
use longhaul_engine::source::http::{
    Client, ClientConfig, ErrorKind, HttpError, NetrcFile, ProxyPolicy, Retry,
};

use crate::support::{Script, open, open_error, quick, read_all};

#[test]
fn login_of_netrc_is_used_on_further_connections_and_after_redirects() {
    let server = Script::replying(|request| {
        if request.starts_with("GET /moved ") {
            "HTTP/1.1 302 Found\r\nLocation: /private\r\nContent-Length: 0\r\n\r\n"
        } else if request.contains("\r\nAuthorization: Basic YW5uOnNlY3JldA==\r\n") {
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        } else {
            "HTTP/1.1 401 Who\r\nWWW-Authenticate: Basic realm=\"a\"\r\nContent-Length: 0\r\n\r\n"
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let netrc = dir.path().join("netrc");
    let client = Client::new(ClientConfig { netrc: Some(NetrcFile::at(&netrc)), ..quick() }).unwrap();
    fs::write(&netrc, "machine other login x password y\nmachine 127.0.0.1 login ann password \"secret\"\n")
        .unwrap();
    for path in ["/private", "/moved"] {
        let mut opened = open(&client, &server.url(path)).unwrap();
        let mut second = client.connect(&mut opened.target, &Cancel::new()).unwrap();
        second.send_get(None).unwrap();
        assert_eq!(second.read_head().unwrap().status(), 200, "{path}");
        for connection in [&mut opened.connection, &mut second] {
            assert_eq!(read_all(connection, 9).unwrap(), b"ok", "{path}");
        }
    }
}

#[test]
fn proxy_that_requires_a_login_is_reported() {
    let proxy = Script::answering(
        "HTTP/1.1 407 Login needed\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n",
    );
    let proxies = ProxyPolicy::from_vars(|name| (name == "all_proxy").then(|| proxy.address.to_string()));
    let client = Client::new(ClientConfig { proxies, ..quick() }).unwrap();
    let plain = open_error(&client, "http://far.invalid/");
    assert!(matches!(plain, HttpError::Status { status: 407, .. }), "{plain}");
    let tunnel = open_error(&client, "https://far.invalid/");
    assert!(matches!(tunnel, HttpError::ProxyRefused { status: 407, .. }), "{tunnel}");
    for error in [plain, tunnel] {
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Denied, Retry::Never), "{error}");
    }
}
