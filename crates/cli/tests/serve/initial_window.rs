//! `--initial-window`: real connections over an emulated path, and the routes that are there meanwhile.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use longhaul_core::units::{Bytes, Rtt};
use longhaul_lab::{Finished, Host, Lab, LabError, PathSpec, Process};
use rustix::thread::CapabilitySet;

use crate::{BIN, Serve, serve};

/// Long, so that a moment's delay on this machine is no round trip.
const RTT: Duration = Duration::from_millis(200);
/// A metric that nobody else uses, in decimal and in hexadecimal.
const OURS: (&str, &str) = ("17600", "000044c0");
const PORT: u16 = 4000;
/// What the kernel sends in the first round trip by itself (RFC 6928).
const TEN_SEGMENTS: Bytes = Bytes::new(10 * 1460);

/// One lab at a time: what comes within a round trip is a matter of when this machine has time.
static TURN: Mutex<()> = Mutex::new(());

/// Builds a lab; `None` where this machine does not permit it, which under CI is a failure.
fn lab() -> Option<Lab> {
    let spec = PathSpec { rate: Some("100Mbit".parse().unwrap()), rtt: Rtt::new(RTT), ..PathSpec::default() };
    match Lab::new(spec) {
        Ok(lab) => Some(lab),
        Err(why @ (LabError::Namespace { .. } | LabError::Tun { .. } | LabError::Privilege { .. })) => {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
            println!("skipped: {why}");
            None
        }
        Err(other) => panic!("{other}"),
    }
}

/// The far host's addresses.
fn addresses(lab: &Lab) -> Vec<IpAddr> {
    let far = lab.far();
    [Some(far.ipv4().into()), far.ipv6().map(IpAddr::from)].into_iter().flatten().collect()
}

/// A server on the far host; its log is read as it comes.
struct Far {
    process: Process,
    log: mpsc::Receiver<String>,
}

impl Far {
    fn start(lab: &Lab, directory: &Path, args: &[&str]) -> Self {
        let mut command = lab.far().command(BIN);
        command.arg("serve").arg(directory).args(args).stderr(Stdio::piped()).env("LONGHAUL_LOG", "debug");
        let addresses = addresses(lab);
        addresses.iter().for_each(|ip| {
            command.args(["--listen", &SocketAddr::from((*ip, PORT)).to_string()]);
        });
        let mut process = lab.far().spawn(command).unwrap();
        let lines = BufReader::new(process.stderr().unwrap()).lines();
        let (sender, log) = mpsc::channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let far = Self { process, log };
        addresses.iter().for_each(|_| drop(far.logged("serving ")));
        far
    }

    /// Waits for a line that holds `what`.
    fn logged(&self, what: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.log.recv_timeout(left).unwrap_or_else(|_| panic!("'{what}' is not logged"));
            if line.contains(what) {
                return line;
            }
        }
    }

    fn stop(mut self) -> Finished {
        self.process.terminate().unwrap();
        self.process.wait().unwrap()
    }
}

/// Returns the routes of a host, as the kernel lists them, without the counts of their uses.
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

/// Counts the routes that the server has made.
fn ours(host: &Host) -> usize {
    let ours = |line: &&str| line.split_whitespace().any(|field| field == OURS.0 || field == OURS.1);
    routes(host).lines().filter(ours).count()
}

/// Waits until the server has made so many routes: a thread of its own does.
fn becomes(host: &Host, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while ours(host) != count {
        assert!(Instant::now() < deadline, "not {count}: {}", routes(host));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Fetches `/file` to its end; returns how much of it came within the first round trip after the first byte.
fn fetch(host: &Host, server: SocketAddr, header: &'static str) -> Bytes {
    let fetch = move || {
        let mut stream = TcpStream::connect(server).unwrap();
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

/// Makes a directory that holds a file.
fn directory(size: usize) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), vec![7; size]).unwrap();
    directory
}

#[test]
fn the_second_transfer_begins_with_more_than_ten_segments_and_the_routes_go_with_the_server() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(lab) = lab() else { return };
    let directory = directory(16 << 20);
    let before = routes(&lab.far());
    let server = Far::start(&lab, directory.path(), &["--initial-window", "auto"]);
    for (n, ip) in addresses(&lab).into_iter().enumerate() {
        let address = SocketAddr::from((ip, PORT));
        let unknown = fetch(&lab.near(), address, "");
        assert!(unknown <= TEN_SEGMENTS, "{ip}: {unknown} at first");
        server.logged("status=200");
        becomes(&lab.far(), n + 1);
        let known = fetch(&lab.near(), address, "");
        assert!(known > TEN_SEGMENTS + TEN_SEGMENTS, "{ip}: {known} at second");
        server.logged("status=200");
    }
    assert!(server.stop().status.success());
    assert_eq!(routes(&lab.far()), before, "the routes are as they were");
}

#[test]
fn a_rate_of_the_servers_own_and_a_window_that_was_named() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(lab) = lab() else { return };
    let directory = directory(6 << 20);
    let server = Far::start(&lab, directory.path(), &["--pace", "40Mbit", "--initial-window", "30"]);
    let address = SocketAddr::from((lab.far().ipv4(), PORT));
    fetch(&lab.near(), address, "");
    assert!(server.logged("begin with this window").contains("segments=30"));
    let known = fetch(&lab.near(), address, "");
    assert!(known > TEN_SEGMENTS + TEN_SEGMENTS && known.get() <= 30 * 1460, "{known}");
    // Whoever asks for less is no reason to forget it.
    fetch(&lab.near(), address, "Longhaul-Pace: 20Mbit\r\n");
    assert_eq!(ours(&lab.far()), 1);
    assert!(server.stop().status.success());
}

#[test]
fn what_a_killed_server_has_left_goes_with_the_next() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(lab) = lab() else { return };
    let directory = directory(6 << 20);
    let options = ["--pace", "40Mbit", "--initial-window", "30"];
    let mut server = Far::start(&lab, directory.path(), &options);
    fetch(&lab.near(), SocketAddr::from((lab.far().ipv4(), PORT)), "");
    server.logged("begin with this window");
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    assert_eq!(ours(&lab.far()), 1, "nobody has removed it");
    let next = Far::start(&lab, directory.path(), &options);
    becomes(&lab.far(), 0);
    assert!(next.stop().status.success());
}

#[test]
fn no_route_is_made_unless_that_is_asked_for() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(lab) = lab() else { return };
    let directory = directory(6 << 20);
    let before = routes(&lab.far());
    let server = Far::start(&lab, directory.path(), &["--pace", "40Mbit"]);
    fetch(&lab.near(), SocketAddr::from((lab.far().ipv4(), PORT)), "");
    server.logged("status=200");
    assert_eq!(routes(&lab.far()), before);
}

#[test]
fn what_cannot_be_is_refused() {
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
fn without_permission_it_serves_as_ever_and_says_what_to_do() {
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
    assert!(crate::get(server.address, "/file").len() > 3 << 20);
    server.signal(rustix::process::Signal::TERM);
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(log.matches("cap_net_admin").count(), 1, "{log}");
}
