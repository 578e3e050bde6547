//! `--initial-window`: real connections over an emulated path, and the routes of the server.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use longhaul_core::units::Bytes;
use longhaul_lab::Host;
use rustix::thread::CapabilitySet;

use crate::serve::long_path::{LongPath, RTT, connect, directory};
use crate::serve::{BIN, Serve, serve};

/// A route metric reserved for the server, in decimal and in hexadecimal.
const OURS: (&str, &str) = ("17600", "000044c0");
/// The kernel's default initial window (RFC 6928).
const TEN_SEGMENTS: Bytes = Bytes::new(10 * 1460);
/// Longer than the server takes to remove an expired route.
const REMOVED_BY_THEN: Duration = Duration::from_millis(1500);

/// Returns a host's routes from the kernel's lists, without their use counts.
fn routes(host: &Host) -> String {
    let mut command = host.command("cat");
    command.args(["/proc/net/route", "/proc/net/ipv6_route"]).stdout(Stdio::piped());
    let mut process = host.spawn(command).unwrap();
    let mut text = String::new();
    process.stdout().unwrap().read_to_string(&mut text).unwrap();
    process.wait().unwrap();
    let line = |line: &str| {
        let mut fields: Vec<_> = line.split_whitespace().collect();
        // Iface Destination Gateway Flags RefCnt Use ..., and Destination Bits Source Bits Gateway Metric RefCnt Use ...
        fields.drain(if fields.len() == 10 { 6..8 } else { 4..6 });
        fields.join(" ") + "\n"
    };
    let routes: String = text.lines().map(line).collect();
    assert!(routes.contains("longhaul0"), "{text}");
    routes
}

/// Counts the routes that the server has created.
fn ours(routes: &str) -> usize {
    let ours = |line: &&str| line.split_whitespace().any(|field| field == OURS.0 || field == OURS.1);
    routes.lines().filter(ours).count()
}

/// Waits until a host's routes match: the server changes them on its own thread, and the kernel takes time.
fn once(host: &Host, are_right: impl Fn(&str) -> bool) -> String {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let routes = routes(host);
        if are_right(&routes) {
            return routes;
        }
        assert!(Instant::now() < deadline, "{routes}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the routes of a host once the route to its own IPv6 address exists.
fn settled(host: &Host) -> String {
    let own = host.ipv6().map(|ip| format!("{:032x} 80 ", ip.to_bits()));
    once(host, |routes| own.as_ref().is_none_or(|own| routes.contains(own)))
}

/// Fetches `/file`; returns the bytes received within half an RTT after the first byte.
fn fetch(host: &Host, server: SocketAddr, header: &'static str) -> Bytes {
    let fetch = move || {
        let mut stream = connect(server);
        write!(stream, "GET /file HTTP/1.1\r\nHost: h\r\n{header}Connection: close\r\n\r\n").unwrap();
        let mut buffer = vec![0; 1 << 20];
        let mut early = stream.read(&mut buffer).unwrap();
        let first = Instant::now();
        loop {
            let read = stream.read(&mut buffer).unwrap();
            if read == 0 {
                return Bytes::new(early as u64);
            }
            if first.elapsed() < RTT / 2 {
                early += read;
            }
        }
    };
    host.run(fetch).unwrap()
}

#[test]
fn the_second_transfer_begins_with_more_than_ten_segments_and_the_routes_go_with_the_server() {
    let Some(path) = LongPath::with_file(16 << 20) else { return };
    let before = settled(&path.server());
    let server = path.serve(&["--initial-window", "auto"]);
    for (n, address) in path.addresses().into_iter().enumerate() {
        let unknown = fetch(&path.client(), address, "");
        assert!(unknown <= TEN_SEGMENTS, "{address}: {unknown} at first");
        server.logged("status=200");
        once(&path.server(), |routes| ours(routes) == n + 1);
        let known = fetch(&path.client(), address, "");
        // Half of the path's rate for half an RTT would be 430 segments, but the rate found at first is lower.
        assert!(known.get() > 10 * TEN_SEGMENTS.get(), "{address}: {known} at second");
        server.logged("status=200");
    }
    assert!(server.stop().status.success());
    assert_eq!(routes(&path.server()), before, "the routes are as they were");
}

#[test]
fn a_rate_of_the_servers_own_and_a_window_that_was_named() {
    let Some(path) = LongPath::with_file(6 << 20) else { return };
    let server = path.serve(&["--pace", "40Mbit", "--initial-window", "30"]);
    let address = path.addresses()[0];
    fetch(&path.client(), address, "");
    assert!(server.logged("begin with this window").contains("segments=30"));
    let known = fetch(&path.client(), address, "");
    assert!(known > TEN_SEGMENTS + TEN_SEGMENTS && known.get() <= 30 * 1460, "{known}");
    // A client's request for a lower pace does not lower the known rate.
    fetch(&path.client(), address, "Longhaul-Pace: 20Mbit\r\n");
    std::thread::sleep(REMOVED_BY_THEN);
    assert_eq!(ours(&routes(&path.server())), 1);
    assert!(server.stop().status.success());
}

#[test]
fn next_server_removes_routes_of_a_killed_one() {
    let Some(path) = LongPath::with_file(6 << 20) else { return };
    let options = ["--pace", "40Mbit", "--initial-window", "30"];
    let mut server = path.serve(&options);
    fetch(&path.client(), path.addresses()[0], "");
    server.logged("begin with this window");
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    assert_eq!(ours(&routes(&path.server())), 1, "the route is still there");
    let next = path.serve(&options);
    once(&path.server(), |routes| ours(routes) == 0);
    assert!(next.stop().status.success());
}

#[test]
fn no_route_is_created_by_default() {
    let Some(path) = LongPath::with_file(6 << 20) else { return };
    let before = settled(&path.server());
    let server = path.serve(&["--pace", "40Mbit"]);
    fetch(&path.client(), path.addresses()[0], "");
    server.logged("status=200");
    assert_eq!(routes(&path.server()), before);
}

#[test]
fn invalid_windows_are_refused() {
    let directory = directory(1);
    let refused = |args: &[&str], why: &str| {
        let output = serve(directory.path(), args).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{args:?}: {error}");
        assert!(error.contains(why), "{args:?}: {error}");
    };
    for window in ["0", "-1", "ten", "", "1.5", "99999999999"] {
        refused(&[&format!("--initial-window={window}")], "off, auto, or a number of segments");
    }
    refused(&["--initial-window", "auto", "--pace", "off"], "--initial-window needs a pace");
}

#[test]
fn without_permission_the_server_starts_with_a_warning() {
    let directory = directory(3 << 20);
    let permitted = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN));
    let plain = serve(directory.path(), &["--initial-window", "auto"]);
    let command = if permitted {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin", BIN]).args(plain.get_args());
        command
    } else {
        plain
    };
    let server = Serve::start(command);
    assert!(crate::serve::get(server.address, "/file").len() > 3 << 20);
    server.signal(rustix::process::Signal::TERM);
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(log.matches("cap_net_admin").count(), 1, "{log}");
}
