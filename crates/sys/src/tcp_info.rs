//! What the kernel knows of a TCP connection.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use libc::{c_void, socklen_t};
use longhaul_core::units::Bytes;

/// `struct tcp_info` as of Linux 6.18, by the kernel's own names; an older kernel fills less of it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Raw {
    tcpi_state: u8,
    tcpi_ca_state: u8,
    tcpi_retransmits: u8,
    tcpi_probes: u8,
    tcpi_backoff: u8,
    tcpi_options: u8,
    tcpi_wscale: u8,
    tcpi_flags: u8,
    tcpi_rto: u32,
    tcpi_ato: u32,
    tcpi_snd_mss: u32,
    tcpi_rcv_mss: u32,
    tcpi_unacked: u32,
    tcpi_sacked: u32,
    tcpi_lost: u32,
    tcpi_retrans: u32,
    tcpi_fackets: u32,
    tcpi_last_data_sent: u32,
    tcpi_last_ack_sent: u32,
    tcpi_last_data_recv: u32,
    tcpi_last_ack_recv: u32,
    tcpi_pmtu: u32,
    tcpi_rcv_ssthresh: u32,
    tcpi_rtt: u32,
    tcpi_rttvar: u32,
    tcpi_snd_ssthresh: u32,
    tcpi_snd_cwnd: u32,
    tcpi_advmss: u32,
    tcpi_reordering: u32,
    tcpi_rcv_rtt: u32,
    tcpi_rcv_space: u32,
    tcpi_total_retrans: u32,
    tcpi_pacing_rate: u64,
    tcpi_max_pacing_rate: u64,
    tcpi_bytes_acked: u64,
    tcpi_bytes_received: u64,
    tcpi_segs_out: u32,
    tcpi_segs_in: u32,
    tcpi_notsent_bytes: u32,
    tcpi_min_rtt: u32,
    tcpi_data_segs_in: u32,
    tcpi_data_segs_out: u32,
    tcpi_delivery_rate: u64,
    tcpi_busy_time: u64,
    tcpi_rwnd_limited: u64,
    tcpi_sndbuf_limited: u64,
    tcpi_delivered: u32,
    tcpi_delivered_ce: u32,
    tcpi_bytes_sent: u64,
    tcpi_bytes_retrans: u64,
    tcpi_dsack_dups: u32,
    tcpi_reord_seen: u32,
    tcpi_rcv_ooopack: u32,
    tcpi_snd_wnd: u32,
    tcpi_rcv_wnd: u32,
    tcpi_rehash: u32,
}

/// A reading of TCP_INFO; fields that the running kernel does not have are `None`.
#[derive(Debug, Clone, Copy)]
pub struct TcpInfo {
    raw: Raw,
    filled: usize,
}

macro_rules! field {
    ($self:ident.$name:ident) => {
        $self.has(std::mem::offset_of!(Raw, $name) + size_of_val(&$self.raw.$name)).then_some($self.raw.$name)
    };
}

impl TcpInfo {
    /// Reads TCP_INFO of a socket.
    ///
    /// # Errors
    /// What the kernel says of the socket.
    pub fn read(socket: impl AsFd) -> io::Result<Self> {
        let mut raw = Raw::default();
        let mut len = size_of::<Raw>() as socklen_t;
        // SAFETY: `raw` is a plain struct of `len` writable bytes, any content of which is valid.
        let rc = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                (&raw mut raw).cast::<c_void>(),
                &raw mut len,
            )
        };
        if rc == 0 { Ok(Self { raw, filled: len as usize }) } else { Err(io::Error::last_os_error()) }
    }

    fn has(&self, end: usize) -> bool {
        self.filled >= end
    }

    /// Smoothed round-trip time (`tcpi_rtt`); `None` before the first measurement.
    pub fn rtt(&self) -> Option<Duration> {
        field!(self.tcpi_rtt).filter(|us| *us > 0).map(|us| Duration::from_micros(us.into()))
    }

    /// The receiver's own estimate of the round trip, queueing of the data included (`tcpi_rcv_rtt`).
    pub fn rcv_rtt(&self) -> Option<Duration> {
        field!(self.tcpi_rcv_rtt).filter(|us| *us > 0).map(|us| Duration::from_micros(us.into()))
    }

    /// The receive window last advertised (`tcpi_rcv_wnd`, Linux 6.2).
    pub fn rcv_wnd(&self) -> Option<Bytes> {
        field!(self.tcpi_rcv_wnd).map(|wnd| Bytes::new(wnd.into()))
    }

    /// What the peer's kernel has acknowledged so far (`tcpi_bytes_acked`, Linux 4.1).
    ///
    /// It only grows, so two readings tell a slow peer from a dead one.
    pub fn bytes_acked(&self) -> Option<Bytes> {
        field!(self.tcpi_bytes_acked).map(Bytes::new)
    }

    /// Packets that arrived out of order (`tcpi_rcv_ooopack`, Linux 5.4).
    pub fn rcv_ooopack(&self) -> Option<u64> {
        field!(self.tcpi_rcv_ooopack).map(u64::from)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn reads_a_live_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let info = TcpInfo::read(&stream).unwrap();
        assert!(info.rtt().unwrap() < Duration::from_secs(1));
        assert!(info.rcv_wnd().is_none_or(|wnd| wnd > Bytes::ZERO));
        assert_eq!(info.rcv_ooopack().unwrap_or(0), 0);
    }

    #[test]
    fn counts_what_the_peer_acknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let acked = |socket: &TcpStream| TcpInfo::read(socket).unwrap().bytes_acked().unwrap();
        let before = acked(&near);
        near.write_all(&[7; 1000]).unwrap();
        far.read_exact(&mut [0; 1000]).unwrap();
        // Reading the bytes does not wait for the acknowledgement, which a reply carries.
        far.write_all(b"!").unwrap();
        near.read_exact(&mut [0; 1]).unwrap();
        assert_eq!(acked(&near) - before, Bytes::new(1000));
    }

    #[test]
    fn a_shorter_reply_has_fewer_fields() {
        let info = TcpInfo { raw: Raw { tcpi_rtt: 5, tcpi_rcv_wnd: 9, ..Raw::default() }, filled: 104 };
        assert!(info.rtt().is_some() && info.rcv_wnd().is_none());
    }

    #[test]
    fn refuses_what_is_no_tcp_socket() {
        assert!(TcpInfo::read(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
