//! Reads and rewrites single fields of packets: flows, ECN, checksums.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use longhaul_sys::tun::VNET_HEADER_LEN;

use super::split::{fold, sum};
use super::{CSUM_START, get_ne};

/// Offset of `csum_offset` in `struct virtio_net_hdr`.
const CSUM_OFFSET: usize = 8;
/// Flag: the checksum field holds the pseudo-header's sum only.
const NEEDS_CSUM: u8 = 1;
const CE: u8 = 3;

/// Identifies a flow: protocol, addresses and ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    /// IP protocol number: 6 is TCP, 17 UDP.
    pub protocol: u8,
    /// The sender.
    pub from: (IpAddr, u16),
    /// The receiver.
    pub to: (IpAddr, u16),
}

impl FlowKey {
    /// Returns a frame's flow; `None` if it is no IP packet. Ports are 0 if the protocol has none.
    pub(crate) fn of(frame: &[u8]) -> Option<Self> {
        let packet = frame.get(VNET_HEADER_LEN..)?;
        let (protocol, transport, from, to): (u8, usize, IpAddr, IpAddr) = match packet.first()? >> 4 {
            4 => {
                let address =
                    |at: usize| Some(IpAddr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?));
                (*packet.get(9)?, usize::from(packet[0] & 15) * 4, address(12)?, address(16)?)
            }
            6 => {
                let address =
                    |at: usize| Some(IpAddr::from(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?));
                (*packet.get(6)?, 40, address(8)?, address(24)?)
            }
            _ => return None,
        };
        let port = |at: usize| match (protocol, packet.get(transport + at..transport + at + 2)) {
            (6 | 17, Some(bytes)) => u16::from_be_bytes([bytes[0], bytes[1]]),
            _ => 0,
        };
        Some(Self { protocol, from: (from, port(0)), to: (to, port(2)) })
    }

    /// Returns a hash of the flow.
    pub(crate) fn hash_with(&self, seed: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        (seed, self).hash(&mut hasher);
        hasher.finish()
    }

    /// Returns the pair of hosts of the flow: the third octet of its network.
    pub(crate) fn pair(&self) -> u16 {
        match self.to.0 {
            IpAddr::V4(v4) => u16::from(v4.octets()[2]),
            IpAddr::V6(v6) => v6.segments()[3],
        }
    }

    /// Returns the protocol's name, or its number.
    pub fn protocol_name(&self) -> String {
        match self.protocol {
            6 => "tcp".to_owned(),
            17 => "udp".to_owned(),
            1 | 58 => "icmp".to_owned(),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |(address, port)| std::net::SocketAddr::from((address, port));
        write!(f, "{} {} > {}", self.protocol_name(), end(self.from), end(self.to))
    }
}

/// Returns whether a frame is ECN-capable (RFC 3168, 5): ECT(0), ECT(1), or CE.
pub(crate) fn is_ecn_capable(frame: &[u8]) -> bool {
    match frame.get(VNET_HEADER_LEN..VNET_HEADER_LEN + 2) {
        Some([first, second]) if first >> 4 == 4 => second & CE != 0,
        Some([_, second]) => (second >> 4) & CE != 0,
        _ => false,
    }
}

/// Sets a frame's congestion mark (CE).
pub(crate) fn mark_congestion(frame: &mut [u8]) {
    let Some(packet) = frame.get_mut(VNET_HEADER_LEN..).filter(|packet| packet.len() >= 20) else { return };
    if packet[0] >> 4 == 4 {
        packet[1] |= CE;
        let header = (usize::from(packet[0] & 15) * 4).min(packet.len());
        packet[10..12].copy_from_slice(&[0, 0]);
        let checksum = !fold(sum(&packet[..header]));
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    } else {
        packet[1] |= CE << 4;
    }
}

/// Flips the bit selected by `random` behind the IP header of a single packet. Completes its
/// checksum first, so that the receiver detects the damage.
pub(crate) fn corrupt(frame: &mut [u8], random: u64) {
    if frame.len() <= VNET_HEADER_LEN {
        return;
    }
    let (vnet, packet) = frame.split_at_mut(VNET_HEADER_LEN);
    let start = usize::from(get_ne(vnet, CSUM_START));
    let at = start + usize::from(get_ne(vnet, CSUM_OFFSET));
    if vnet[0] & NEEDS_CSUM != 0 && at + 2 <= packet.len() {
        let checksum = match !fold(sum(&packet[start..])) {
            // A UDP checksum of zero means none (RFC 768).
            0 => 0xffff,
            checksum => checksum,
        };
        packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }
    vnet[..VNET_HEADER_LEN].fill(0);
    let header = if packet[0] >> 4 == 4 { usize::from(packet[0] & 15) * 4 } else { 40 };
    let bits = packet.len().saturating_sub(header) as u64 * 8;
    if bits > 0 {
        let bit = random % bits;
        packet[header + (bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 UDP packet from the kernel, with a partial checksum.
    fn udp() -> Vec<u8> {
        let mut vnet = vec![NEEDS_CSUM, 0, 0, 0, 0, 0];
        for field in [20_u16, 6] {
            vnet.extend_from_slice(&field.to_ne_bytes());
        }
        let mut packet = vec![0x45, 2, 0, 36, 0, 0, 0, 0, 64, 17, 0, 0, 198, 18, 3, 1, 198, 18, 3, 2];
        let pseudo = fold(sum(&packet[12..20]) + 17 + 16);
        for field in [1000_u16, 53, 16, pseudo] {
            packet.extend_from_slice(&field.to_be_bytes());
        }
        packet.extend_from_slice(b"evenodd!");
        [vnet, packet].concat()
    }

    #[test]
    fn reads_flows_and_pairs() {
        let key = FlowKey::of(&udp()).unwrap();
        assert_eq!(key.to_string(), "udp 198.18.3.1:1000 > 198.18.3.2:53");
        assert_eq!(key.pair(), 3);
        for short in 0..udp().len() {
            let _ = (FlowKey::of(&udp()[..short]), is_ecn_capable(&udp()[..short]));
        }
    }

    #[test]
    fn a_mark_keeps_the_header_valid() {
        let mut frame = udp();
        assert!(is_ecn_capable(&frame));
        mark_congestion(&mut frame);
        let header = &frame[VNET_HEADER_LEN..VNET_HEADER_LEN + 20];
        assert_eq!((header[1] & CE, fold(sum(header))), (CE, 0xffff));
        let mut v6 = [vec![0; VNET_HEADER_LEN], vec![0x60; 60]].concat();
        v6[VNET_HEADER_LEN + 1] = 0x20;
        mark_congestion(&mut v6);
        assert_eq!(v6[VNET_HEADER_LEN + 1], 0x30);
    }

    #[test]
    fn corruption_invalidates_the_checksum() {
        let valid = |frame: &[u8]| {
            let packet = &frame[VNET_HEADER_LEN..];
            fold(sum(&packet[12..20]) + 17 + 16 + sum(&packet[20..])) == 0xffff
        };
        for random in 0..16 * 8 {
            let mut frame = udp();
            corrupt(&mut frame, random);
            assert!(!valid(&frame) && frame[..VNET_HEADER_LEN] == [0; VNET_HEADER_LEN], "bit {random}");
            frame[VNET_HEADER_LEN + 20 + random as usize / 8] ^= 1 << (random % 8);
            assert!(valid(&frame), "only bit {random} was flipped");
        }
        corrupt(&mut [0; VNET_HEADER_LEN + 1], 7);
    }
}
