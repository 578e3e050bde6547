//! Connection options shared with curl: proxies, addresses, names.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::get::environment::private;
use crate::support::{Ended, File, Peer, Scripted, Serve, Server, Writable, content, get, put, same};

/// A SOCKS 5 proxy that connects to `port` of 127.0.0.1 if it is requested by one of
/// `destinations`; it requires the login ann:secret if the client has one.
fn socks(peer: &mut Peer, port: u16, destinations: &[&[u8]]) {
    let mut greeting = [0; 3];
    if peer.stream.read_exact(&mut greeting).is_err() {
        return;
    }
    let method = if greeting[1] == 2 { 2 } else { 0 };
    peer.stream.write_all(&[5, method]).unwrap();
    if method == 2 {
        // The second method, and the login.
        let mut login = [0; 13];
        peer.stream.read_exact(&mut login).unwrap();
        assert_eq!(&login, b"\x02\x01\x03ann\x06secret");
        peer.stream.write_all(&[1, 0]).unwrap();
    }
    let mut request = [0; 64];
    let len = peer.stream.read(&mut request).unwrap();
    // The destination is followed by a port of two bytes.
    if !destinations.contains(&&request[..len - 2]) {
        // The host is unreachable.
        peer.stream.write_all(&[5, 4, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
        return;
    }
    peer.stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    tunnel(peer, port);
}

/// Copies between a client and `port` in both directions.
pub(crate) fn tunnel(peer: &mut Peer, port: u16) {
    let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (mut up, mut down) = (peer.stream.try_clone().unwrap(), server.try_clone().unwrap());
    std::thread::spawn(move || std::io::copy(&mut up, &mut down));
    let _ = std::io::copy(&mut &server, &mut peer.stream);
}

#[test]
fn socks_proxy_tries_each_address_of_the_server() {
    let server = Server::of(File::new(content(100_000, 66)));
    let port = server.address.port();
    let proxy = Server::new(move |peer| socks(peer, port, &[&[5, 1, 0, 1, 127, 0, 0, 1]]));
    let run = |addresses: &str| {
        let rule = format!("far.test:{port}:{addresses}");
        let run = get().args(["-x", &format!("socks5://{}", proxy.address), "--resolve", &rule]);
        run.args(["--retries", "0", &format!("http://far.test:{port}/f")]).run()
    };
    run("192.0.2.1,127.0.0.1").ok();
    run("192.0.2.1,192.0.2.2").fails(69, &["the proxy of"]);
}

#[test]
fn socks_proxy_looks_up_the_name() {
    let file = File::new(content(3 << 20, 60));
    let server = Server::of(file.clone());
    let port = server.address.port();
    let proxy = Server::new(move |peer| socks(peer, port, &[b"\x05\x01\x00\x03\x0bfar.invalid"]));
    let url = format!("socks5h://ann:secret@{}", proxy.address);
    get().args(["--proxy", &url, "--streams", "2", "http://far.invalid/f"]).fetches(&file.bytes);
    assert_eq!(server.requests()[0].target, "/f");
    assert_eq!(server.requests()[0].field("host"), Some("far.invalid"));
    // The proxy can also be set in the environment.
    get().env("ALL_PROXY", url.replace("socks5h", "socks")).args(["http://far.invalid/f"]).run().ok();
    // Not a SOCKS server.
    let other = Server::new(|peer| {
        peer.send("HTTP/1.1 400 No\r\n\r\n");
    });
    let run = get().args(["-x", &format!("socks5://{}", other.address), "http://127.0.0.1:1/f"]);
    run.run().fails(76, &["the proxy of", "not SOCKS 5"]);
}

#[test]
fn proxy_option_overrides_the_environment() {
    let file = File::new(content(1000, 61));
    let proxy = Server::of(file.clone());
    let run = get().env("http_proxy", "http://127.0.0.1:1");
    run.args(["--proxy", &proxy.address.to_string(), "http://far.invalid/f"]).run().ok();
    assert_eq!(proxy.requests()[0].target, "http://far.invalid/f");
    let near = Server::of(file);
    get().env("http_proxy", "http://127.0.0.1:1").args(["--proxy", "", &near.url("/f")]).run().ok();
    get().args(["--proxy", "https://h", "http://h/f"]).run().fails(64, &["--proxy", "socks5h://"]);
    get().args(["--proxy", "http://h", "ftp://h/f"]).run().fails(64, &["--proxy", "FTP"]);
    let of_ftp = get().env("ALL_PROXY", "http://127.0.0.1:1").args(["--retries", "0", "ftp://127.0.0.1:1/f"]);
    let ended = of_ftp.run().fails(69, &["cannot connect"]);
    assert!(ended.stderr.contains("ALL_PROXY applies to http:// and https:// only"), "{ended:?}");
}

#[test]
fn address_that_does_not_answer_is_tried_last() {
    let file = File::new(content(1000, 67));
    let [server, other] = [(); 2].map(|()| Server::of(file.clone()));
    let (ftp, site) = (Scripted::honest(file.bytes.to_vec()), Writable::start());
    for (run, address, url, play) in [
        (get(), server.address, "http://two.test:PORT/f", Peer::stay_silent as fn(&mut Peer)),
        (get(), other.address, "http://two.test:PORT/f", |peer| peer.answer("")),
        (get(), ftp.address, "ftp://two.test:PORT/f", Peer::stay_silent),
        (
            put().file("f", &*file.bytes).args(["f"]),
            site.address(),
            "http://two.test:PORT/f",
            Peer::stay_silent,
        ),
    ] {
        let port = address.port().to_string();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        let listener = TcpListener::bind(("127.0.0.2", address.port())).unwrap();
        let silent = Server::on(listener, move |peer| {
            counted.fetch_add(1, Ordering::Relaxed);
            play(peer);
        });
        let rule = format!("two.test:{port}:127.0.0.2,127.0.0.1");
        let run = run.args(["--resolve", &rule, "--stall-timeout", "1s", "--retries", "1"]);
        let run = run.args(["--allow-cleartext", "--token"]).args([site.token()]);
        let run = run.args([url.replace("PORT", &port)]);
        run.run().ok();
        assert_eq!(connections.load(Ordering::Relaxed), 1, "{url} {:?}", silent.requests());
        same(if address == site.address() { site.path("f") } else { run.path("f") }, &file.bytes);
    }
}

#[test]
fn host_has_the_address_that_is_given() {
    let server = Server::of(File::new(content(1000, 62)));
    let port = server.address.port();
    let rule = format!("far.invalid:{port}:127.0.0.1");
    let url = format!("http://far.invalid:{port}/f");
    let [dotted_rule, dotted_url] = [&rule, &url].map(|text| text.replace("invalid:", "invalid.:"));
    for args in [&[&*rule, &*url][..], &[&rule, "-4", &url], &[&dotted_rule, &url], &[&rule, &dotted_url]] {
        get().args(["--resolve"]).args(args).run().ok();
    }
    get().args(["-6", "--resolve", &rule, &url]).run().fails(68, &["far.invalid", "no IPv6 address"]);
    get().args(["--resolve", "far.invalid", &url]).run().is_misused("--resolve");
}

#[test]
fn insecure_trusts_anyone_with_a_warning_and_pins_still_count() {
    let site = Serve::start();
    let bytes = content(100_000, 63);
    site.file("f", &bytes);
    let ended = get().args(["-k", &site.tls_url("/f")]).fetches(&bytes);
    assert!(ended.stderr.contains("--insecure"), "{ended:?}");
    let pin = "0".repeat(64);
    get().args(["-k", "--pin", &pin, &site.tls_url("/f")]).run().fails(76, &["--pin"]);
}

/// Runs with files that contain the login; fails if its secret is shown.
fn run(args: &[&str]) -> Ended {
    let run = get().file("token", "secret\n").file("list", "http://ann:secret@0.0.0.0:1/f\n");
    let ended = run.args(args).args(["--retries", "0"]).run();
    assert!(!ended.stderr.contains("secret"), "{ended:?}");
    ended
}

#[test]
fn login_does_not_go_in_clear_beyond_loopback() {
    // 0.0.0.0 is not in 127.0.0.0/8, but reaches only this host.
    let far = "http://0.0.0.0:1/f";
    for args in [
        &["--user", "ann:secret", far][..],
        &["--token", "token", far],
        &["--token", "token", "-r", "http://0.0.0.0:1/d/"],
        &["http://ann:secret@0.0.0.0:1/f"],
        &["ftp://ann:secret@0.0.0.0:1/f"],
        &["-i", "list"],
    ] {
        run(args).fails(64, &["unencrypted", "https://", "--allow-cleartext"]);
    }
    for args in [
        &["--allow-cleartext", "--user", "ann:secret", far][..],
        &["--allow-cleartext", "ftp://ann:secret@0.0.0.0:1/f"],
        &["--allow-cleartext", "-i", "list"],
        &["--user", "ann:secret", "http://127.0.0.1:1/f"],
        &["--user", "ann:secret", "https://0.0.0.0:1/f"],
        &["ftp://anonymous:me@0.0.0.0:1/f"],
        &[far],
    ] {
        run(args).fails(69, &["cannot connect"]);
    }
    for args in [&["-H", "Authorization: Bearer secret", far][..], &["-b", "a=secret", far]] {
        let ended = run(args).fails(69, &["cannot connect"]);
        assert!(ended.stderr.contains("unencrypted: use https://"), "{ended:?}");
    }
}

/// The address of the connection decides, not the host of the URL: here 0.0.0.0 is beyond loopback.
#[test]
fn login_does_not_go_in_clear_to_a_proxy_or_fixed_address_beyond_loopback() {
    let server = Server::of(File::new(content(1000, 131)));
    let port = server.address.port();
    let proxy = format!("http://0.0.0.0:{port}");
    let with_login = proxy.replace("//", "//u:secret@");
    let far = format!("0.0.0.0:{port}");
    let (named, numbered) = (format!("localhost:{port}:0.0.0.0"), format!("127.0.0.1:{port}:0.0.0.0"));
    let (of_name, of_ftp) =
        (format!("http://localhost:{port}/f"), format!("ftp://ann:secret@localhost:{port}/f"));
    for args in [
        &["-x", &proxy, "--token", "token", "http://127.0.0.1:1/f"][..],
        &["-x", &proxy, "-u", "ann", "--password-file", "token", "http://localhost:1/f"],
        &["-x", &proxy, "http://ann:secret@127.0.0.1:1/f"],
        &["--resolve", &named, "--token", "token", &of_name],
        &["--resolve", &numbered, "--token", "token", &server.url("/f")],
        &["--resolve", &numbered, "--token", "token", "-r", &server.url("/d/")],
        &["--resolve", &named, &of_ftp],
    ] {
        run(args).fails(64, &["unencrypted", &far, "--allow-cleartext"]);
    }
    assert!(server.requests().is_empty());
    // Within a tunnel the origin's TLS protects the token; the scripted server opens no tunnel.
    let ended = run(&["-x", &proxy, "--token", "token", "https://127.0.0.1:1/f"]);
    assert!(!ended.stderr.contains("unencrypted") && server.requests().len() == 1, "{ended:?}");
    // The login of the proxy itself is sent, as there may be no other way.
    let ended = run(&["-x", &with_login, "http://example.org/f"]).ok();
    assert_eq!(ended.stderr.matches("proxy's login").count(), 1, "{ended:?}");
    for args in [
        &["-x", &proxy, "--token", "token", "http://127.0.0.1:1/f"][..],
        &["-x", &with_login, "http://example.org/f"],
        &["--resolve", &named, "--token", "token", &of_name],
    ] {
        run(&[&["--allow-cleartext"], args].concat()).ok();
    }
}

#[test]
fn pin_without_tls_is_refused() {
    let server = Server::of(File::new(content(1000, 132)));
    let pin = "0".repeat(64);
    let ftp = server.url("/f").replace("http", "ftp");
    for url in [&server.url("/f"), &ftp, &ftp.replace("ftp", "gsiftp")] {
        get().args(["--pin", &pin, url]).run().fails(64, &["--pin", "use "]);
    }
    get().args(["--pin", &pin, "-r", &server.url("/d/")]).run().fails(64, &["--pin"]);
    assert!(server.requests().is_empty());
}

const NETRC: &str =
    "machine 127.0.0.1 login ann password secret\nmachine far.test login ann password secret\n";

#[test]
fn login_of_netrc_goes_with_the_first_request() {
    let server = private();
    get().file(".netrc", NETRC).args(["-n", &server.url("/f")]).run().ok();
    assert_eq!(server.requests().len(), 1);
    assert!(server.requests()[0].field("authorization").is_some());
    // The file that is named comes first, and has to exist.
    let run = get().file("logins", NETRC).file(".netrc", NETRC.replace("secret", "wrong"));
    run.args(["--netrc-file", "logins", &server.url("/f")]).run().ok();
    let asked = server.requests().len();
    get().args(["--netrc-file", "nosuch", &server.url("/f")]).run().fails(66, &["nosuch"]);
    assert_eq!(server.requests().len(), asked);
}

#[test]
fn login_of_netrc_does_not_go_in_clear_beyond_loopback() {
    let server = private();
    let port = server.address.port();
    let (rule, url) = (format!("far.test:{port}:127.0.0.1"), format!("http://far.test:{port}/f"));
    let proxy = format!("http://0.0.0.0:{port}");
    for args in [["--resolve", &rule, &url], ["-x", &proxy, "http://127.0.0.1:1/f"]] {
        let run = get().file(".netrc", NETRC).args(args);
        run.run().fails(64, &["unencrypted", "--allow-cleartext"]);
        assert!(server.requests().iter().all(|ask| ask.field("authorization").is_none()));
    }
    get().file(".netrc", NETRC).args(["--allow-cleartext", "--resolve", &rule, &url]).run().ok();
}

#[test]
fn max_time_ends_the_command_resumably() {
    let bytes = content(4 << 20, 65);
    let file = File::new(bytes.clone());
    let slow = Server::new(move |peer| {
        peer.begin(&file, 2 << 20);
        peer.stay_silent();
    });
    let run = get().args(["--max-time", "1500ms", "--json", "--streams", "1", &slow.url("/f")]);
    let ended = run.fails_resumably(75, &["--max-time is over"]);
    assert_eq!(ended.json().last().unwrap()["exit_code"], 75);
    slow.mend(File::new(bytes.clone()));
    let ended = run.again(["--max-time", "30s", "--json", &slow.url("/f")]).fetches(&bytes);
    assert!(ended.done()["resumed"].as_u64() > Some(0), "{ended:?}");
}

#[test]
fn time_that_ends_before_a_file_is_begun_promises_no_resumption() {
    let silent = Server::silent();
    let url = silent.url("/f/");
    for args in [&["-o", "f"][..], &["-r"]] {
        let ended = get().args(["--max-time", "500ms", &url]).args(args).run();
        let ended = ended.fails(75, &["--max-time is over"]);
        assert!(!ended.stderr.contains("resume") && !ended.stderr.contains("cancelled"), "{ended:?}");
    }
}
