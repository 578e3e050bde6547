//! An emulated long path, with servers on its server host; shared by two test programs.

#![allow(dead_code, reason = "each program uses a part")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use longhaul_core::failure::FailureKind;
use longhaul_core::units::{Bytes, Rtt};
use longhaul_lab::{Finished, Host, Lab, PathSpec, Process};
use longhaul_sys::sockopt;
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use crate::support::skip;

const BIN: &str = env!("CARGO_BIN_EXE_longhaul");

/// Long, so that a scheduling delay of this machine is shorter than an RTT.
pub(crate) const RTT: Duration = Duration::from_millis(200);
const PORT: u16 = 4000;

/// A path of 100 Mbit/s, and a directory to serve.
pub(crate) struct LongPath {
    lab: Lab,
    directory: TempDir,
}

impl LongPath {
    /// Builds a path, with `/file` of `size` bytes; `None` if this machine does not permit it,
    /// which is a failure under CI.
    pub(crate) fn with_file(size: usize) -> Option<Self> {
        let rate = Some("100Mbit".parse().unwrap());
        let lab = match Lab::new(PathSpec { rate, rtt: Rtt::new(RTT), ..PathSpec::default() }) {
            Ok(lab) => lab,
            Err(why) if why.kind() == FailureKind::Denied => {
                skip(&why.to_string());
                return None;
            }
            Err(other) => panic!("{other}"),
        };
        Some(Self { lab, directory: directory(size) })
    }

    pub(crate) fn client(&self) -> Host {
        self.lab.client()
    }

    pub(crate) fn server(&self) -> Host {
        self.lab.server()
    }

    /// Returns the servers' addresses: IPv4, then IPv6 if available.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let (v4, v6) = (self.server().ipv4(), self.server().ipv6());
        let all = [Some(v4.into()), v6.map(IpAddr::from)];
        all.into_iter().flatten().map(|ip| SocketAddr::from((ip, PORT))).collect()
    }

    /// Starts a server of the directory on the server host, and waits until it serves.
    pub(crate) fn serve(&self, args: &[&str]) -> RunningServer {
        let mut command = self.server().command(BIN);
        command.arg("serve").arg(self.directory.path()).args(args);
        command.stderr(Stdio::piped()).env("LONGHAUL_LOG", "debug");
        let addresses = self.addresses();
        addresses.iter().for_each(|address| {
            command.args(["--listen", &address.to_string()]);
        });
        let mut process = self.server().spawn(command).unwrap();
        let lines = BufReader::new(process.stderr().unwrap()).lines();
        let (sender, log) = mpsc::channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let server = RunningServer { process, log };
        addresses.iter().for_each(|_| drop(server.logged("serving ")));
        server
    }
}

/// A server on the server host; a thread reads its log.
pub(crate) struct RunningServer {
    pub(crate) process: Process,
    log: mpsc::Receiver<String>,
}

impl RunningServer {
    pub(crate) fn logged(&self, what: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.log.recv_timeout(left).unwrap_or_else(|_| panic!("'{what}' is not logged"));
            if line.contains(what) {
                return line;
            }
        }
    }

    pub(crate) fn stop(mut self) -> Finished {
        self.process.signal(rustix::process::Signal::TERM).unwrap();
        self.process.wait().unwrap()
    }
}

/// Connects with a window larger than the path's BDP, so that only the server's limits each round
/// trip.
pub(crate) fn connect(server: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, None).unwrap();
    sockopt::set_recv_buffer(&socket, Bytes::mib(4)).unwrap();
    socket.connect(&server.into()).unwrap();
    socket.into()
}

pub(crate) fn directory(size: usize) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), vec![7; size]).unwrap();
    directory
}

/// A route metric reserved for the server, in decimal and in hexadecimal.
const OURS: (&str, &str) = ("17600", "000044c0");

/// Returns a host's routes from the kernel's lists, without their use counts.
pub(crate) fn routes(host: &Host) -> String {
    let mut command = host.command("cat");
    command.args(["/proc/net/route", "/proc/net/ipv6_route"]).stdout(Stdio::piped());
    let mut process = host.spawn(command).unwrap();
    let mut text = String::new();
    process.stdout().unwrap().read_to_string(&mut text).unwrap();
    process.wait().unwrap();
    let line = |line: &str| {
        let mut fields: Vec<_> = line.split_whitespace().collect();
        // Iface Destination Gateway Flags RefCnt Use ..., and Destination Bits Source Bits Gateway
        // Metric RefCnt Use ...
        fields.drain(if fields.len() == 10 { 6..8 } else { 4..6 });
        fields.join(" ") + "\n"
    };
    let routes: String = text.lines().map(line).collect();
    assert!(routes.contains("longhaul0"), "{text}");
    routes
}

/// Counts the routes that the server has created.
pub(crate) fn ours(routes: &str) -> usize {
    let ours = |line: &&str| line.split_whitespace().any(|field| field == OURS.0 || field == OURS.1);
    routes.lines().filter(ours).count()
}

/// Waits until a host's routes match: the server changes them on its own thread, and the kernel
/// takes time.
pub(crate) fn once(host: &Host, are_right: impl Fn(&str) -> bool) -> String {
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
pub(crate) fn settled(host: &Host) -> String {
    let own = host.ipv6().map(|ip| format!("{:032x} 80 ", ip.to_bits()));
    once(host, |routes| own.as_ref().is_none_or(|own| routes.contains(own)))
}

/// Fetches `/file`; returns the bytes received within half an RTT after the first byte.
pub(crate) fn fetch(host: &Host, server: SocketAddr, header: &'static str) -> Bytes {
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
