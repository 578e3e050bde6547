//! Socket options of senders.

use std::io;
use std::os::fd::AsFd;

use libc::c_int;
use longhaul_core::units::{Bytes, Rate};

use crate::sockopt::set;

/// Limits the kernel's sending rate on a TCP socket (SO_MAX_PACING_RATE).
///
/// Passed as 64 bits, because 32 bits end at 34 Gbit/s. Connections inherit the limit of their
/// listening socket. Fails if the kernel refuses the option.
pub fn set_max_pacing_rate(socket: impl AsFd, rate: Rate) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, rate.as_bytes_per_sec())
}

/// Removes the limit of [`set_max_pacing_rate`].
pub fn unset_max_pacing_rate(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, u64::MAX)
}

/// Makes the kernel split data sent over a UDP socket into datagrams of `size` bytes (UDP_SEGMENT,
/// Linux 4.18).
pub fn set_segment_size(socket: impl AsFd, size: Bytes) -> io::Result<()> {
    let size = c_int::try_from(size.get()).unwrap_or(c_int::MAX);
    set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, size)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn accepts_a_rate_above_32_bits() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set_max_pacing_rate(&listener, Rate::bits_per_sec(100_000_000_000)).unwrap();
        let rate = crate::tcp_info::read(&listener).unwrap().tcpi_max_pacing_rate();
        assert_eq!(rate, Some(12_500_000_000));
    }
}
