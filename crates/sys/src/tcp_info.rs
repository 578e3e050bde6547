//! Reads TCP_INFO.

use std::io;
use std::os::fd::AsFd;

use longhaul_core::tcp_info::{SIZE, TcpInfo};

use crate::sockopt;

/// Reads TCP_INFO of a socket; fields unknown to the running kernel are absent.
///
/// # Errors
/// The kernel's error on the socket.
pub fn read(socket: impl AsFd) -> io::Result<TcpInfo> {
    let mut bytes = [0u8; SIZE];
    let len = sockopt::get(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
    Ok(TcpInfo::from_bytes(&bytes[..SIZE.min(len)]))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use longhaul_core::units::Bytes;

    use super::*;

    #[test]
    fn live_connection_is_read_and_other_sockets_are_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let info = read(&stream).unwrap();
        assert_eq!(info.tcpi_state(), Some(1));
        assert!(info.rtt().unwrap().get() < Duration::from_secs(1));
        assert!(info.rcv_wnd().is_none_or(|wnd| wnd > Bytes::ZERO));
        assert_eq!(info.tcpi_rcv_ooopack().unwrap_or(0), 0);
        // The MTU of loopback less the headers of IPv4 and TCP, at its offset in the structure.
        assert!((1000..=65_535).contains(&info.tcpi_advmss().unwrap()), "{info:?}");
        assert!(info.tcpi_pmtu().unwrap() > info.tcpi_advmss().unwrap());
        assert!(read(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
