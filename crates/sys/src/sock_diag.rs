//! sock_diag(7): the kernel's data on TCP connections of other programs.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use longhaul_core::tcp_info::TcpInfo;
use longhaul_core::units::Bytes;
use rustix::net::netlink;

use crate::rtnetlink::{Attributes, HEADER, Netlink, Request, messages};

/// `SOCK_DIAG_BY_FAMILY` of linux/sock_diag.h.
const BY_FAMILY: u16 = 20;
/// `INET_DIAG_INFO` of linux/inet_diag.h: `struct tcp_info`.
const INFO: u16 = 2;
/// Bytes of `struct inet_diag_sockid`.
const SOCKET_ID: usize = 48;
/// Bytes of `struct inet_diag_msg`.
const MESSAGE: usize = 4 + SOCKET_ID + 20;
/// The states in which connections move data, as bits: ESTABLISHED, FIN-WAIT-1, FIN-WAIT-2 and
/// CLOSE-WAIT (linux/tcp_states.h).
const STATES: u32 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8;
/// LISTEN (linux/tcp_states.h), as a bit.
const LISTEN: u32 = 1 << 10;

/// A TCP connection of this network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpConnection {
    /// The local address.
    pub local: SocketAddr,
    /// The peer's address.
    pub peer: SocketAddr,
    /// The socket's inode, as in a process's descriptors.
    pub inode: u32,
    /// Bytes received and not yet read.
    pub unread: Bytes,
    /// TCP_INFO.
    pub tcp: Option<TcpInfo>,
    name: SocketName,
}

/// The kernel's identification of a socket: its family, and `struct inet_diag_sockid` with its
/// unique cookie.
type SocketName = (u8, [u8; SOCKET_ID]);

/// Creates a request for one socket, or for all of a family, in these states.
fn request((family, id): &SocketName, states: u32) -> Request {
    let mut request = Request::new(BY_FAMILY, 0);
    request.push(&[*family, libc::IPPROTO_TCP as u8, 1 << (INFO - 1), 0]);
    request.push(&states.to_ne_bytes());
    request.push(id);
    request
}

/// Reads known connections again, which takes microseconds; [`connections`] makes the kernel walk
/// its whole table (0.5 ms for each family at 262,144 entries; Linux 6.18, 2026-11-26).
#[derive(Debug)]
pub struct SocketReader(Netlink);

impl SocketReader {
    /// Opens a socket for requests in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel's error if no descriptor is free, or the kernel has no sock_diag.
    pub fn open() -> io::Result<Self> {
        Netlink::open_protocol(Some(netlink::SOCK_DIAG)).map(Self)
    }

    /// Reads a connection again; `None` if it has ended.
    ///
    /// # Errors
    /// The kernel's error on the request.
    pub fn read(&self, known: &TcpConnection) -> io::Result<Option<TcpConnection>> {
        let answer = match self.0.ask(request(&known.name, STATES)) {
            // ESTALE: another socket has these addresses now.
            Err(error) if [Some(libc::ENOENT), Some(libc::ESTALE)].contains(&error.raw_os_error()) => {
                return Ok(None);
            }
            answer => answer?,
        };
        // The kernel keeps closed connections for some time, without an inode.
        Ok(parse(&answer).filter(|now| now.inode == known.inode))
    }
}

/// Reads the TCP connections whose sockets have one of these inodes, in the calling thread's
/// network namespace.
///
/// # Errors
/// ENOENT if the kernel has no inet_diag, else the kernel's error on the request.
pub fn connections(inodes: &HashSet<u32>) -> io::Result<Vec<TcpConnection>> {
    sockets(inodes, STATES)
}

/// Reads the ports on which sockets with one of these inodes accept connections, in the calling
/// thread's network namespace.
///
/// # Errors
/// As of [`connections`].
pub fn listening_ports(inodes: &HashSet<u32>) -> io::Result<HashSet<u16>> {
    Ok(sockets(inodes, LISTEN)?.iter().map(|socket| socket.local.port()).collect())
}

/// Reads the sockets in these states.
fn sockets(inodes: &HashSet<u32>, states: u32) -> io::Result<Vec<TcpConnection>> {
    let mut found = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let request = request(&(family as u8, [0; SOCKET_ID]), states);
        for part in Netlink::open_protocol(Some(netlink::SOCK_DIAG))?.dump(request)? {
            let sockets = messages(&part).filter(|(kind, _)| *kind == BY_FAMILY);
            let known = sockets.filter_map(|(_, message)| parse(message));
            found.extend(known.filter(|connection| inodes.contains(&connection.inode)));
        }
    }
    Ok(found)
}

/// Parses one socket of an answer; `None` if truncated.
fn parse(message: &[u8]) -> Option<TcpConnection> {
    let body = message.get(HEADER..HEADER + MESSAGE)?;
    let number = |at: usize| Some(u32::from_ne_bytes(body.get(at..at + 4)?.try_into().ok()?));
    let port = |at: usize| Some(u16::from_be_bytes(body.get(at..at + 2)?.try_into().ok()?));
    let address = |at: usize| -> Option<IpAddr> {
        Some(match i32::from(body[0]) {
            libc::AF_INET => Ipv4Addr::from(<[u8; 4]>::try_from(body.get(at..at + 4)?).ok()?).into(),
            libc::AF_INET6 => {
                Ipv6Addr::from(<[u8; 16]>::try_from(body.get(at..at + 16)?).ok()?).to_canonical()
            }
            _ => return None,
        })
    };
    // After four bytes of family, state, timer and retransmits: ports, addresses, interface and
    // cookie.
    let (ports, source, destination) = (4, 8, 24);
    let after_id = 4 + SOCKET_ID;
    Some(TcpConnection {
        local: SocketAddr::new(address(source)?, port(ports)?),
        peer: SocketAddr::new(address(destination)?, port(ports + 2)?),
        unread: Bytes::new(u64::from(number(after_id + 4)?)),
        inode: number(after_id + 16)?,
        tcp: Attributes::after(message, HEADER + MESSAGE).get(INFO).map(TcpInfo::from_bytes),
        name: (body[0], body.get(4..after_id)?.try_into().ok()?),
    })
}

/// Returns the inodes of all open sockets of a process.
///
/// # Errors
/// ENOENT if there is no such process, EACCES if this user may not inspect it.
pub fn socket_inodes(process: u32) -> io::Result<HashSet<u32>> {
    let mut inodes = HashSet::new();
    for entry in fs::read_dir(format!("/proc/{process}/fd"))? {
        // A descriptor may have been closed meanwhile.
        let target = entry.and_then(|entry| fs::read_link(entry.path()));
        let inode: Option<u32> = target
            .ok()
            .and_then(|target| target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
        inodes.extend(inode);
    }
    Ok(inodes)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn connections_of_this_process_are_found_with_their_counters() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(any) else {
                assert!(any.starts_with('['), "IPv4 is there");
                continue;
            };
            let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            near.write_all(&[7; 1000]).unwrap();
            far.read_exact(&mut [0; 400]).unwrap();
            let inodes = socket_inodes(std::process::id()).unwrap();
            let all = connections(&inodes).unwrap();
            let local = far.local_addr().unwrap();
            let peer = far.peer_addr().unwrap();
            let found = all.iter().find(|socket| socket.local == local && socket.peer == peer).unwrap();
            assert_eq!(found.unread, Bytes::new(600));
            assert_eq!(found.tcp.unwrap().tcpi_bytes_received(), Some(1000));
            assert!(all.iter().any(|socket| socket.local == peer), "the other end is of this process too");
            assert!(connections(&HashSet::new()).unwrap().is_empty());

            // The reader returns each connection with its changes until it is closed.
            let reader = SocketReader::open().unwrap();
            far.read_exact(&mut [0; 500]).unwrap();
            let again = reader.read(found).unwrap().unwrap();
            assert_eq!((again.unread, again.inode, &again.name), (Bytes::new(100), found.inode, &found.name));
            assert_eq!(again.tcp.unwrap().tcpi_bytes_received(), Some(1000));
            drop(far);
            assert_eq!(reader.read(found).unwrap(), None);
        }
    }

    #[test]
    fn truncated_answers_are_not_sockets_and_a_missing_process_has_none() {
        let mut message = vec![0; HEADER + MESSAGE];
        message[HEADER] = libc::AF_INET as u8;
        assert!(parse(&message).is_some_and(|socket| socket.tcp.is_none()));
        assert_eq!(parse(&message[..HEADER + MESSAGE - 1]), None);
        message[HEADER] = 99;
        assert_eq!(parse(&message), None);
        assert_eq!(socket_inodes(u32::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
