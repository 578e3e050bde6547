//! Splits super-packets and parses the pieces field by field.

use longhaul_core::units::Bytes;
use proptest::prelude::*;

use super::split::{fold, sum};
use super::*;

const TCP_HEADER: usize = 32;
const FIN_PSH_ACK_CWR: u8 = 0x99;

/// Creates a kernel super-packet: partial checksum, and flags that belong to its first or last packet.
fn super_packet(v6: bool, segment: u16, payload: usize) -> Vec<u8> {
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
    packet.extend((0..payload).map(|n| (n % 251) as u8));
    [vnet, packet].concat()
}

struct Read {
    sequence: u32,
    flags: u8,
    payload: Vec<u8>,
}

/// Checks a piece's headers for consistency and returns its TCP fields.
fn read(frame: &[u8], v6: bool, segment: usize, ip_id: u16) -> Read {
    let ip = if v6 { 40 } else { 20 };
    let (vnet, packet) = frame.split_at(VNET_HEADER_LEN);
    assert_eq!(usize::from(get_ne(vnet, HDR_LEN)), ip + TCP_HEADER);
    assert_eq!(usize::from(get_ne(vnet, CSUM_START)), ip);
    let payload = packet[ip + TCP_HEADER..].to_vec();
    if payload.len() > segment {
        assert_eq!(usize::from(get_ne(vnet, GSO_SIZE)), segment);
        assert_ne!(vnet[GSO_TYPE], GSO_NONE);
    } else {
        assert_eq!((vnet[GSO_TYPE], get_ne(vnet, GSO_SIZE)), (GSO_NONE, 0));
    }
    let big_endian = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    let addresses = if v6 {
        assert_eq!(big_endian(4), packet.len() - 40);
        8..40
    } else {
        assert_eq!(big_endian(2), packet.len());
        assert_eq!(big_endian(4), usize::from(ip_id));
        assert_eq!(fold(sum(&packet[..20])), 0xffff, "the IP header's checksum");
        12..20
    };
    let pseudo = sum(&packet[addresses]) + 6 + (packet.len() - ip) as u32;
    assert_eq!(big_endian(ip + 16), usize::from(fold(pseudo)), "the partial TCP checksum");
    let tcp = &packet[ip..];
    Read { sequence: u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]), flags: tcp[13], payload }
}

#[test]
fn counts_packets_and_bytes_as_on_the_wire() {
    let shape = Shape::of(&super_packet(false, 1448, 1448 * 44 + 1));
    assert_eq!(shape.packets(), 45);
    assert_eq!(shape.size(0), Bytes::new(1500));
    assert_eq!(shape.size(44), Bytes::new(53));
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
        payload in 1_usize..64_000,
        cuts in prop::collection::btree_set(1_usize..800, 0..6),
    ) {
        let frame = super_packet(v6, segment, payload);
        let segment = usize::from(segment);
        let shape = Shape::of(&frame);
        let count = shape.packets();
        let mut edges = vec![0];
        edges.extend(cuts.into_iter().filter(|cut| *cut < count));
        edges.push(count);
        let mut whole = Vec::new();
        for run in edges.windows(2) {
            let mut piece = Vec::new();
            write_piece(&frame, shape, run[0]..run[1], &mut piece);
            if count == 1 {
                // The driver never does this, but it must not panic.
                continue;
            }
            prop_assert_eq!(Shape::of(&piece).packets(), run[1] - run[0]);
            let id = 0xfffe_u16.wrapping_add(run[0] as u16);
            let read = read(&piece, v6, segment, id);
            prop_assert_eq!(read.sequence, 0xffff_ff00_u32.wrapping_add(whole.len() as u32));
            let expected = 0x10
                | if run[0] == 0 { 0x80 } else { 0 }
                | if run[1] == count { 0x09 } else { 0 };
            prop_assert_eq!(read.flags, expected);
            whole.extend_from_slice(&read.payload);
        }
        if count > 1 {
            prop_assert!(whole == super_packet(v6, segment as u16, payload)[frame.len() - payload..]);
        }
    }
}

const UDP: usize = 8;

/// Creates a kernel super-packet of UDP: its length field covers all of it.
fn udp_super_packet(v6: bool, segment: u16, payload: usize) -> Vec<u8> {
    let ip = if v6 { 40 } else { 20 };
    let mut frame = super_packet(v6, segment, 0);
    frame.truncate(VNET_HEADER_LEN + ip + UDP);
    frame[GSO_TYPE] = GSO_UDP_L4;
    frame[VNET_HEADER_LEN + if v6 { 6 } else { 9 }] = 17;
    let length = ((UDP + payload) as u16).to_be_bytes();
    frame[VNET_HEADER_LEN + ip + 4..][..2].copy_from_slice(&length);
    frame.extend((0..payload).map(|n| (n % 251) as u8));
    frame
}

proptest! {
    #[test]
    fn pieces_of_udp_have_their_own_length_and_checksum(
        v6: bool,
        segment in 88_u16..9000,
        payload in 1_usize..64_000,
        cut in 1_usize..700,
    ) {
        let frame = udp_super_packet(v6, segment, payload);
        let shape = Shape::of(&frame);
        let count = payload.div_ceil(usize::from(segment));
        prop_assert_eq!(shape.packets(), count);
        let cut = cut.min(count - 1);
        let mut whole = Vec::new();
        for run in [0..cut, cut..count].into_iter().filter(|run| !run.is_empty()) {
            let mut piece = Vec::new();
            write_piece(&frame, shape, run.clone(), &mut piece);
            let ip = if v6 { 40 } else { 20 };
            let packet = &piece[VNET_HEADER_LEN..];
            let big_endian = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
            prop_assert_eq!(big_endian(ip + 4), packet.len() - ip);
            let addresses = if v6 { 8..40 } else { 12..20 };
            let pseudo = sum(&packet[addresses]) + 17 + (packet.len() - ip) as u32;
            prop_assert_eq!(big_endian(ip + 6), usize::from(fold(pseudo)));
            let is_several = run.len() > 1;
            prop_assert_eq!(piece[GSO_TYPE], if is_several { GSO_UDP_L4 } else { GSO_NONE });
            prop_assert_eq!(is_several, get_ne(&piece, GSO_SIZE) > 0);
            whole.extend_from_slice(&packet[ip + UDP..]);
        }
        prop_assert!(whole == frame[frame.len() - payload..]);
    }
}
