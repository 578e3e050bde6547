//! Analyses captures that the tests generate packet by packet.

use std::path::Path;
use std::time::Duration;

use etherparse::{PacketBuilder, TcpOptionElement};
use longhaul_core::advice::{LimitedBy, Reading};
use longhaul_core::failure::FailureKind;
use longhaul_core::units::Bytes;

use super::flow::{INTERVAL, KeptReadings, MAX_READINGS};
use super::*;

const MSS: usize = 1448;

/// Parameters of a generated download.
#[derive(Debug, Clone, Copy)]
struct Download {
    rtt: f64,
    seconds: f64,
    /// Maximum of packets in flight.
    in_flight: usize,
    /// The client's receive window.
    window: Bytes,
    /// Every n-th packet is lost and retransmitted one round trip later.
    lost: Option<usize>,
    /// Seconds in the bottleneck's queue.
    queue: f64,
    at_sender: bool,
    client_port: u16,
}

const DOWNLOAD: Download = Download {
    rtt: 0.1,
    seconds: 6.0,
    in_flight: 100,
    window: Bytes::mib(8),
    lost: None,
    queue: 0.0,
    at_sender: true,
    client_port: 40_000,
};

/// One packet at the capture point.
#[derive(Debug, Clone)]
struct Packet {
    at: f64,
    from_server: bool,
    syn: bool,
    /// Whether a SYN has the option of window scaling.
    scales: bool,
    sequence: u32,
    acknowledgment: Option<u32>,
    window: u16,
    payload: usize,
    stamps: (u32, u32),
    client_port: u16,
}

/// Window scale shift of both endpoints.
const SCALE: u8 = 10;
/// Close to the wrap of sequence numbers.
const SERVER_START: u32 = u32::MAX - 20_000;

impl Download {
    fn packet(&self, at: f64, from_server: bool) -> Packet {
        let window = if from_server { 64 } else { (self.window.get() >> SCALE) as u16 };
        Packet {
            at,
            from_server,
            syn: false,
            scales: true,
            sequence: if from_server { SERVER_START + 1 } else { 101 },
            acknowledgment: Some(if from_server { 101 } else { SERVER_START + 1 }),
            window,
            payload: 0,
            stamps: ((at * 1000.0) as u32, 0),
            client_port: self.client_port,
        }
    }

    /// Returns the three packets of the handshake.
    fn handshake(&self) -> Vec<Packet> {
        let half = self.rtt / 2.0;
        let [first, answered, last] =
            if self.at_sender { [half, half, half + self.rtt] } else { [0.0, self.rtt, self.rtt] };
        let syn = Packet { syn: true, sequence: 100, acknowledgment: None, ..self.packet(first, false) };
        let answer = Packet { syn: true, sequence: SERVER_START, ..self.packet(answered, true) };
        vec![syn, answer, self.packet(last, false)]
    }

    /// Returns the packets after the handshake, by time.
    fn data(&self) -> Vec<Packet> {
        let stamp = |at: f64| (at * 1000.0) as u32;
        let mut packets = Vec::new();
        let (mut round, mut number, mut flight) = (1.5 * self.rtt, 0usize, 10usize);
        while round < self.seconds {
            let count = flight.min(self.in_flight);
            for index in 0..count {
                let is_lost = self.lost.is_some_and(|each| number % each == each - 1);
                let sequence = (SERVER_START + 1).wrapping_add((number * MSS) as u32);
                for attempt in 0..=usize::from(is_lost) {
                    let arrives = attempt == usize::from(is_lost);
                    let sent = round + self.rtt * (attempt as f64 + index as f64 / count as f64);
                    let arrived = sent + self.rtt / 2.0 + self.queue;
                    let [data_seen, answer_seen] =
                        if self.at_sender { [sent, arrived + self.rtt / 2.0] } else { [arrived; 2] };
                    if self.at_sender || arrives {
                        packets.push(Packet {
                            sequence,
                            payload: MSS,
                            // Echoes the latest acknowledgement that has reached the server.
                            stamps: (stamp(sent), stamp(sent - self.rtt / 2.0)),
                            ..self.packet(data_seen, true)
                        });
                    }
                    if arrives {
                        packets.push(Packet {
                            acknowledgment: Some(sequence.wrapping_add(MSS as u32)),
                            stamps: (stamp(arrived), stamp(sent)),
                            ..self.packet(answer_seen, false)
                        });
                    }
                }
                number += 1;
            }
            (round, flight) = (round + self.rtt, flight * 2);
        }
        packets.sort_by(|a, b| a.at.total_cmp(&b.at));
        packets
    }

    fn packets(&self) -> Vec<Packet> {
        let mut packets = [self.handshake(), self.data()].concat();
        packets.sort_by(|a, b| a.at.total_cmp(&b.at));
        packets
    }
}

/// File format and link type of a generated capture.
#[derive(Debug, Clone, Copy)]
struct Format {
    link: u32,
    v6: bool,
    pcapng: bool,
    nanoseconds: bool,
    /// Captured bytes of each packet, at most its headers.
    snap: usize,
}

const FORMAT: Format = Format { link: 1, v6: false, pcapng: false, nanoseconds: false, snap: 128 };

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A block of pcapng.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 12).to_le_bytes();
    [&kind.to_le_bytes()[..], &length, body, &length].concat()
}

impl Format {
    /// Returns the headers of a packet.
    fn frame(self, packet: &Packet) -> Vec<u8> {
        let ends = [(1u8, 80u16), (2, packet.client_port)];
        let ((from, source), (to, destination)) =
            if packet.from_server { (ends[0], ends[1]) } else { (ends[1], ends[0]) };
        let v6 = |last: u8| [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
        let (builder, length_at) = if self.v6 {
            (PacketBuilder::ipv6(v6(from), v6(to), 64), 4)
        } else {
            (PacketBuilder::ipv4([192, 0, 2, from], [192, 0, 2, to], 64), 2)
        };
        let mut tcp = builder.tcp(source, destination, packet.sequence, packet.window);
        if packet.syn {
            tcp = tcp.syn();
        }
        if let Some(number) = packet.acknowledgment {
            tcp = tcp.ack(number);
        }
        let stamps = TcpOptionElement::Timestamp(packet.stamps.0, packet.stamps.1);
        let options = [stamps, TcpOptionElement::WindowScale(SCALE)];
        let tcp = tcp.options(&options[..1 + usize::from(packet.syn && packet.scales)]).unwrap();
        let mut ip = Vec::new();
        tcp.write(&mut ip, &[]).unwrap();
        let length = u16::from_be_bytes([ip[length_at], ip[length_at + 1]]) + packet.payload as u16;
        ip[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
        let ether_type: [u8; 2] = if self.v6 { [0x86, 0xdd] } else { [8, 0] };
        let before = match self.link {
            1 => [&[2; 12][..], &ether_type].concat(),
            113 => [&[0; 14][..], &ether_type].concat(),
            276 => [&ether_type[..], &[0; 18]].concat(),
            0 => vec![if self.v6 { 30 } else { 2 }, 0, 0, 0],
            _ => Vec::new(),
        };
        [before, ip].concat()
    }

    fn header(self) -> Vec<u8> {
        if !self.pcapng {
            let magic = if self.nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
            return words(&[magic, 2 | 4 << 16, 0, 0, 262_144, self.link]);
        }
        // if_tsresol is option 9: ten to the power of minus nine.
        let resolution = if self.nanoseconds { words(&[9 | 1 << 16, 9, 0]) } else { Vec::new() };
        let section = block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]));
        [section, block(1, &[words(&[self.link, 0]), resolution].concat())].concat()
    }

    fn record(self, packet: &Packet) -> Vec<u8> {
        let frame = self.frame(packet);
        let captured = &frame[..frame.len().min(self.snap)];
        let (taken, length) = (captured.len() as u32, (frame.len() + packet.payload) as u32);
        let per_second: u64 = if self.nanoseconds { 1_000_000_000 } else { 1_000_000 };
        let units = 1_700_000_000 * per_second + (packet.at * per_second as f64).round() as u64;
        if self.pcapng {
            let mut body = words(&[0, (units >> 32) as u32, units as u32, taken, length]);
            body.extend(captured);
            body.resize(body.len().next_multiple_of(4), 0);
            return block(6, &body);
        }
        let (seconds, rest) = (units / per_second, units % per_second);
        [&words(&[seconds as u32, rest as u32, taken, length]), captured].concat()
    }

    fn capture(self, packets: &[Packet]) -> Vec<u8> {
        let records = packets.iter().flat_map(|packet| self.record(packet));
        self.header().into_iter().chain(records).collect()
    }
}

fn read(file: &[u8]) -> Result<Capture, Failure> {
    Capture::read(file, Path::new("c.pcap"), Keep::Readings)
}

#[track_caller]
fn only_flow(packets: &[Packet]) -> Flow {
    let mut capture = read(&FORMAT.capture(packets)).unwrap();
    assert_eq!((capture.flows.len(), &capture.damage), (1, &None));
    capture.flows.remove(0)
}

#[track_caller]
fn assert_limit(download: &Download, limit: LimitedBy, least: f64) {
    for at_sender in [true, false] {
        let download = Download { at_sender, ..*download };
        let flow = only_flow(&download.packets());
        let finding = flow.diagnosis.as_ref().map(|diagnosis| &diagnosis.finding).unwrap();
        assert_eq!(finding.limit, limit, "{flow:?}");
        assert!(finding.shares.get(limit) >= least, "{flow:?}");
        assert_eq!(flow.coverage.at_sender, Some(at_sender), "{flow:?}");
        let rtt = flow.min_rtt.unwrap().get().as_secs_f64();
        assert!((rtt - download.rtt).abs() < 0.1 * download.rtt, "{flow:?}");
    }
}

/// Fills a window of 100 segments.
const SMALL_WINDOW: Download = Download { window: Bytes::new(100 * MSS as u64), ..DOWNLOAD };

#[test]
fn limit_is_named_from_the_packets_of_either_side() {
    assert_limit(&SMALL_WINDOW, LimitedBy::ReceiveWindow, 0.8);
    // Fills a stock send buffer.
    assert_limit(&Download { rtt: 0.2, in_flight: 1800, ..DOWNLOAD }, LimitedBy::ServerSendBuffer, 0.5);
    // An even rate with little in flight, and a short file.
    assert_limit(&DOWNLOAD, LimitedBy::Server, 0.7);
    // Its round trips are nearly as long as intervals, so that its end cuts none.
    let short = Download { rtt: 0.102, in_flight: 100_000, seconds: 0.9, ..DOWNLOAD };
    assert_limit(&short, LimitedBy::SlowStart, 0.9);
    let lossy = Download { lost: Some(150), ..DOWNLOAD };
    assert_limit(&lossy, LimitedBy::Loss, 0.7);
    assert!(only_flow(&lossy.packets()).retransmits > 30);
    // The handshake samples the RTT of the empty path.
    assert_limit(&Download { queue: 0.06, ..DOWNLOAD }, LimitedBy::Path, 0.8);
    // One SYN without the option: the field is the window.
    let mut packets =
        Download { in_flight: 43, window: Bytes::new((43 * MSS as u64) << SCALE), ..DOWNLOAD }.packets();
    packets[1].scales = false;
    let finding = only_flow(&packets).diagnosis.unwrap().finding;
    assert_eq!(finding.limit, LimitedBy::ReceiveWindow, "{finding:?}");
    assert!(finding.advice[1].contains("net.ipv4.tcp_window_scaling"), "{finding:?}");
    // The client sends: its program and its buffer look alike.
    let mut packets = DOWNLOAD.packets();
    (packets[0].from_server, packets[0].sequence) = (true, SERVER_START);
    let answer = Packet { from_server: false, sequence: 100, ..packets[1].clone() };
    packets[1] = Packet { acknowledgment: Some(SERVER_START + 1), ..answer };
    let upload = only_flow(&packets).diagnosis.unwrap().finding;
    assert_eq!((upload.limit, upload.shares.get(LimitedBy::Server)), (LimitedBy::Unknown, 0.0), "{upload:?}");
    let flow = only_flow(&SMALL_WINDOW.data());
    assert!(!flow.coverage.has_handshake && flow.min_rtt.is_some(), "{flow:?}");
    let limit = flow.diagnosis.unwrap().finding.limit;
    assert_ne!(limit, LimitedBy::ReceiveWindow, "the window scale is unknown");
}

#[test]
fn connection_is_drawn_like_a_record() {
    for (at_sender, title) in [(true, "Packets sent again"), (false, "Packets out of order")] {
        let mut packets = Download { at_sender, lost: Some(150), ..DOWNLOAD }.packets();
        packets.iter_mut().filter(|packet| packet.at > 3.0).for_each(|packet| packet.at += 5.0);
        let record = only_flow(&packets).record();
        assert!(record.samples.len() < 70, "a pause needs two: {}", record.samples.len());
        let sheet = crate::figures::of_records(&[("c".to_owned(), record)]);
        let chart = |title: &str| sheet.charts.iter().find(|chart| chart.title == title).unwrap();
        let points = &chart("Throughput").series.last().unwrap().points;
        let rate_at = |at: f64| points.iter().rfind(|point| point.x <= at).unwrap().y;
        assert!(rate_at(2.0) > 8e6 && rate_at(5.0) < 1e5, "{points:?}");
        assert!(!chart(title).series.is_empty() && sheet.title.contains(":80 -> "), "{sheet:?}");
    }
}

#[test]
fn every_format_has_the_same_diagnosis() {
    let packets = Download { seconds: 1.0, ..DOWNLOAD }.packets();
    let of = |format: Format| {
        let capture = read(&format.capture(&packets)).unwrap();
        let flow = capture.flows[0].clone();
        (flow.bytes, flow.retransmits, flow.min_rtt, flow.time, flow.diagnosis.unwrap().finding.advice)
    };
    let expected = of(FORMAT);
    for link in [0, 1, 101, 113, 276] {
        for v6 in [false, true] {
            for (pcapng, nanoseconds) in [(false, false), (false, true), (true, false), (true, true)] {
                let format = Format { link, v6, pcapng, nanoseconds, ..FORMAT };
                let found = of(format);
                assert_eq!((found.0, found.1, &found.4), (expected.0, expected.1, &expected.4), "{format:?}");
                let near = found.3.abs_diff(expected.3) < Duration::from_micros(2);
                assert!(near && found.2.is_some(), "{format:?}");
            }
        }
    }
}

#[test]
fn one_direction_is_reported_without_diagnosis() {
    let of_server = |is_wanted: bool| {
        let packets = DOWNLOAD.packets().into_iter().filter(|packet| packet.from_server == is_wanted);
        read(&FORMAT.capture(&packets.collect::<Vec<_>>()))
    };
    let flow = of_server(true).unwrap().flows.remove(0);
    assert!((5.5..6.5).contains(&drawn_until(&flow)), "{}", drawn_until(&flow));
    let why = flow.diagnosis.unwrap_err();
    assert!(why == Unexplained::OneDirection && why.to_string().contains("without src or dst"), "{why}");
    // Acknowledgements alone carry no data.
    assert!(of_server(false).unwrap_err().to_string().contains(" packets 0 are of another protocol"));
}

#[test]
fn largest_connection_comes_first_and_of_many_nothing_is_kept_for_a_diagnosis() {
    let small = |client_port| Download { seconds: 0.5, client_port, ..DOWNLOAD }.packets();
    let mut packets = [(40_001..40_300).flat_map(small).collect(), DOWNLOAD.packets()].concat();
    packets.sort_by(|a, b| a.at.total_cmp(&b.at));
    let file = FORMAT.capture(&packets);
    let capture = Capture::read(&file[..], Path::new("c.pcap"), Keep::Diagnosis).unwrap();
    assert_eq!((capture.flows.len(), capture.flows[0].to.port()), (300, 40_000));
    for flow in capture.flows {
        assert!(flow.from.port() == 80 && flow.diagnosis.is_ok() && flow.readings.is_empty(), "{flow:?}");
    }
}

#[test]
fn kept_readings_are_bounded_and_cover_the_whole_time() {
    let mut kept = KeptReadings::default();
    for number in 0..1_000_000 {
        kept.push(INTERVAL * number, Reading { moved: Bytes::new(number.into()), ..Reading::default() });
    }
    let readings = kept.readings;
    assert!((MAX_READINGS / 2..MAX_READINGS).contains(&readings.len()), "{}", readings.len());
    assert_eq!((readings[0].0, readings[readings.len() - 1].0), (Duration::ZERO, INTERVAL * 999_999));
}

/// Returns the largest time in the charts of a connection.
fn drawn_until(flow: &Flow) -> f64 {
    let sheet = crate::figures::of_records(&[("c".to_owned(), flow.record())]);
    let points = sheet.charts.iter().flat_map(|chart| &chart.series).flat_map(|series| &series.points);
    points.map(|point| point.x).fold(0.0, f64::max)
}

/// Returns what a receiver captures that merges packets of up to 64 KiB (GRO).
fn merged(packets: &[Packet]) -> Vec<Packet> {
    let (mut merged, answers): (Vec<_>, Vec<_>) =
        packets.iter().cloned().partition(|packet| packet.payload > 0);
    let together = |packets: &[Packet]| Packet {
        sequence: packets[0].sequence,
        payload: packets.len() * MSS,
        ..packets[packets.len() - 1].clone()
    };
    merged = merged.chunks(44).map(together).collect();
    merged.extend_from_slice(&answers[..3]);
    merged.extend(answers[3..].chunks(44).map(|answers| answers[answers.len() - 1].clone()));
    merged.sort_by(|a, b| a.at.total_cmp(&b.at));
    merged
}

#[test]
fn merged_packets_and_leaps_of_the_clock_change_neither_diagnosis_nor_charts() {
    let whole = Download { at_sender: false, ..SMALL_WINDOW }.packets();
    let later = |range: std::ops::Range<usize>, seconds: f64| {
        let mut packets = whole.clone();
        packets[range].iter_mut().for_each(|packet| packet.at += seconds);
        packets
    };
    let (half, end) = (whole.len() / 2, whole.len());
    // The clock is set back by an hour, and forward by four months; a timestamp is damaged.
    for (packets, leaps) in [
        (merged(&whole), false),
        (later(0..half, 3600.0), true),
        (later(half..end, 1e7), true),
        (later(half..half + 1, 3e8), true),
        (later(half..half + 1, 0.4), false),
    ] {
        let capture = read(&FORMAT.capture(&packets)).unwrap();
        assert_eq!(capture.damage.is_some(), leaps, "{:?}", capture.damage);
        let flow = &capture.flows[0];
        assert_eq!(flow.diagnosis.as_ref().unwrap().finding.limit, LimitedBy::ReceiveWindow, "{flow:?}");
        assert!((5.5..6.5).contains(&drawn_until(flow)), "{}", drawn_until(flow));
    }
}

#[test]
fn damaged_and_other_files_are_refused_with_reason_or_read_up_to_the_damage() {
    for pcapng in [false, true] {
        let whole = Format { pcapng, ..FORMAT }.capture(&DOWNLOAD.packets());
        let cut = read(&whole[..whole.len() - 30]).unwrap();
        assert!(cut.damage.as_ref().unwrap().contains("cut off after packet "), "{cut:?}");
        assert!(cut.flows[0].diagnosis.is_ok());
    }
    let within_headers = read(&Format { snap: 40, ..FORMAT }.capture(&DOWNLOAD.handshake())).unwrap_err();
    let reason = "of 3 packets 3 are of another protocol, or cut within their headers";
    assert!(within_headers.to_string().contains(reason), "{within_headers}");
    let wifi = Format { link: 105, ..FORMAT }.capture(&DOWNLOAD.handshake());
    assert!(read(&wifi).unwrap_err().to_string().contains("are of link type 105, which"));
    for (file, word) in [(&b""[..], "empty"), (b"{\"record\":\"longhaul\"}", "neither as pcap nor as pcapng")]
    {
        let error = read(file).unwrap_err();
        assert!(error.kind == FailureKind::Data && error.to_string().contains(word), "{error}");
    }
}
