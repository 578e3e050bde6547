//! The user's environment: headers, logins, proxies.

use super::connection_options::tunnel;
use crate::support::{File, Serve, Server, content, get, response};

#[test]
fn headers_reach_the_server_on_every_stream() {
    let server = Server::of(File::new(content(9 << 20, 1)));
    let headers = ["X-One: 1", "Cookie:  a=b ", "User-Agent: me"].map(|header| ["--header", header]).concat();
    get().args(["--streams", "4", &server.url("/f")]).args(headers).run().ok();
    get()
        .args(["-A", "me", "-e", "http://page/", "-H", "X-One: 1", "-b", "a=b", &server.url("/f")])
        .run()
        .ok();
    let (asks, host) = (server.requests(), server.address.to_string());
    for ask in &asks {
        let fields =
            ["x-one", "cookie", "user-agent", "accept-encoding", "host"].map(|name| ask.field(name).unwrap());
        assert_eq!(fields, ["1", "a=b", "me", "identity", &host]);
    }
    assert_eq!(asks.last().unwrap().field("referer"), Some("http://page/"));
}

/// A server that requires the login ann:secret.
pub(crate) fn private() -> Server {
    let file = File::new(content(1000, 2));
    Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            if matches!(request.field("authorization"), Some("Basic YW5uOnNlY3JldA==" | "Bearer token")) {
                let (head, body) = file.answer(&request);
                peer.send(head);
                peer.send(body);
            } else {
                peer.send(response("401 Who\r\nWWW-Authenticate: Basic realm=\"a\"", ""));
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
    let run = |args: &[&str]| get().file("word", "secret\n").file("token", "token\n").args(args);
    let ended = run(&["--user", "ann:secret", &url]).run().ok();
    assert!(ended.stderr.contains("--password-file") && !ended.stderr.contains("secret"), "{ended:?}");
    let ended = run(&["--user", "ann", "--password-file", "word", &url]).run().ok();
    assert!(!ended.stderr.contains("--password-file"), "{ended:?}");
    run(&[&with_login]).run().ok();
    run(&["--token", "token", &url]).run().ok();
    run(&[&url]).file(".netrc", netrc).run().ok();
    let run_of_variable = run(&[&url]).file("other", netrc);
    let other = run_of_variable.path("other").to_str().unwrap().to_owned();
    run_of_variable.env("NETRC", other).run().ok();
    // Wrong, missing and unreadable logins.
    let ended = run(&["--user", "ann:wrong", &url]).run().fails(77, &[&url, "401"]);
    assert!(!ended.stderr.contains("wrong"), "no password is shown: {ended:?}");
    run(&["--user", "ann", &url]).run().fails(64, &["no terminal", "--password-file"]);
    run(&[&url]).run().fails(77, &["401", "netrc"]);
    run(&["--token", "missing", &url]).run().fails(66, &["missing"]);
    run(&[&url]).file(".netrc", "machine 127.0.0.1 login").run().fails(66, &[".netrc"]);
}

#[test]
fn a_proxy_for_http() {
    // A client requests the whole URL from a proxy; this proxy answers by itself.
    let file = File::new(content(5 << 20, 4));
    let proxy = Server::of(file.clone());
    let run = get().env("http_proxy", format!("http://ann:secret@{}", proxy.address));
    run.args(["--streams", "2", "http://far.invalid/f"]).fetches(&file.bytes);
    for request in proxy.requests() {
        assert_eq!(request.target, "http://far.invalid/f");
        assert_eq!(request.field("proxy-authorization"), Some("Basic YW5uOnNlY3JldA=="));
        assert_eq!(request.field("host"), Some("far.invalid"));
    }
    // Hosts in no_proxy bypass the proxy.
    let near = Server::of(file.clone());
    let run = get().env("http_proxy", "http://127.0.0.1:1").env("no_proxy", "127.0.0.0/8");
    run.args([&near.url("/f")]).fetches(&file.bytes);
    // A closed port, and a server that is no proxy.
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
        let Some(request) = peer.read_request() else { return };
        assert!(request.head.starts_with("CONNECT localhost:"), "{}", request.head);
        let port = request.target.rsplit(':').next().unwrap();
        peer.send("HTTP/1.1 200 Go\r\n\r\n");
        tunnel(peer, port.parse().unwrap());
    });
    let run = get().env("https_proxy", format!("http://{}", proxy.address));
    run.args(["--streams", "2", &site.tls_url("/f"), "--cacert"]).args([site.ca()]).fetches(&bytes);
    assert!(!proxy.requests().is_empty());
    let refusing = Server::answering(response("403 No", ""));
    let run = get().env("https_proxy", format!("http://{}", refusing.address)).args([site.tls_url("/f")]);
    run.run().fails(77, &["the proxy of", "403"]);
}
