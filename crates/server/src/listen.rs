//! Listening sockets and their options, which accepted connections inherit.

use std::io;
use std::net::{SocketAddr, TcpListener};

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::pace::Pace;
use longhaul_core::units::Bytes;
use longhaul_sys::send_options::set_max_pacing_rate;
use socket2::{Domain, Protocol, Socket, Type};

use crate::PacingConfig;
use crate::error::no_congestion;

/// The most unsent data in the kernel's send buffer (TCP_NOTSENT_LOWAT).
///
/// The kernel tunes the size of the send buffer, which must hold a whole BDP in flight; without
/// this bound it would also hold a BDP of unsent bytes. The kernel reports the socket writable once
/// less than half of the limit is unsent.
pub(crate) struct UnsentLimit {
    /// The bytes of a reply that were sent before.
    pub(crate) from: Bytes,
    pub(crate) limit: Bytes,
}

/// The limit of a new connection: thousands of slow peers must not fill the kernel's memory for TCP
/// (`tcp_mem`).
const FIRST_UNSENT: Bytes = Bytes::kib(128);

/// The limits once a reply has sent more. The second half of 16 MiB lasts 7 ms at 10 Gbit/s: if the
/// thread that refills it is later, a paced connection loses that time.
pub(crate) const MORE_UNSENT: [UnsentLimit; 2] = [
    UnsentLimit { from: Bytes::mib(1), limit: Bytes::mib(4) },
    UnsentLimit { from: Bytes::mib(16), limit: Bytes::mib(16) },
];

/// Connections that wait in the kernel's accept queue while the server is at its limit.
const BACKLOG: i32 = 1024;

/// Opens a listening socket for one address.
pub(crate) fn listen(
    address: SocketAddr,
    pacing: &PacingConfig,
    failed: fn(SocketAddr, &io::Error) -> Failure,
) -> Result<TcpListener, Failure> {
    let socket = open(address).map_err(|error| failed(address, &error))?;
    if let Some(name) = &pacing.congestion {
        socket.set_tcp_congestion(name.as_bytes()).map_err(|error| no_congestion(name, &error))?;
    }
    if let Pace::Rate(rate) = pacing.pace {
        set_max_pacing_rate(&socket, rate).map_err(|error| {
            let message =
                format!("the kernel refuses to pace connections at {rate}: {error}; serve with --pace off");
            Failure::new(FailureKind::Config, message)
        })?;
    }
    bind(&socket, address).map_err(|error| failed(address, &error))?;
    Ok(socket.into())
}

fn open(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // Otherwise net.ipv6.bindv6only decides whether [::] also takes the port of 0.0.0.0.
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    // Nagle's algorithm would delay the last segment of a reply by one RTT.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(u32::try_from(FIRST_UNSENT.get()).unwrap_or(u32::MAX))?;
    Ok(socket)
}

fn bind(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)
}
