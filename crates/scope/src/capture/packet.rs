//! One captured packet as a TCP segment.

use std::net::{IpAddr, SocketAddr};

use etherparse::{LaxNetSlice, LaxSlicedPacket, TcpOptionElement, TransportSlice};
use pcap_parser::Linktype;

/// The header before the IP header (tcpdump.org/linktypes.html).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    Ethernet,
    /// A header of this many bytes, none for raw IP.
    Other(usize),
}

impl Link {
    pub(super) fn of(link: Linktype) -> Option<Self> {
        match link.0 {
            1 => Some(Self::Ethernet),
            // BSD loopback: an address family.
            0 | 108 => Some(Self::Other(4)),
            // Linux cooked capture, and its version 2.
            113 => Some(Self::Other(16)),
            276 => Some(Self::Other(20)),
            // OpenBSD's numbers of raw IP, raw IP, IPv4 and IPv6.
            12 | 14 | 101 | 228 | 229 => Some(Self::Other(0)),
            _ => None,
        }
    }
}

/// A TCP segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) sequence: u32,
    pub(super) acknowledgment: Option<u32>,
    /// The window field, unscaled.
    pub(super) window: u16,
    pub(super) syn: bool,
    pub(super) reset: bool,
    /// Bytes of payload on the wire, captured or not.
    pub(super) payload: u32,
    pub(super) options: TcpOptions,
}

/// The options of a TCP segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TcpOptions {
    /// Window scale shift that the sender announces; only in a SYN.
    pub(super) scale: Option<u8>,
    /// Starts and ends of what has arrived beyond a gap (RFC 2018), the latest first.
    pub(super) beyond_gap: [Option<(u32, u32)>; 4],
    /// Timestamp value and echo (RFC 7323, section 3).
    pub(super) timestamps: Option<(u32, u32)>,
}

impl Segment {
    /// Parses a packet; `None` if it is not TCP, is a later fragment, or is truncated within its
    /// headers.
    pub(super) fn parse(link: Link, data: &[u8], wire_length: usize) -> Option<Self> {
        let packet = match link {
            Link::Ethernet => LaxSlicedPacket::from_ethernet(data).ok()?,
            Link::Other(header) => LaxSlicedPacket::from_ip(data.get(header..)?).ok()?,
        };
        let Some(TransportSlice::Tcp(tcp)) = packet.transport else { return None };
        let tcp_header = usize::from(tcp.data_offset()) * 4;
        // Bytes before the TCP header.
        let before = tcp.slice().as_ptr() as usize - data.as_ptr() as usize;
        let (from, to, length): (IpAddr, IpAddr, usize) = match packet.net.as_ref()? {
            LaxNetSlice::Ipv4(ip) => {
                let header = ip.header();
                let length = usize::from(header.total_len());
                let headers = usize::from(header.ihl()) * 4 + tcp_header;
                (
                    header.source_addr().into(),
                    header.destination_addr().into(),
                    length.saturating_sub(headers),
                )
            }
            LaxNetSlice::Ipv6(ip) => {
                let header = ip.header();
                let length = usize::from(header.payload_length());
                let headers = ip.extensions().slice().len() + tcp_header;
                (
                    header.source_addr().into(),
                    header.destination_addr().into(),
                    length.saturating_sub(headers),
                )
            }
            LaxNetSlice::Arp(_) => return None,
        };
        // Packets above 64 KiB carry no length in their IP header (BIG TCP).
        let payload =
            if length > 0 { length } else { unstated(packet.net.as_ref(), wire_length, before + tcp_header) };
        let mut segment = Self {
            from: (from, tcp.source_port()).into(),
            to: (to, tcp.destination_port()).into(),
            sequence: tcp.sequence_number(),
            acknowledgment: tcp.ack().then(|| tcp.acknowledgment_number()),
            window: tcp.window_size(),
            syn: tcp.syn(),
            reset: tcp.rst(),
            payload: u32::try_from(payload).ok()?,
            options: TcpOptions::default(),
        };
        for option in tcp.options_iterator().map_while(Result::ok) {
            match option {
                // The largest shift is 14 (RFC 7323, section 2.3).
                TcpOptionElement::WindowScale(shift) => segment.options.scale = Some(shift.min(14)),
                TcpOptionElement::Timestamp(value, echo) => segment.options.timestamps = Some((value, echo)),
                TcpOptionElement::SelectiveAcknowledgement(latest, [second, third, fourth]) => {
                    segment.options.beyond_gap = [Some(latest), second, third, fourth];
                }
                _ => {}
            }
        }
        Some(segment)
    }
}

/// Returns the payload length of a packet whose IP header has none.
fn unstated(net: Option<&LaxNetSlice<'_>>, wire_length: usize, headers: usize) -> usize {
    let zero = match net {
        Some(LaxNetSlice::Ipv4(ip)) => ip.header().total_len() == 0,
        Some(LaxNetSlice::Ipv6(ip)) => ip.header().payload_length() == 0,
        _ => false,
    };
    if zero { wire_length.saturating_sub(headers) } else { 0 }
}
