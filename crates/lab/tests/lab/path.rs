//! The path has the requested properties, measured with real sockets over the real kernel.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{FULL, lab, path, server_addresses, udp};
use longhaul_core::units::{Bytes, Rate};
use longhaul_lab::{Lab, PathSpec, QueueLimit};

#[test]
fn round_trip_time() {
    let Some(lab) = lab(path("100Mbit", 40)) else { return };
    let (client, server) = udp(&lab);
    let echo = thread::spawn(move || {
        let mut packet = [0; 64];
        while let Ok((len, from)) = server.recv_from(&mut packet) {
            server.send_to(&packet[..len], from).unwrap();
        }
    });
    let mut times: Vec<Duration> = (0..15)
        .map(|_| {
            let sent = Instant::now();
            client.send(b"ping").unwrap();
            client.recv(&mut [0; 64]).unwrap();
            sent.elapsed()
        })
        .collect();
    times.sort();
    echo.join().unwrap();
    assert!(times[0] >= Duration::from_millis(40), "faster than light: {times:?}");
    assert!(times[times.len() / 2] < Duration::from_millis(44), "{times:?}");
}

#[test]
fn rate() {
    let Some(lab) = lab(PathSpec { queue: Some(QueueLimit::Packets(2000)), ..path("20Mbit", 10) }) else {
        return;
    };
    let (client, server) = udp(&lab);
    // A burst that fits the queue leaves at the line rate. Packets are numbered: a busy receiver may miss some.
    for number in 0..1200_u32 {
        let mut packet = [0; FULL];
        packet[..4].copy_from_slice(&number.to_be_bytes());
        client.send(&packet).unwrap();
    }
    let mut arrivals = Vec::new();
    let mut packet = [0; FULL];
    while server.recv(&mut packet).is_ok() {
        let number = u32::from_be_bytes([packet[0], packet[1], packet[2], packet[3]]);
        arrivals.push((number, Instant::now()));
    }
    assert!(arrivals.is_sorted_by_key(|(number, _)| *number), "order");
    // Skips the first hundred, which queued while the burst was sent.
    let (first, begun) = *arrivals.iter().find(|(number, _)| *number >= 100).unwrap();
    let (last, ended) = arrivals[arrivals.len() - 1];
    let measured = Rate::over(Bytes::new(u64::from(last - first) * 1500), ended - begun).as_bits_per_sec();
    assert!((19_400_000..20_600_000).contains(&measured), "{measured} bit/s");
}

#[test]
fn queue_depth() {
    for (queue, holds) in [("100packets", 100), ("90000", 60)] {
        let Some(lab) = lab(PathSpec { queue: queue.parse().ok(), ..path("2Mbit", 4) }) else { return };
        let (client, server) = udp(&lab);
        let start = Instant::now();
        for _ in 0..1000 {
            client.send(&[0; FULL]).unwrap();
        }
        // A packet takes 6 ms; some leave during the burst.
        let left = start.elapsed().as_millis() as u64 / 6 + 3;
        let mut survivors = 0;
        while server.recv(&mut [0; FULL]).is_ok() {
            survivors += 1;
        }
        assert!((holds..=holds + left).contains(&survivors), "{queue}: {survivors}, {left} left");
        let stats = lab.stats().unwrap().client_to_server;
        assert_eq!((stats.packets, stats.dropped_queue), (survivors, 1000 - survivors));
    }
}

#[test]
fn loss_share_and_conservation() {
    let lost = |seed| {
        let lab = lab(PathSpec { loss: 0.05, seed, ..PathSpec::default() })?;
        let (client, _server) = udp(&lab);
        for _ in 0..20_000 {
            client.send(&[0; 100]).unwrap();
        }
        let stats = settled(&lab);
        assert_eq!(stats.packets + stats.dropped_loss, 20_000);
        assert_eq!((stats.dropped_queue, stats.dropped_overflow), (0, 0));
        assert_eq!(stats.bytes, Bytes::new(stats.packets * 128));
        Some(stats.dropped_loss)
    };
    let Some(first) = lost(1) else { return };
    // Four standard deviations of a binomial distribution.
    assert!(first.abs_diff(1000) < 124, "{first}");
    assert_eq!(lost(1), Some(first), "the same seed");
    assert_ne!(lost(2), Some(first), "another seed");
}

/// Returns the statistics once they no longer change.
fn settled(lab: &Lab) -> longhaul_lab::DirectionStats {
    let mut before = lab.stats().unwrap().client_to_server;
    loop {
        thread::sleep(Duration::from_millis(50));
        let now = lab.stats().unwrap().client_to_server;
        if now == before {
            return now;
        }
        before = now;
    }
}

/// Super-packets with losses and full queues: TCP reassembles the content.
#[test]
fn tcp_content_survives_split_super_packets() {
    let spec = PathSpec { loss: 0.0003, queue: Some(QueueLimit::Packets(40)), ..path("2Gbit", 4) };
    let Some(lab) = lab(spec) else { return };
    for address in server_addresses(&lab) {
        let before = lab.stats().unwrap().client_to_server;
        let listener = lab.server().run(move || TcpListener::bind(address).unwrap()).unwrap();
        let mut sender = lab.client().run(move || TcpStream::connect(address).unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let content: Vec<u8> =
            (0..16_u32 << 18).flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
        let received = thread::scope(|scope| {
            scope.spawn(|| {
                sender.write_all(&content).unwrap();
                drop(sender);
            });
            let mut received = Vec::new();
            receiver.read_to_end(&mut received).unwrap();
            received
        });
        assert!(received == content, "the content differs");
        let after = lab.stats().unwrap().client_to_server;
        assert!(after.dropped_loss > before.dropped_loss, "nothing was lost");
        assert!(after.dropped_queue > before.dropped_queue, "no queue was full");
        let mean = (after.bytes.get() - before.bytes.get()) / (after.packets - before.packets);
        assert!(
            (1000..=1500).contains(&mean),
            "packets of the wire are counted, not super-packets: {mean} bytes"
        );
        assert_eq!(after.dropped_overflow, 0);
    }
}

#[test]
fn hosts_without_delay_are_joined_directly() {
    let Some(lab) = lab(PathSpec::default()) else { return };
    let (client, server) = udp(&lab);
    client.send(&[7; 100]).unwrap();
    let mut packet = [0; 200];
    assert_eq!(server.recv(&mut packet).unwrap(), 100);
    assert!(lab.stats().unwrap().client_to_server.packets >= 1);
}

#[test]
fn background_traffic_shares_the_path_and_reaches_no_host() {
    let spec = PathSpec { background: "50%".parse().unwrap(), ..path("100Mbit", 4) };
    let Some(lab) = lab(spec) else { return };
    let (client, server) = udp(&lab);
    let start = Instant::now();
    client.send(b"first").unwrap();
    thread::sleep(Duration::from_millis(400));
    client.send(b"last").unwrap();
    let sent = start.elapsed();
    let mut packet = [0; FULL];
    assert_eq!((server.recv(&mut packet).unwrap(), server.recv(&mut packet).unwrap()), (5, 4));
    assert!(server.recv(&mut packet).is_err(), "nothing else comes");
    let stats = lab.stats().unwrap();
    let offered = stats.client_to_server.background.offered as f64;
    let mean = sent.as_secs_f64() * 50e6 / 12_000.0;
    assert!((offered - mean).abs() < 4.0 * mean.sqrt() + 100.0, "{offered}, not {mean}");
    assert_eq!((stats.client_to_server.background.lost, stats.client_to_server.packets), (0, 2));
    assert_eq!(stats.server_to_client.background.offered, 0, "no packet has begun that direction");
    assert!(stats.to_string().contains("0 of them dropped (0.00 %)"), "{stats}");
}

#[test]
fn acknowledgements_depart_together() {
    let spec = PathSpec { ack_compression: "100ms".parse().unwrap(), ..path("100Mbit", 2) };
    let Some(lab) = lab(spec) else { return };
    let (client, server) = udp(&lab);
    // Packets with the spacing and size of acknowledgements.
    let sender = thread::spawn(move || {
        for _ in 0..60 {
            client.send(&[0; 24]).unwrap();
            thread::sleep(Duration::from_millis(5));
        }
    });
    let mut arrivals = Vec::new();
    while server.recv(&mut [0; 64]).is_ok() {
        arrivals.push(Instant::now());
    }
    sender.join().unwrap();
    assert_eq!(arrivals.len(), 60);
    let clumps = 1 + arrivals.windows(2).filter(|pair| pair[1] - pair[0] > Duration::from_millis(50)).count();
    assert!((3..=6).contains(&clumps), "{clumps} clumps in 300 ms and a little more");
}
