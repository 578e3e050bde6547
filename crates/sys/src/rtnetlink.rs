//! rtnetlink(7): requests to the kernel's network configuration, and their answers.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use parking_lot::Mutex;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

use crate::sockopt;

/// The kernel's answer without data: an error number or zero.
const NLMSG_ERROR: u16 = 2;
/// The end of a multipart answer.
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
/// Requests an answer even without data.
pub const NLM_F_ACK: u16 = 4;
/// Creates an object, and fails if it exists.
pub const NLM_F_CREATE_EXCL: u16 = 0x600;

/// Bytes of `struct nlmsghdr`.
pub const HEADER: usize = 16;

/// The maximum size of a message read.
const LARGEST: usize = 32 << 10;

/// A netlink socket in the network namespace of the thread that opened it; usable from any thread.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    /// Held from a request to its answer, so that threads take turns.
    turn: Mutex<()>,
}

impl Netlink {
    /// Opens a socket for requests.
    ///
    /// # Errors
    /// The kernel's error if no descriptor is free, or in a sandbox without netlink.
    pub fn open() -> io::Result<Self> {
        // Without a protocol number: 0 is NETLINK_ROUTE.
        Self::open_protocol(None)
    }

    /// Opens a socket for requests by another protocol than rtnetlink.
    ///
    /// # Errors
    /// See [`Self::open`]; EPROTONOSUPPORT if the kernel has no such protocol.
    pub(crate) fn open_protocol(protocol: Option<Protocol>) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        Ok(Self { socket, turn: Mutex::new(()) })
    }

    /// Opens a socket that receives notifications of these groups (`RTMGRP_*`), for
    /// [`Self::notification`].
    ///
    /// # Errors
    /// See [`Self::open`].
    pub fn listen(groups: u32) -> io::Result<Self> {
        let listening = Self::open()?;
        rustix::net::bind(&listening.socket, &netlink::SocketAddrNetlink::new(0, groups))?;
        Ok(listening)
    }

    /// Returns the socket's address, which [`sender`] returns for changes requested by it; 0 before
    /// the first request.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn port(&self) -> io::Result<u32> {
        let address = rustix::net::getsockname(&self.socket)?;
        Ok(netlink::SocketAddrNetlink::try_from(address)?.pid())
    }

    /// Sends a request and returns the kernel's single answer.
    ///
    /// # Errors
    /// The kernel's error on the request, or ENOBUFS and similar errors of the socket.
    pub fn ask(&self, request: Request) -> io::Result<Vec<u8>> {
        let _turn = self.turn.lock();
        self.send(request)?;
        let reply = self.receive(RecvFlags::empty())?;
        error_in(&reply)?;
        Ok(reply)
    }

    /// Requests all objects of a kind; returns the multipart answer.
    ///
    /// Consumes the socket, because strict checking would also apply to other requests.
    ///
    /// # Errors
    /// See [`Self::ask`].
    pub fn dump(self, request: Request) -> io::Result<Vec<Vec<u8>>> {
        // Older kernels do not support the option, and answer with more objects than requested.
        let _ = sockopt::set(&self.socket, libc::SOL_NETLINK, libc::NETLINK_GET_STRICT_CHK, 1);
        self.send(request.with_flags(NLM_F_DUMP))?;
        let mut parts = Vec::new();
        loop {
            let part = self.receive(RecvFlags::empty())?;
            let ended = is_last(&part)?;
            parts.push(part);
            if ended {
                return Ok(parts);
            }
        }
    }

    /// Returns one notification received since the last call; `None` if there is none.
    ///
    /// # Errors
    /// ENOBUFS if notifications were lost because the socket's buffer was full.
    pub fn notification(&self) -> io::Result<Option<Vec<u8>>> {
        match self.receive(RecvFlags::DONTWAIT) {
            Ok(message) => Ok(Some(message)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn send(&self, request: Request) -> io::Result<()> {
        let kernel = netlink::SocketAddrNetlink::new(0, 0);
        Ok(rustix::net::sendto(&self.socket, &request.finish(), SendFlags::empty(), &kernel).map(drop)?)
    }

    fn receive(&self, flags: RecvFlags) -> io::Result<Vec<u8>> {
        let mut message = vec![0; LARGEST];
        let (len, _) = rustix::net::recv(&self.socket, message.as_mut_slice(), flags)?;
        message.truncate(len);
        Ok(message)
    }
}

/// Returns the error in an answer, if any.
fn error_in(answer: &[u8]) -> io::Result<()> {
    let kind = answer.get(4..6).ok_or_else(cut_short)?;
    if kind == NLMSG_ERROR.to_ne_bytes() { code_of(answer) } else { Ok(()) }
}

/// Returns whether this is the last part of a dump; fails if it contains an error.
///
/// The kernel ends a failed dump like a successful one, except for the error code.
fn is_last(part: &[u8]) -> io::Result<bool> {
    error_in(part)?;
    let last = messages(part).find(|(kind, _)| *kind == NLMSG_DONE);
    last.map_or(Ok(false), |(_, message)| code_of(message).map(|()| true))
}

/// Returns the error with the number in a message; zero means success.
fn code_of(message: &[u8]) -> io::Result<()> {
    let code = message.get(HEADER..HEADER + 4).and_then(|code| code.try_into().ok()).ok_or_else(cut_short)?;
    match i32::from_ne_bytes(code) {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
    }
}

/// Creates the error of a truncated answer.
pub(crate) fn cut_short() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is too short")
}

/// Splits received bytes into messages, each with its kind; stops at a truncated message.
pub fn messages(mut received: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let header = received.first_chunk::<HEADER>()?;
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let message = received.get(..length).filter(|_| length >= HEADER)?;
        received = received.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((u16::from_ne_bytes([header[4], header[5]]), message))
    })
}

/// Returns the address of the socket that requested the change reported by a message; 0 for changes
/// by the kernel itself.
pub fn sender(message: &[u8]) -> Option<u32> {
    message.get(12..HEADER)?.try_into().ok().map(u32::from_ne_bytes)
}

/// Returns the family (`AF_INET` or `AF_INET6`) and the bytes of an address, as in requests.
pub fn raw_address(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(v4) => (libc::AF_INET as u8, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6 as u8, v6.octets().to_vec()),
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A message under construction; its length is set last.
#[derive(Debug, Clone)]
pub struct Request(Vec<u8>);

impl Request {
    /// Starts a message of a kind (`RTM_*`).
    pub fn new(kind: u16, flags: u16) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
        Self(bytes)
    }

    fn with_flags(mut self, flags: u16) -> Self {
        self.0[6..8].copy_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
        self
    }

    /// Appends a structure unchanged.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Appends an attribute.
    pub fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.nested(kind, |request| request.push(value));
    }

    /// Appends an attribute that contains what `fill` appends.
    pub fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.0.len();
        self.push(&[0, 0]);
        self.push(&kind.to_ne_bytes());
        fill(self);
        let len = (self.0.len() - start) as u16;
        self.0[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Completes and returns the message.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        self.0
    }
}

/// The attributes of a message or of a nested attribute; stops at a truncated one.
#[derive(Debug, Clone)]
pub struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// Reads attributes that start after `skip` bytes of `bytes`.
    pub fn after(bytes: &'a [u8], skip: usize) -> Self {
        Self(bytes.get(skip..).unwrap_or(&[]))
    }

    /// Returns the value of the first attribute of a kind.
    pub fn get(&self, wanted: u16) -> Option<&'a [u8]> {
        self.clone().find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
    }

    /// Returns the attributes within the first attribute of a kind; none without it.
    pub fn within(&self, wanted: u16) -> Self {
        Self(self.get(wanted).unwrap_or_default())
    }

    /// Returns the first attribute of a kind as a number.
    pub fn number(&self, wanted: u16) -> Option<u32> {
        self.get(wanted)?.try_into().ok().map(u32::from_ne_bytes)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let header = self.0.first_chunk::<4>()?;
        let len = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        // The upper bits are flags (NLA_TYPE_MASK of linux/netlink.h).
        let kind = u16::from_ne_bytes([header[2], header[3]]) & 0x3fff;
        let value = self.0.get(4..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_back_until_a_truncated_one() {
        let mut request = Request::new(1, 0);
        request.attribute(3, b"odd");
        request.nested(4, |inner| inner.attribute(1, &7u32.to_ne_bytes()));
        let message = request.finish();
        assert_eq!(message.len() as u32, u32::from_ne_bytes(message[..4].try_into().unwrap()));
        let attributes = Attributes::after(&message, HEADER);
        assert_eq!(attributes.get(3), Some(&b"odd"[..]));
        assert_eq!(Attributes::after(attributes.get(4).unwrap(), 0).number(1), Some(7));
        assert_eq!(attributes.get(5), None);
        let whole = [8, 0, 1, 0, 1, 2, 3, 4, 8, 0, 2, 0, 1, 2, 3, 4];
        for end in 0..whole.len() {
            assert!(Attributes::after(&whole[..end], 0).count() <= end / 8);
        }
        // A length smaller than its own header.
        for length in 0..4 {
            assert_eq!(Attributes(&[length, 0, 1, 0, 9, 9, 9, 9]).count(), 0);
        }
        assert_eq!(Attributes::after(&whole, 99).count(), 0);
        let two = [[20, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]; 2].concat();
        for end in 0..=two.len() {
            assert_eq!(messages(&two[..end]).count(), end / 20);
        }
        assert_eq!(messages(&[0; 64]).count(), 0);
    }

    /// A message of a kind with a number.
    fn carrying(kind: u16, code: i32) -> Vec<u8> {
        let mut request = Request::new(kind, 0);
        request.push(&code.to_ne_bytes());
        request.finish()
    }

    #[test]
    fn dump_ends_with_success_or_an_error() {
        let route = carrying(24, 7);
        let code = |part: &[u8]| is_last(part).map_err(|error| error.raw_os_error());
        assert_eq!(code(&route), Ok(false));
        assert_eq!(code(&carrying(NLMSG_DONE, 0)), Ok(true));
        assert_eq!(code(&[&route[..], &carrying(NLMSG_DONE, 0)].concat()), Ok(true));
        assert_eq!(code(&[&route[..], &carrying(NLMSG_DONE, -4)].concat()), Err(Some(4)));
        assert_eq!(code(&carrying(NLMSG_ERROR, -1)), Err(Some(1)));
        for bad in [&[][..], &Request::new(NLMSG_DONE, 0).finish()] {
            assert_eq!(code(bad), Err(None), "{bad:?}");
        }
        assert!(is_last(&carrying(NLMSG_DONE, i32::MIN)).is_err());
    }
}
