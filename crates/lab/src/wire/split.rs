//! Splits packets from a super-packet, so that the model can drop single packets.

use std::ops::Range;

use longhaul_sys::tun::VNET_HEADER_LEN;

use super::{GSO_ECN, GSO_NONE, GSO_SIZE, GSO_TYPE, HDR_LEN, Shape};

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;

/// Appends the frame of the packets `run` of `frame` to `out`; several packets form a super-packet
/// again.
///
/// Headers are set as by the kernel's segmentation: length, id and checksum of IP, sequence number
/// of TCP, length of UDP; FIN and PSH only on the last packet, CWR only on the first. The TCP or
/// UDP checksum remains partial (the pseudo-header's sum), for completion by the receiving kernel.
pub(crate) fn write_piece(frame: &[u8], shape: Shape, run: Range<usize>, out: &mut Vec<u8>) {
    let (vnet, packet) = frame.split_at(VNET_HEADER_LEN);
    let from = run.start * shape.segment;
    let to = (run.end * shape.segment).min(shape.payload);
    let is_first = run.start == 0;
    let is_last = to == shape.payload;

    let start = out.len();
    out.extend_from_slice(vnet);
    out.extend_from_slice(&packet[..shape.header]);
    out.extend_from_slice(&packet[shape.header + from..shape.header + to]);
    let (vnet, packet) = out[start..].split_at_mut(VNET_HEADER_LEN);

    vnet[HDR_LEN..HDR_LEN + 2].copy_from_slice(&(shape.header as u16).to_ne_bytes());
    if run.len() == 1 {
        vnet[GSO_TYPE] = GSO_NONE;
        vnet[GSO_SIZE..GSO_SIZE + 2].copy_from_slice(&[0, 0]);
    } else if !is_first {
        vnet[GSO_TYPE] &= !GSO_ECN;
    }

    let protocol = if shape.is_udp() { PROTOCOL_UDP } else { PROTOCOL_TCP };
    let pseudo_sum = fix_ip(packet, shape.transport, protocol, run.start as u16);
    let transport = &mut packet[shape.transport..];
    if shape.is_udp() {
        let length = transport.len() as u16;
        transport[4..6].copy_from_slice(&length.to_be_bytes());
        transport[6..8].copy_from_slice(&pseudo_sum.to_be_bytes());
        return;
    }
    let sequence = get_u32(transport, 4).wrapping_add(from as u32);
    transport[4..8].copy_from_slice(&sequence.to_be_bytes());
    if !is_last {
        transport[13] &= !(FIN | PSH);
    }
    if !is_first {
        transport[13] &= !CWR;
    }
    transport[16..18].copy_from_slice(&pseudo_sum.to_be_bytes());
}

/// Sets length, id and checksum of the IP header; returns the pseudo-header's sum of TCP or UDP
/// (RFC 9293, 3.1; RFC 768).
fn fix_ip(packet: &mut [u8], header: usize, protocol: u8, id_offset: u16) -> u16 {
    let length = packet.len() - header;
    let addresses = if packet[0] >> 4 == 4 {
        let total = packet.len() as u16;
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        let id = u16::from_be_bytes([packet[4], packet[5]]).wrapping_add(id_offset);
        packet[4..6].copy_from_slice(&id.to_be_bytes());
        packet[10..12].copy_from_slice(&[0, 0]);
        let checksum = !fold(sum(&packet[..header]));
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        12..20
    } else {
        let payload = (packet.len() - 40) as u16;
        packet[4..6].copy_from_slice(&payload.to_be_bytes());
        8..40
    };
    fold(sum(&packet[addresses]) + u32::from(protocol) + length as u32)
}

fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Adds 16-bit words (RFC 1071); an odd last byte counts as a word's upper half.
pub(super) fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0))).sum()
}

/// Folds the carries of a sum into 16 bits.
pub(super) fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
