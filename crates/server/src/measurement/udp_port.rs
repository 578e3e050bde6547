//! A UDP port for one client: opened by a request over TCP, and for a short time.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::probe::message::{LARGEST_MESSAGE, Nonce, UdpOffer, UdpPacket, UdpRequest};
use longhaul_core::probe::packet_train::udp_headers;
use longhaul_core::units::Bytes;
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use socket2::SockRef;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::Measurement;
use super::rate_ceiling::{ProbeId, RateCeiling};
use super::train::Train;
use crate::shutdown::ServerPhase;

/// How long a port is open at most; a probe needs it for ten seconds.
const OPEN: Duration = Duration::from_secs(30);
/// A client that asks for nothing for this long has gone.
const IDLE: Duration = Duration::from_secs(8);
/// How often the port looks whether the server ends.
const TICK: Duration = Duration::from_millis(100);
/// What a port may send: so much of the ceiling.
const SENDING: Duration = Duration::from_secs(2);

/// One client's port.
struct UdpPort {
    socket: UdpSocket,
    nonce: Nonce,
    probe: ProbeId,
    /// Whether the socket is connected to the address from which the first request came.
    is_connected: bool,
    ceiling: Option<Arc<RateCeiling>>,
    left: Bytes,
    /// What each message adds to at the IP layer.
    headers: Bytes,
    opened: Instant,
    /// The number of the last train: one that comes again was sent already.
    last_train: u32,
    phase: watch::Receiver<ServerPhase>,
}

/// Opens a port for a probe at the address to which it has connected by `connection`.
pub(super) fn open(
    measurement: &Measurement,
    connection: BorrowedFd<'_>,
    probe: ProbeId,
    permit: OwnedSemaphorePermit,
) -> io::Result<UdpOffer> {
    let local = SockRef::from(&connection).local_addr()?.as_socket();
    let local = local.ok_or_else(|| io::Error::other("the connection has no IP address"))?;
    let socket = UdpSocket::bind(SocketAddr::new(local.ip(), 0))?;
    socket.set_read_timeout(Some(TICK))?;
    // Packets that are too large must be lost, not cut: that is what is measured.
    if local.is_ipv4() {
        set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)?;
    } else {
        set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE)?;
    }
    let mut nonce = Nonce([0; 16]);
    fill_random(&mut nonce.0)?;
    let left = measurement.udp_ceiling().bytes_in(SENDING);
    let offer = UdpOffer {
        port: socket.local_addr()?.port(),
        nonce: nonce.to_hex(),
        bytes: left.get(),
        seconds: OPEN.as_secs(),
    };
    let port = UdpPort {
        socket,
        nonce,
        probe,
        is_connected: false,
        ceiling: measurement.ceiling.clone(),
        left,
        headers: udp_headers(local.ip()),
        opened: Instant::now(),
        last_train: 0,
        phase: measurement.phase.clone(),
    };
    std::thread::Builder::new().name("measure-udp".to_owned()).spawn(move || {
        port.run();
        drop(permit);
    })?;
    Ok(offer)
}

fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    use std::io::Read;
    std::fs::File::open("/dev/urandom")?.read_exact(bytes)
}

impl UdpPort {
    /// Answers requests until the client has gone, the time is over, or the server ends.
    fn run(mut self) {
        let mut buffer = vec![0; LARGEST_MESSAGE.as_usize()];
        let mut asked = Instant::now();
        while self.opened.elapsed() < OPEN && asked.elapsed() < IDLE && self.is_running() {
            let (length, from) = match self.socket.recv_from(&mut buffer) {
                Ok(received) => received,
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
                {
                    continue;
                }
                // The client's port is closed: it has gone.
                Err(_) => return,
            };
            if from.ip() != self.probe.client {
                continue;
            }
            let Some(request) = UdpRequest::parse(&buffer[..length], self.nonce) else { continue };
            // From now on the kernel passes datagrams of this address only, and sends to no other.
            if !self.is_connected {
                if self.socket.connect(from).is_err() {
                    return;
                }
                self.is_connected = true;
            }
            asked = Instant::now();
            if !self.answer(request, Bytes::new(length as u64)) {
                return;
            }
            // Sending a train does not count as the client's silence.
            asked = asked.max(Instant::now());
        }
    }

    fn is_running(&self) -> bool {
        *self.phase.borrow() == ServerPhase::Running
    }

    /// Answers a request of `length` bytes; returns whether to go on.
    fn answer(&mut self, request: UdpRequest, length: Bytes) -> bool {
        match request {
            UdpRequest::Echo { number } => {
                let size = length + self.headers;
                if size > self.left {
                    return true;
                }
                self.left = self.left - size;
                let sent = self.opened.elapsed();
                let mut packet = vec![0; length.as_usize()];
                UdpPacket { is_echo: true, train: number, packet: 0, sent }.write(&mut packet);
                // One that cannot be sent is one that does not arrive.
                let _ = self.socket.send(&packet);
                true
            }
            UdpRequest::Train { number, plan } => {
                if number <= self.last_train {
                    return true;
                }
                self.last_train = number;
                let deadline = self.opened + OPEN;
                let share = self.ceiling.as_ref().map(|ceiling| ceiling.join_paced(self.probe, plan.rate));
                let train = Train {
                    number,
                    plan,
                    headers: self.headers,
                    share: share.as_ref(),
                    most: self.left,
                    deadline,
                };
                let (sent, is_whole) = train.send(&self.socket, self.opened, &|| self.is_running());
                self.left = self.left.saturating_sub(sent);
                is_whole
            }
            UdpRequest::Close => false,
        }
    }
}
