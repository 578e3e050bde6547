//! The user's environment: headers, cookies, logins, proxies.

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
    Server::replying(move |request| match request.field("authorization") {
        Some("Basic YW5uOnNlY3JldA==" | "Bearer token") => file.response(request),
        _ => response("401 Who\r\nWWW-Authenticate: Basic realm=\"a\"", "").into(),
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
fn login_is_sent_by_digest_to_a_server_that_takes_no_other() {
    let file = File::new(content(300_000, 84));
    let server = Server::with(&file, move |peer, served| {
        // Each nonce holds for its connection only, and the first connection breaks off.
        let nonce = format!("nonce=\"{}\"", peer.number);
        while let Some(request) = peer.read_request() {
            let login = request.field("authorization").unwrap_or_default();
            if login.starts_with("Digest ") && login.contains(&nonce) && login.contains("uri=\"/f?a\"") {
                let (head, body) = served.answer(&request);
                let length = if peer.number == 0 { body.len() / 2 } else { body.len() };
                if !(peer.send(head) && peer.send(&body[..length])) || length < body.len() {
                    return peer.close();
                }
            } else {
                let challenge = format!("WWW-Authenticate: Digest realm=\"r\", qop=\"auth\", {nonce}");
                let stale = if login.starts_with("Digest ") { ", stale=true" } else { "" };
                peer.send(response(&format!("401 Who\r\n{challenge}{stale}"), ""));
            }
        }
    });
    let netrc = "machine 127.0.0.1 login ann password secret\n";
    get().file(".netrc", netrc).args(["-o", "f", &server.url("/f?a")]).fetches(&file.bytes);
    let run = get().file("word", "secret\n").args(["-o", "f", &server.url("/f?a"), "--user"]);
    run.args(["ann", "--password-file", "word"]).fetches(&file.bytes);
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
    // A proxy that requires a login, a closed port, and a server that is no proxy.
    let private = Server::answering(response("407 Who\r\nProxy-Authenticate: Basic", ""));
    get().env("http_proxy", private.url("")).args(["http://far.invalid/f"]).run().fails(77, &["407"]);
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
    for status in ["403 No", "407 Who\r\nProxy-Authenticate: Basic"] {
        let refusing = Server::answering(response(status, ""));
        let run = get().env("https_proxy", refusing.url("")).args([site.tls_url("/f")]);
        run.run().fails(77, &["the proxy of", &status[..3]]);
    }
}

/// Returns the Cookie header of a server's first request.
fn cookie(server: &Server) -> Option<String> {
    server.requests()[0].field("cookie").map(str::to_owned)
}

const COOKIE_FILE: &str = "# Netscape HTTP Cookie File\n\
    first.test\tFALSE\t/\tFALSE\t0\tfirst\t1\n\
    #HttpOnly_.second.test\tTRUE\t/\tFALSE\t4102444800\tsecond\t2\n\
    first.test\tFALSE\t/other\tFALSE\t0\tpath\tno\n\
    first.test\tFALSE\t/\tTRUE\t0\tsecure\tno\n\
    first.test\tFALSE\t/\tFALSE\t1000000000\texpired\tno\n";

#[test]
fn each_server_of_a_redirect_gets_its_own_cookies() {
    let last = Server::of(File::new(content(1000, 80)));
    let port = last.address.port();
    let first = Server::redirecting(&format!("http://www.second.test:{port}/f"));
    let rules = [
        format!("first.test:{}:127.0.0.1", first.address.port()),
        format!("www.second.test:{port}:127.0.0.1"),
    ];
    let url = format!("http://first.test:{}/f", first.address.port());
    let run = get().args(["--resolve", &rules[0], "--resolve", &rules[1], "--load-cookies", "jar"]);
    let run = run.file("jar", COOKIE_FILE).args(["-b", "own=0", "-H", "X-Api-Key: y", "-H", "Accept: z"]);
    let run = run.args(["-H", "Accept-Encoding: br", "-H", "Connection: close", "-H", "Range: bytes=0-"]);
    let run = run.args([&url]);
    let ended = run.run().ok();
    assert!(ended.stderr.contains("sets it: the header Accept-Encoding, Connection, Range"), "{ended:?}");
    assert_eq!(cookie(&first).as_deref(), Some("own=0; first=1"));
    assert_eq!(cookie(&last).as_deref(), Some("second=2"), "{ended:?}");
    let sent = |server: &Server, n: usize| {
        ["x-api-key", "accept", "accept-encoding"]
            .map(|name| server.requests()[n].field(name).map(str::to_owned))
    };
    let [key, accept, identity] = ["y", "z", "identity"].map(|value| Some(value.to_owned()));
    assert_eq!(sent(&first, 0), [key.clone(), accept.clone(), identity.clone()]);
    assert_eq!(sent(&last, 0), [None, accept.clone(), identity.clone()]);
    run.args(["-o", "g", "--location-trusted"]).run().ok();
    assert_eq!(sent(&last, 1), [key, accept, identity]);
}

/// As of NASA's Earthdata: the data's server sends to a login, which sends back with a code for a
/// cookie.
#[test]
fn cookie_of_a_redirect_leads_back_to_the_file() {
    let file = File::new(content(1000, 83));
    let data = Server::replying(move |request| match request.target.as_str() {
        _ if request.field("cookie") == Some("s=1") => file.response(request),
        "/oauth" => response("302 X\r\nSet-Cookie: s=1; Path=/\r\nLocation: /f", "").into(),
        _ => response(&format!("302 X\r\nLocation: {}", request.field("x-login").unwrap()), "").into(),
    });
    let back = format!("http://data.test:{}/oauth", data.address.port());
    let login = Server::replying(move |request| match request.field("authorization") {
        Some(_) => response(&format!("302 X\r\nLocation: {back}"), ""),
        None => response("401 X\r\nWWW-Authenticate: Basic", ""),
    });
    let rule = format!("data.test:{}:127.0.0.1", data.address.port());
    let urls = ["/f", "/g"].map(|path| format!("http://data.test:{}{path}", data.address.port()));
    let header = format!("X-Login: {}", login.url("/authorize"));
    let run = get().file(".netrc", "machine 127.0.0.1 login u password p\n").args(["--resolve", &rule]);
    run.args(["-H", &header, "--parallel", "1", "-o", "d/"]).args(&urls).run().ok();
    let targets: Vec<_> = data.requests().into_iter().map(|request| request.target).collect();
    assert_eq!(targets, ["/f", "/oauth", "/f", "/g"], "the second file needs no login");
}

#[test]
fn cookies_of_the_command_line_stay_with_the_first_server() {
    let last = Server::of(File::new(content(1000, 81)));
    let first = Server::redirecting(&last.url("/f"));
    get().args(["-b", "a=b", "--cookie", "c=d; e=f", "-H", "cookie: g=h", &first.url("/f")]).run().ok();
    assert_eq!((cookie(&first).as_deref(), cookie(&last)), (Some("g=h; a=b; c=d; e=f"), None));
    assert_eq!(first.requests()[0].head.to_ascii_lowercase().matches("\ncookie:").count(), 1);
    let first = Server::redirecting(&last.url("/f"));
    get().args(["-u", "ann:secret", "-H", "Cookie: a=b", &first.url("/f")]).run().ok();
    assert_eq!((cookie(&first).as_deref(), cookie(&last)), (Some("a=b"), None));
    // Neither is a login sent to others.
    let has_login =
        |server: &Server| server.requests().iter().any(|ask| ask.field("authorization").is_some());
    assert_eq!((has_login(&first), has_login(&last)), (true, false));
}

#[test]
fn cookie_without_a_value_names_a_file() {
    let server = Server::of(File::new(content(1000, 82)));
    let run = get().file("jar", "127.0.0.1\tFALSE\t/\tFALSE\t0\ta\tb\nbroken\n");
    let ended = run.args(["-b", "jar", &server.url("/f")]).run().ok();
    assert_eq!(cookie(&server).as_deref(), Some("a=b"));
    assert!(ended.stderr.contains("jar: 1 lines") && ended.stderr.contains("line 2"), "{ended:?}");
    // A file without cookies ends the command before a request.
    let run = get().file("jar", "{\"cookies\": []}\n").args(["--load-cookies", "jar", &server.url("/f")]);
    run.run().fails(64, &["jar", "Netscape"]);
    run.again(["--load-cookies", "none", &server.url("/f")]).run().fails(66, &["none"]);
    assert_eq!(server.requests().len(), 1);
}
