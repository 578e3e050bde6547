//! Listening sockets; connections inherit their options, so none is set once per connection.

use std::io;
use std::net::{SocketAddr, TcpListener};

use longhaul_core::pace::Pace;
use longhaul_core::units::Bytes;
use longhaul_sys::send_options::set_max_pacing_rate;
use socket2::{Domain, Protocol, Socket, Type};

use crate::{Config, ServeError};

/// How much unsent data the kernel holds for a connection (TCP_NOTSENT_LOWAT).
///
/// The send buffer itself is left to autotuning, for it must hold a whole BDP in flight; without
/// this bound it would also pin a BDP of bytes that are not yet due. At 10 Gbit/s it is 3 ms of data.
const UNSENT: Bytes = Bytes::mib(4);

/// How many connections wait in the kernel while the server is at its limit.
const BACKLOG: i32 = 1024;

/// Opens a listening socket for one address.
pub(crate) fn listen(address: SocketAddr, config: &Config) -> Result<TcpListener, ServeError> {
    let socket = open(address).map_err(|source| ServeError::Listen { address, source })?;
    if let Some(name) = &config.congestion {
        socket.set_tcp_congestion(name.as_bytes()).map_err(|source| ServeError::congestion(name, source))?;
    }
    if let Pace::Rate(rate) = config.pace {
        set_max_pacing_rate(&socket, rate).map_err(|source| ServeError::Pace { rate, source })?;
    }
    bind(&socket, address).map_err(|source| ServeError::Listen { address, source })?;
    Ok(socket.into())
}

fn open(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // Else [::] would take the port of 0.0.0.0 too, or not, as a sysctl has it.
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    // The end of a reply must not wait a round trip for the acknowledgement of what came before it.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(u32::try_from(UNSENT.get()).unwrap_or(u32::MAX))?;
    Ok(socket)
}

fn bind(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)
}
