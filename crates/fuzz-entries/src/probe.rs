//! What measurement endpoints, iperf3 and captures give to `probe` and `explain`.

use std::path::Path;

use longhaul_core::probe::iperf3::{parse_tcp, parse_udp};
use longhaul_core::probe::message::{Nonce, UdpPacket, UdpRequest};
use longhaul_core::units::Bytes;
use longhaul_scope::capture::{Capture, Keep};

/// Where a nonce is within a request: behind magic and kind.
const NONCE: std::ops::Range<usize> = 5..21;

/// Reads a datagram as an endpoint and as a client would; writes it anew and reads that.
pub fn measurement(bytes: &[u8]) {
    let shown = bytes.get(NONCE).and_then(|nonce| nonce.try_into().ok()).map(Nonce);
    let nonce = shown.unwrap_or(Nonce([0; 16]));
    if let Some(request) = UdpRequest::parse(bytes, nonce) {
        let length = Bytes::new(bytes.len() as u64);
        let written = request.encode(nonce, length);
        assert_eq!(written.len(), bytes.len(), "no answer is longer than its request");
        assert_eq!(UdpRequest::parse(&written, nonce), Some(request));
        let other = Nonce(nonce.0.map(|byte| !byte));
        assert!(UdpRequest::parse(bytes, other).is_none());
    }
    if let Some(packet) = UdpPacket::parse(bytes) {
        let mut written = bytes.to_vec();
        packet.write(&mut written);
        assert_eq!(written, bytes);
    }
    if let Some(nonce) = Nonce::from_hex(&String::from_utf8_lossy(bytes)) {
        assert_eq!(nonce.to_hex().as_bytes(), bytes.to_ascii_lowercase());
    }
}

/// Reads what iperf3 printed, as a test over TCP and as one over UDP.
pub fn iperf3(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok((tcp, _)) = parse_tcp(&text) {
        assert!(tcp.range.is_some_and(|range| range.least_bps <= range.most_bps), "{tcp:?}");
    }
    if let Ok((udp, loss)) = parse_udp(&text, Bytes::new(1472)) {
        assert!(loss.lost <= loss.sent && udp.payload_bps <= udp.sent_bps, "{udp:?}");
    }
}

/// Reads a capture, pcap or pcapng.
pub fn capture(bytes: &[u8]) {
    let Ok(capture) = Capture::read(bytes, Path::new("capture.pcap"), Keep::Readings) else { return };
    assert!(!capture.flows.is_empty() && capture.others <= capture.packets);
    assert!(capture.flows.is_sorted_by_key(|flow| std::cmp::Reverse(flow.bytes)));
    assert_eq!(Capture::read(bytes, Path::new("capture.pcap"), Keep::Readings).ok(), Some(capture));
}
