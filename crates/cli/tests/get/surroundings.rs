//! What comes from the user's surroundings: headers, logins, proxies.

use std::fs;

use crate::support::{File, Serve, Server, content, get, same};

#[test]
fn headers_reach_the_server_on_every_stream() {
    let server = Server::of(File::new(content(9 << 20, 1)));
    let args =
        ["--streams", "4", "--header", "X-One: 1", "--header", "Cookie:  a=b ", "--header", "User-Agent: me"];
    get().args(args).args([&server.url("/f")]).run().ok();
    for ask in server.asks() {
        assert_eq!(ask.field("x-one"), Some("1"));
        assert_eq!((ask.field("cookie"), ask.field("user-agent")), (Some("a=b"), Some("me")));
        assert_eq!(ask.field("accept-encoding"), Some("identity"));
        assert_eq!(ask.field("host"), Some(server.address.to_string().as_str()));
    }
}

/// A server that requires the login ann:secret.
pub(crate) fn private() -> Server {
    let file = File::new(content(1000, 2));
    Server::new(move |peer| {
        while let Some(ask) = peer.ask() {
            if matches!(ask.field("authorization"), Some("Basic YW5uOnNlY3JldA==" | "Bearer token")) {
                let (head, body) = file.answer(&ask);
                peer.send(head);
                peer.send(body);
            } else {
                peer.send(
                    "HTTP/1.1 401 Who\r\nWWW-Authenticate: Basic realm=\"a\"\r\nContent-Length: 0\r\n\r\n",
                );
            }
        }
    })
}

#[test]
fn logins_from_everywhere() {
    let server = private();
    let url = server.url("/f");
    let with_login = url.replace("http://", "http://ann:secret@");
    let netrc = "machine 127.0.0.1 login ann password secret\n";
    let ended = get().args(["--user", "ann:secret", &url]).run().ok();
    assert!(ended.stderr.contains("--password-file") && !ended.stderr.contains("secret"), "{ended:?}");
    let run = get().args(["--user", "ann", "--password-file", "word", &url]);
    fs::write(run.path("word"), "secret\n").unwrap();
    let ended = run.run().ok();
    assert!(!ended.stderr.contains("--password-file"), "{ended:?}");
    get().args(["--user", "ann", &url]).run().fails(64, &["no terminal", "--password-file"]);
    get().args([&with_login]).run().ok();
    let run = get().args(["--token", "token", &url]);
    fs::write(run.path("token"), "token\n").unwrap();
    run.run().ok();
    let run = get().args([&url]);
    fs::write(run.path(".netrc"), netrc).unwrap();
    run.run().ok();
    let run = get().args([&url]);
    fs::write(run.path("other"), netrc).unwrap();
    let other = run.path("other").to_str().unwrap().to_owned();
    run.env("NETRC", other).run().ok();
    // Wrong, missing, unreadable.
    let run = get().args(["--user", "ann:wrong", &url]);
    let ended = run.run().fails(77, &[&url, "401"]);
    assert!(!ended.stderr.contains("wrong"), "no password is shown: {ended:?}");
    get().args([&url]).run().fails(77, &["401", "netrc"]);
    get().args(["--token", "missing", &url]).run().fails(66, &["missing"]);
    let run = get().args([&url]);
    fs::write(run.path(".netrc"), "machine 127.0.0.1 login").unwrap();
    run.run().fails(66, &[".netrc"]);
}

#[test]
fn a_login_goes_nowhere_else() {
    let other = Server::of(File::new(content(10, 3)));
    let to = other.url("/f");
    let server = Server::answering(format!("HTTP/1.1 302 F\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"));
    let run = get().args(["--user", "ann:secret", "--header", "Cookie: a=b", &server.url("/f")]);
    run.run().ok();
    let ask = &other.asks()[0];
    assert_eq!((ask.field("authorization"), ask.field("cookie")), (None, None));
    assert!(server.asks()[0].field("authorization").is_some());
}

#[test]
fn a_proxy_for_http() {
    // A proxy is asked with the whole URL; this one answers by itself.
    let file = File::new(content(5 << 20, 4));
    let proxy = Server::of(file.clone());
    let run = get().env("http_proxy", format!("http://ann:secret@{}", proxy.address));
    let run = run.args(["--streams", "2", "http://far.invalid/f"]);
    run.run().ok();
    same(run.path("f"), &file.bytes);
    for ask in proxy.asks() {
        assert_eq!(ask.target, "http://far.invalid/f");
        assert_eq!(ask.field("proxy-authorization"), Some("Basic YW5uOnNlY3JldA=="));
        assert_eq!(ask.field("host"), Some("far.invalid"));
    }
    // Not for what no_proxy names.
    let near = Server::of(file.clone());
    let run = get().env("http_proxy", "http://127.0.0.1:1").env("no_proxy", "127.0.0.0/8");
    let run = run.args([&near.url("/f")]);
    run.run().ok();
    same(run.path("f"), &file.bytes);
    // A proxy that is not there, or is none.
    let run = get().env("http_proxy", "http://127.0.0.1:1").args(["http://far.invalid/f"]);
    run.run().fails(69, &["the proxy http://127.0.0.1:1"]);
    let run = get().env("http_proxy", "https://127.0.0.1:1").args(["http://far.invalid/f"]);
    run.run().fails(64, &["http_proxy"]);
}

#[test]
fn a_proxy_for_https() {
    let site = Serve::start();
    let bytes = content(3 << 20, 5);
    site.file("f", &bytes);
    let proxy = Server::new(|peer| {
        let Some(ask) = peer.ask() else { return };
        assert!(ask.head.starts_with("CONNECT localhost:"), "{}", ask.head);
        let port = ask.target.rsplit(':').next().unwrap();
        let Ok(server) = std::net::TcpStream::connect(format!("127.0.0.1:{port}")) else { return };
        peer.send("HTTP/1.1 200 Go\r\n\r\n");
        let (mut up, mut down) = (peer.stream.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut up, &mut down));
        let _ = std::io::copy(&mut &server, &mut peer.stream);
    });
    let run = get().env("https_proxy", format!("http://{}", proxy.address));
    let run = run.args(["--streams", "2", "--cacert"]).args([site.ca()]).args([site.tls_url("/f")]);
    run.run().ok();
    same(run.path("f"), &bytes);
    assert!(!proxy.asks().is_empty());
    let refusing = Server::answering("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n");
    let run = get().env("https_proxy", format!("http://{}", refusing.address)).args([site.tls_url("/f")]);
    run.run().fails(77, &["the proxy of", "403"]);
}
