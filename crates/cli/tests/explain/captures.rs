//! Packet captures, made here byte by byte: raw IPv4 packets in a pcap file.

use std::fs;

use crate::support::{explain, fails, objects, text};

const SERVER: [u8; 4] = [192, 0, 2, 1];
const CLIENT: [u8; 4] = [192, 0, 2, 2];
const SYN: u8 = 2;
const ACK: u8 = 16;
/// Bytes of each segment, and its round trip.
const MSS: usize = 1000;
const RTT: f64 = 0.05;

/// A pcap file of raw IP under construction.
struct Capture(Vec<u8>);

impl Capture {
    fn new() -> Self {
        let words = [0xa1b2_c3d4_u32, 2 | 4 << 16, 0, 0, 65_535, 101];
        Self(words.iter().flat_map(|word| word.to_le_bytes()).collect())
    }

    /// Adds a segment without options.
    fn add(
        &mut self,
        at: f64,
        from_server: bool,
        (sequence, acknowledgment): (u32, u32),
        flags: u8,
        payload: usize,
    ) {
        let (from, to, ports) =
            if from_server { (SERVER, CLIENT, [80u16, 4000]) } else { (CLIENT, SERVER, [4000, 80]) };
        let length = (40 + payload) as u16;
        let mut ip = vec![0x45, 0, (length >> 8) as u8, length as u8, 0, 0, 0, 0, 64, 6, 0, 0];
        ip.extend([from, to].concat());
        ip.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        ip.extend([sequence, acknowledgment].iter().flat_map(|number| number.to_be_bytes()));
        ip.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        ip.resize(ip.len() + payload, 0);
        let micros = (at * 1e6).round() as u64;
        let words = [
            1000 + (micros / 1_000_000) as u32,
            (micros % 1_000_000) as u32,
            ip.len() as u32,
            ip.len() as u32,
        ];
        self.0.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        self.0.extend(ip);
    }

    /// Makes one of five seconds at the sender: 60 segments a round trip, of at most 65,535 bytes in flight as the window is not scaled.
    fn window_limited(acknowledged: bool) -> Self {
        let mut capture = Self::new();
        if acknowledged {
            capture.add(0.0, false, (99, 0), SYN, 0);
        }
        capture.add(0.0, true, (999, 100), SYN | ACK, 0);
        if acknowledged {
            capture.add(RTT, false, (100, 1000), ACK, 0);
        }
        let mut packets = Vec::new();
        for number in 0..6000u32 {
            let at = RTT + f64::from(number) * RTT / 60.0;
            let sequence = 1000 + number * MSS as u32;
            packets.push((at, true, (sequence, 100)));
            packets.push((at + RTT, false, (100, sequence + MSS as u32)));
        }
        packets.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (at, from_server, numbers) in packets {
            if from_server || acknowledged {
                capture.add(at, from_server, numbers, ACK, if from_server { MSS } else { 0 });
            }
        }
        capture
    }
}

#[test]
fn capture_of_another_program_is_explained() {
    let home = tempfile::tempdir().unwrap();
    // A capture is known by its first bytes, whatever its name.
    fs::write(home.path().join("trace"), Capture::window_limited(true).0).unwrap();
    let flow = objects(&explain(home.path(), &["trace", "--json"])).remove(0);
    assert_eq!(
        (&flow["from"], &flow["limited_by"]),
        (&"192.0.2.1:80".into(), &"receive-window".into()),
        "{flow}"
    );
    assert_eq!(
        (&flow["bytes"], &flow["min_rtt"], &flow["at_sender"]),
        (&6_000_000.into(), &0.05.into(), &true.into())
    );
    assert!(flow["shares"]["receive-window"].as_f64().unwrap() > 0.8, "{flow}");
    let words = text(&explain(home.path(), &["trace"]).stdout);
    for word in [
        "192.0.2.1:80 -> 192.0.2.2:4000",
        "captured at the sender",
        "limited by the receive window for ",
        "raise net.ipv4.tcp_rmem on the receiver",
    ] {
        assert!(words.contains(word), "{words}");
    }
}

#[test]
fn capture_of_one_direction_or_cut_short_has_words() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("one.pcap"), Capture::window_limited(false).0).unwrap();
    let output = explain(home.path(), &["one.pcap"]);
    assert_eq!(output.status.code(), Some(65));
    assert!(text(&output.stdout).contains("only one direction was captured"), "{output:?}");
    let whole = Capture::window_limited(true).0;
    fs::write(home.path().join("cut.pcap"), &whole[..whole.len() / 2 + 3]).unwrap();
    let output = explain(home.path(), &["cut.pcap"]);
    assert!(
        text(&output.stderr).contains("WARNING: cut.pcap is damaged: cut off after packet "),
        "{output:?}"
    );
    assert!(
        output.status.success() && text(&output.stdout).contains("limited by the receive window"),
        "{output:?}"
    );
}

#[test]
fn what_is_no_capture_is_refused() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("text.pcap"), "no capture").unwrap();
    fails(home.path(), &["text.pcap"], 65, &["text.pcap is no capture", "tcpdump"]);
    fs::write(home.path().join("none.pcap"), Capture::new().0).unwrap();
    fails(home.path(), &["none.pcap"], 65, &["no TCP connection in none.pcap has data"]);
    fails(home.path(), &["missing.pcap"], 66, &["missing.pcap"]);
}

#[test]
fn capture_of_another_protocol_is_refused() {
    /// Where the first packet's protocol is: behind the headers of the file and of the packet.
    const PROTOCOL: usize = 24 + 16 + 9;
    const UDP: u8 = 17;
    let home = tempfile::tempdir().unwrap();
    let mut datagram = Capture::new();
    datagram.add(0.0, true, (1, 1), ACK, 500);
    datagram.0[PROTOCOL] = UDP;
    fs::write(home.path().join("udp.pcap"), &datagram.0).unwrap();
    fails(home.path(), &["udp.pcap"], 65, &["no TCP connection in udp.pcap has data"]);
}
