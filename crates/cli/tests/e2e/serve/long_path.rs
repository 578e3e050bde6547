//! An emulated long path, with servers on its server host.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Stdio;
use std::sync::{MutexGuard, mpsc};
use std::time::{Duration, Instant};

use longhaul_core::units::{Bytes, Rtt};
use longhaul_lab::{Finished, Host, Lab, LabError, PathSpec, Process};
use longhaul_sys::sockopt;
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use crate::serve::BIN;
use crate::serve::starvation::without_attack;
use crate::support::skip;

/// Long, so that a scheduling delay of this machine is shorter than an RTT.
pub(crate) const RTT: Duration = Duration::from_millis(200);
const PORT: u16 = 4000;

/// A path of 100 Mbit/s, and a directory to serve; the lock on the machine is released last.
pub(crate) struct LongPath {
    lab: Lab,
    directory: TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl LongPath {
    /// Builds a path, with `/file` of `size` bytes; `None` if this machine does not permit it, which is a failure under CI.
    pub(crate) fn with_file(size: usize) -> Option<Self> {
        // One lab at a time, and no attack: scheduling delays change what arrives within an RTT.
        let turn = without_attack();
        let rate = Some("100Mbit".parse().unwrap());
        let lab = match Lab::new(PathSpec { rate, rtt: Rtt::new(RTT), ..PathSpec::default() }) {
            Ok(lab) => lab,
            Err(why @ (LabError::Namespace { .. } | LabError::Tun { .. } | LabError::Privilege { .. })) => {
                skip(&why.to_string());
                return None;
            }
            Err(other) => panic!("{other}"),
        };
        Some(Self { lab, directory: directory(size), _turn: turn })
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
    /// Waits for a line that contains `what`.
    pub(crate) fn logged(&self, what: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.log.recv_timeout(left).unwrap_or_else(|_| panic!("'{what}' is not logged"));
            if line.contains(what) {
                return line;
            }
        }
    }

    pub(crate) fn stop(mut self) -> Finished {
        self.process.terminate().unwrap();
        self.process.wait().unwrap()
    }
}

/// Connects with a window larger than the path's BDP, so that only the server's limits each round trip.
pub(crate) fn connect(server: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, None).unwrap();
    sockopt::set_recv_buffer(&socket, Bytes::mib(4)).unwrap();
    socket.connect(&server.into()).unwrap();
    socket.into()
}

/// Creates a directory with one file.
pub(crate) fn directory(size: usize) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), vec![7; size]).unwrap();
    directory
}
