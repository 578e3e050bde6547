//! Packets of a TUN device: a virtio header, then an IP packet or a super-packet of TCP or UDP.
//!
//! A super-packet (GSO) represents several packets of at most the MTU with a common header. On the
//! emulated wire it counts as these packets, each with its own header.

mod fields;
mod split;
#[cfg(test)]
mod tests;

use longhaul_core::units::Bytes;
use longhaul_sys::tun::VNET_HEADER_LEN;

pub use fields::FlowKey;
pub(crate) use fields::{corrupt, is_ecn_capable, mark_congestion};
pub(crate) use split::write_piece;

/// Maximum bytes of a frame: the virtio header and the longest IPv6 packet, rounded up.
pub(crate) const MAX_FRAME: usize = 66_048;

/// Offsets in `struct virtio_net_hdr`; integers are in native byte order.
const GSO_TYPE: usize = 1;
const HDR_LEN: usize = 2;
const GSO_SIZE: usize = 4;
const CSUM_START: usize = 6;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
/// Set with the type if the first packet, and no other, carries CWR.
const GSO_ECN: u8 = 0x80;
/// Length of the UDP header.
const UDP_HEADER: usize = 8;

/// Division of a frame into wire packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Length of the IP and TCP or UDP headers in bytes; super-packets only.
    header: usize,
    /// Offset of the TCP or UDP header in the IP packet; super-packets only.
    transport: usize,
    /// Payload bytes, or the size of a packet that is no super-packet.
    payload: usize,
    /// Payload of each packet except the last.
    segment: usize,
}

impl Shape {
    /// Parses a frame's shape. An invalid super-packet is one packet.
    pub(crate) fn of(frame: &[u8]) -> Self {
        Self::of_super_packet(frame).unwrap_or_else(|| {
            let len = frame.len().saturating_sub(VNET_HEADER_LEN);
            Self { header: 0, transport: 0, payload: len, segment: len.max(1) }
        })
    }

    fn of_super_packet(frame: &[u8]) -> Option<Self> {
        let (vnet, packet) = frame.split_at_checked(VNET_HEADER_LEN)?;
        let segment = usize::from(get_ne(vnet, GSO_SIZE));
        let transport = usize::from(get_ne(vnet, CSUM_START));
        let least = match vnet[GSO_TYPE] & !GSO_ECN {
            GSO_TCPV4 | GSO_TCPV6 => 20,
            GSO_UDP_L4 => UDP_HEADER,
            _ => return None,
        };
        let header = match least {
            UDP_HEADER => transport + UDP_HEADER,
            _ => transport + usize::from(packet.get(transport + 12)? >> 4) * 4,
        };
        let payload = packet.len().checked_sub(header)?;
        (segment > 0 && header >= transport + least && transport >= 20).then_some(Self {
            header,
            transport,
            payload,
            segment,
        })
    }

    /// Returns whether a super-packet is UDP, by its shorter header.
    fn is_udp(self) -> bool {
        self.header - self.transport == UDP_HEADER
    }

    /// Returns the number of wire packets.
    pub(crate) fn packets(self) -> usize {
        self.payload.div_ceil(self.segment).max(1)
    }

    /// Returns the total bytes of the wire packets.
    pub(crate) fn bytes(self) -> Bytes {
        Bytes::new((self.packets() * self.header + self.payload) as u64)
    }

    /// Returns the size of packet `index` at the IP layer.
    pub(crate) fn size(self, index: usize) -> Bytes {
        let payload = self.payload.saturating_sub(index * self.segment).min(self.segment);
        Bytes::new((self.header + payload) as u64)
    }
}

fn get_ne(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}
