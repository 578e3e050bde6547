//! Receives datagrams in batches with the kernel's receive timestamps, and splits merged datagrams.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use libc::c_int;
use nix::cmsg_space;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, MultiHeaders, RecvMsg, recvmmsg};
use nix::sys::time::TimeSpec;

use crate::sockopt::set;

/// The maximum datagrams per call: a call costs as much as about ten datagrams.
const BATCH: usize = 32;

/// Enables receive timestamps of datagrams (SO_TIMESTAMPNS).
///
/// # Errors
/// The kernel's error on the socket.
pub fn enable_timestamps(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1 as c_int)
}

/// Allows the kernel to merge equally sized datagrams that arrive together (UDP_GRO, Linux 5.0).
///
/// # Errors
/// ENOPROTOOPT from an older kernel.
pub fn enable_merging(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::SOL_UDP, libc::UDP_GRO, 1 as c_int)
}

/// The buffers of a batch of datagrams, and the last batch.
#[derive(Debug)]
pub struct DatagramBatch {
    /// [`BATCH`] buffers of `largest` bytes.
    data: Vec<u8>,
    largest: usize,
    received: Vec<BufferContent>,
}

/// The content of a buffer.
#[derive(Debug, Clone, Copy)]
struct BufferContent {
    length: usize,
    at: Option<Duration>,
    /// The size of each datagram but the last, if the kernel has merged several.
    each: Option<usize>,
}

impl DatagramBatch {
    /// Allocates buffers for datagrams of `largest` bytes; longer ones are truncated.
    pub fn new(largest: usize) -> Self {
        let largest = largest.max(1);
        Self { data: vec![0; BATCH * largest], largest, received: Vec::with_capacity(BATCH) }
    }

    /// Receives up to 32 datagrams that have arrived; blocks for the first according to the
    /// socket's mode.
    ///
    /// # Errors
    /// The kernel's error; `WouldBlock` if none arrived within the socket's timeout.
    pub fn receive(&mut self, socket: impl AsFd) -> io::Result<()> {
        self.received.clear();
        let mut headers = MultiHeaders::<()>::preallocate(BATCH, Some(cmsg_space!(TimeSpec, c_int)));
        let buffers = self.data.chunks_exact_mut(self.largest);
        let mut buffers: Vec<_> = buffers.map(|buffer| [IoSliceMut::new(buffer)]).collect();
        let socket = socket.as_fd().as_raw_fd();
        for message in recvmmsg(socket, &mut headers, buffers.iter_mut(), MsgFlags::MSG_WAITFORONE, None)? {
            self.received.push(BufferContent::of(&message)?);
        }
        Ok(())
    }

    /// Returns the datagrams of the last batch, each with its receive time since 1970.
    pub fn datagrams(&self) -> impl Iterator<Item = (&[u8], Option<Duration>)> {
        let buffers = self.data.chunks_exact(self.largest);
        self.received.iter().zip(buffers).flat_map(|(received, buffer)| {
            let filled = &buffer[..received.length.min(buffer.len())];
            filled
                .chunks(received.each.unwrap_or(filled.len()).max(1))
                .map(|datagram| (datagram, received.at))
        })
    }
}

impl BufferContent {
    /// Reads time and size from a message's control messages.
    fn of(message: &RecvMsg<'_, '_, ()>) -> io::Result<Self> {
        let mut received = Self { length: message.bytes, at: None, each: None };
        for control in message.cmsgs()? {
            match control {
                ControlMessageOwned::ScmTimestampns(time) => received.at = Some(time.into()),
                ControlMessageOwned::UdpGroSegments(size) => received.each = usize::try_from(size).ok(),
                _ => {}
            }
        }
        Ok(received)
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::SystemTime;

    use super::*;

    fn pair() -> (UdpSocket, UdpSocket) {
        let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        sockets[0].connect(sockets[1].local_addr().unwrap()).unwrap();
        sockets[1].set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        sockets.into()
    }

    #[test]
    fn batch_has_every_datagram_cut_to_its_size_and_ends_with_a_timeout() {
        let (near, far) = pair();
        enable_timestamps(&far).unwrap();
        let before = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        for n in 0..40_u8 {
            near.send(&vec![n; 10 + usize::from(n)]).unwrap();
        }
        let mut batch = DatagramBatch::new(100);
        let mut seen = Vec::new();
        while batch.receive(&far).is_ok() {
            for (datagram, at) in batch.datagrams() {
                seen.push((datagram[0], datagram.len()));
                let age = at.unwrap().abs_diff(before);
                assert!(age < Duration::from_secs(60), "{age:?}");
            }
        }
        assert_eq!(seen, (0..40).map(|n| (n, 10 + usize::from(n))).collect::<Vec<_>>());
        let (near, far) = pair();
        near.send(&[1; 50]).unwrap();
        let mut batch = DatagramBatch::new(20);
        batch.receive(&far).unwrap();
        let seen: Vec<_> = batch.datagrams().map(|(datagram, at)| (datagram.len(), at)).collect();
        assert_eq!(seen, [(20, None)]);
        assert_eq!(batch.receive(&far).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(batch.datagrams().count(), 0);
    }

    #[test]
    fn merged_datagrams_are_cut_apart() {
        let (near, far) = pair();
        enable_timestamps(&far).unwrap();
        enable_merging(&far).unwrap();
        crate::send_options::set_segment_size(&near, longhaul_core::units::Bytes::new(100)).unwrap();
        // Loopback delivers a merged send as one piece.
        let sent: Vec<u8> = (0..450_u32).map(|n| (n / 100) as u8).collect();
        near.send(&sent).unwrap();
        let mut batch = DatagramBatch::new(2000);
        batch.receive(&far).unwrap();
        let seen: Vec<_> =
            batch.datagrams().map(|(datagram, at)| (datagram.to_vec(), at.is_some())).collect();
        assert_eq!(seen, sent.chunks(100).map(|chunk| (chunk.to_vec(), true)).collect::<Vec<_>>());
    }
}
