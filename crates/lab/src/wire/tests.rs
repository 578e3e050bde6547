//! Splits super-packets and parses the pieces field by field.

use longhaul_core::units::Bytes;
use proptest::prelude::*;

use super::split::{fold, sum};
use super::*;

const TCP_HEADER: usize = 32;
const UDP_HEADER: usize = 8;
const FIN_PSH_ACK_CWR: u8 = 0x99;

fn payload(len: usize) -> impl Iterator<Item = u8> {
    (0..len).map(|n| (n % 251) as u8)
}

/// Creates a kernel super-packet: partial checksum, and flags that belong to its first or last
/// packet.
fn super_packet(v6: bool, segment: u16, len: usize) -> Vec<u8> {
    let ip = if v6 { 40 } else { 20 };
    let mut vnet = vec![1, if v6 { GSO_TCPV6 } else { GSO_TCPV4 } | GSO_ECN, 0, 0];
    for field in [segment, ip as u16, 16] {
        vnet.extend_from_slice(&field.to_ne_bytes());
    }
    let mut packet = vec![0_u8; ip + TCP_HEADER];
    if v6 {
        packet[0] = 0x60;
        packet[6] = 6;
        packet[8..40].copy_from_slice(&[0x20; 32]);
    } else {
        packet[0] = 0x45;
        packet[4..6].copy_from_slice(&[0xff, 0xfe]);
        packet[6] = 0x40;
        packet[8..10].copy_from_slice(&[64, 6]);
        packet[12..20].copy_from_slice(&[198, 18, 0, 1, 198, 18, 0, 2]);
    }
    packet[ip + 4..ip + 8].copy_from_slice(&0xffff_ff00_u32.to_be_bytes());
    packet[ip + 12] = (TCP_HEADER as u8 / 4) << 4;
    packet[ip + 13] = FIN_PSH_ACK_CWR;
    packet.extend(payload(len));
    [vnet, packet].concat()
}

/// Creates a kernel super-packet of UDP: its length field covers all of it.
fn udp_super_packet(v6: bool, segment: u16, len: usize) -> Vec<u8> {
    let ip = if v6 { 40 } else { 20 };
    let mut frame = super_packet(v6, segment, 0);
    frame.truncate(VNET_HEADER_LEN + ip + UDP_HEADER);
    frame[GSO_TYPE] = GSO_UDP_L4;
    frame[VNET_HEADER_LEN + if v6 { 6 } else { 9 }] = 17;
    let length = ((UDP_HEADER + len) as u16).to_be_bytes();
    frame[VNET_HEADER_LEN + ip + 4..][..2].copy_from_slice(&length);
    frame.extend(payload(len));
    frame
}

fn big_endian(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

/// Checks a piece's virtio and IP headers and the partial checksum at `checksum` of its segment;
/// returns the segment.
fn segment_of(piece: &[u8], v6: bool, header: usize, checksum: usize, segment: usize) -> &[u8] {
    let ip = if v6 { 40 } else { 20 };
    let (vnet, packet) = piece.split_at(VNET_HEADER_LEN);
    let is_several = packet.len() - ip - header > segment;
    assert_eq!(usize::from(get_ne(vnet, GSO_SIZE)), if is_several { segment } else { 0 });
    assert_eq!(vnet[GSO_TYPE] != GSO_NONE, is_several);
    assert_eq!(usize::from(get_ne(vnet, CSUM_START)), ip);
    let (length, addresses) =
        if v6 { (40 + big_endian(packet, 4), 8..40) } else { (big_endian(packet, 2), 12..20) };
    assert_eq!(length, packet.len());
    assert!(v6 || fold(sum(&packet[..20])) == 0xffff, "the IP header's checksum");
    let protocol = u32::from(packet[if v6 { 6 } else { 9 }]);
    let pseudo = sum(&packet[addresses]) + protocol + (packet.len() - ip) as u32;
    assert_eq!(big_endian(&packet[ip..], checksum), usize::from(fold(pseudo)), "the partial checksum");
    &packet[ip..]
}

#[test]
fn counts_packets_and_bytes_as_on_the_wire() {
    let shape = Shape::of(&super_packet(false, 1448, 1448 * 44 + 1));
    assert_eq!((shape.packets(), shape.size(0), shape.size(44)), (45, Bytes::new(1500), Bytes::new(53)));
    let total: u64 = (0..45).map(|index| shape.size(index).get()).sum();
    assert_eq!(total, 1448 * 44 + 1 + 45 * 52);
}

#[test]
fn frame_other_than_super_packet_is_one_packet() {
    let mut plain = super_packet(false, 1448, 100);
    plain[GSO_TYPE] = GSO_NONE;
    assert_eq!((Shape::of(&plain).packets(), Shape::of(&plain).size(0)), (1, Bytes::new(152)));
    // Inconsistent headers must not panic.
    for len in 0..plain.len() {
        let cut = super_packet(true, 1448, 100);
        assert_eq!(Shape::of(&cut[..len]).packets(), 1);
    }
}

proptest! {
    /// Invariant: the pieces have valid headers, and together hold the payload.
    #[test]
    fn pieces_cover_the_payload(
        v6: bool,
        segment in 88_u16..9000,
        len in 1_usize..64_000,
        cuts in prop::collection::btree_set(1_usize..800, 0..6),
    ) {
        for is_tcp in [true, false] {
            let frame = if is_tcp { super_packet(v6, segment, len) } else { udp_super_packet(v6, segment, len) };
            let (header, checksum) = if is_tcp { (TCP_HEADER, 16) } else { (UDP_HEADER, 6) };
            let segment = usize::from(segment);
            let shape = Shape::of(&frame);
            let count = shape.packets();
            prop_assert_eq!(count, len.div_ceil(segment));
            let mut edges = vec![0];
            edges.extend(cuts.iter().filter(|cut| **cut < count));
            edges.push(count);
            let mut whole = Vec::new();
            for run in edges.windows(2) {
                let mut piece = Vec::new();
                write_piece(&frame, shape, run[0]..run[1], &mut piece);
                if is_tcp && count == 1 {
                    // The driver never does this, but it must not panic.
                    continue;
                }
                let read = segment_of(&piece, v6, header, checksum, segment);
                if is_tcp {
                    prop_assert_eq!(Shape::of(&piece).packets(), run[1] - run[0]);
                    prop_assert_eq!(usize::from(get_ne(&piece, HDR_LEN)), if v6 { 40 } else { 20 } + TCP_HEADER);
                    prop_assert!(v6 || big_endian(&piece, VNET_HEADER_LEN + 4) == (0xfffe + run[0]) & 0xffff, "IP ID");
                    prop_assert_eq!(&read[4..8], 0xffff_ff00_u32.wrapping_add(whole.len() as u32).to_be_bytes());
                    let (first, last) = (u8::from(run[0] == 0) * 0x80, u8::from(run[1] == count) * 0x09);
                    prop_assert_eq!(read[13], 0x10 | first | last);
                } else {
                    prop_assert!([GSO_NONE, GSO_UDP_L4].contains(&piece[GSO_TYPE]));
                    prop_assert_eq!(big_endian(read, 4), read.len());
                }
                whole.extend_from_slice(&read[header..]);
            }
            prop_assert!((is_tcp && count == 1) || whole == frame[frame.len() - len..]);
        }
    }
}
