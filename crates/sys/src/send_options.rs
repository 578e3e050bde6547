//! What a sender sets on its socket, and how far its peer has acknowledged.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

use longhaul_core::units::{Bytes, Rate};

/// Bounds the rate at which the kernel sends on a TCP socket (SO_MAX_PACING_RATE).
///
/// Passed as 64 bits: a 32-bit value ends at 34 Gbit/s. A listening socket hands the bound to
/// the connections that it accepts. Fails where the kernel refuses the option.
pub fn set_max_pacing_rate(socket: impl AsFd, rate: Rate) -> io::Result<()> {
    let bytes_per_sec: u64 = rate.as_bytes_per_sec();
    // SAFETY: the pointer and the length describe `bytes_per_sec`, which outlives the call.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const bytes_per_sec).cast(),
            size_of::<u64>() as libc::socklen_t,
        )
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns how many bytes the peer's kernel has acknowledged so far (tcpi_bytes_acked, Linux 4.1).
///
/// It only grows, so two readings tell a slow peer from a dead one. Fails on what is no TCP socket.
pub fn bytes_acked(socket: impl AsFd) -> io::Result<Bytes> {
    // struct tcp_info: 8 bytes of flags, 24 u32, then u64 pacing_rate, max_pacing_rate, bytes_acked.
    const END: usize = 8 + 24 * 4 + 3 * 8;
    let mut info = [0u8; END];
    let mut length = END as libc::socklen_t;
    // SAFETY: the pointers describe `info` and its length; the kernel writes at most that much.
    let rc = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut acked = [0u8; 8];
    acked.copy_from_slice(&info[END - 8..]);
    Ok(Bytes::new(u64::from_ne_bytes(acked)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn counts_what_the_peer_acknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let before = bytes_acked(&near).unwrap();
        near.write_all(&[7; 1000]).unwrap();
        far.read_exact(&mut [0; 1000]).unwrap();
        // Reading the bytes does not wait for the acknowledgement, which a reply carries.
        far.write_all(b"!").unwrap();
        near.read_exact(&mut [0; 1]).unwrap();
        assert_eq!(bytes_acked(&near).unwrap() - before, Bytes::new(1000));
        assert!(bytes_acked(std::io::stdin()).is_err());
    }

    #[test]
    fn takes_a_rate_above_32_bits() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set_max_pacing_rate(&listener, Rate::bits_per_sec(100_000_000_000)).unwrap();
        let rate = socket_rate(&listener);
        assert_eq!(rate, 12_500_000_000);
    }

    fn socket_rate(socket: &TcpListener) -> u64 {
        let mut rate = 0u64;
        let mut length = size_of::<u64>() as libc::socklen_t;
        // SAFETY: the pointers describe `rate` and its length, which outlive the call.
        let rc = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MAX_PACING_RATE,
                (&raw mut rate).cast(),
                &raw mut length,
            )
        };
        assert_eq!((rc, length as usize), (0, size_of::<u64>()));
        rate
    }
}
