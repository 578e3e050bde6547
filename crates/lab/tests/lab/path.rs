//! What the path carries, drops and counts: facts that no busy machine changes.

use std::io::{Read, Write};
use std::iter;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::common::{FULL, lab, observed, path, udp, with};
use longhaul_core::units::Bytes;
use longhaul_lab::{DirectionStats, Lab, ObservationOptions, PathSpec};

/// Returns the statistics to the server once `packets` are counted, or after a minute.
fn settled(lab: &Lab, packets: u64) -> DirectionStats {
    for _ in 0..1200 {
        let stats = lab.stats().unwrap().client_to_server;
        if stats.packets + stats.dropped_loss + stats.dropped_queue == packets {
            return stats;
        }
        thread::sleep(Duration::from_millis(50));
    }
    lab.stats().unwrap().client_to_server
}

#[test]
fn every_packet_arrives_or_is_counted_as_lost() {
    let lost = |seed| {
        let lab = lab(with(PathSpec::default(), &format!("loss=5%; seed={seed}")))?;
        let (client, _server) = udp(&lab);
        (0..20_000).for_each(|_| assert_eq!(client.send(&[0; 100]).unwrap(), 100));
        let stats = settled(&lab, 20_000);
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

    for (queue, holds) in [("100packets", 100), ("90000", 60)] {
        let Some(lab) = lab(PathSpec { queue: queue.parse().ok(), ..path("2Mbit", 4) }) else { return };
        let (client, server) = udp(&lab);
        (0..1000).for_each(|_| assert_eq!(client.send(&[0; FULL]).unwrap(), FULL));
        let stats = settled(&lab, 1000);
        let arrived = iter::from_fn(|| server.recv(&mut [0; FULL]).ok()).count() as u64;
        assert_eq!((stats.packets, stats.dropped_queue), (arrived, 1000 - arrived), "{queue}");
        assert!((holds..1000).contains(&arrived), "{queue}: {arrived}");
    }
}

/// Super-packets with losses and full queues: each packet of the wire may be lost, and TCP
/// reassembles the content.
#[test]
fn tcp_content_survives_split_super_packets() {
    // A queue of 12 packets overflows in any case: random losses of 0.2 % alone let windows grow to
    // 27.
    let spec = with(path("200Mbit", 4), "loss=0.2%; queue=12packets");
    let Some(lab) = lab(spec) else { return };
    let server = lab.server();
    let addresses = [Some(server.ipv4().into()), server.ipv6().map(Into::into)];
    for address in addresses.into_iter().flatten().map(|ip| SocketAddr::new(ip, 4000)) {
        let before = lab.stats().unwrap().client_to_server;
        let listener = lab.server().run(move || TcpListener::bind(address).unwrap()).unwrap();
        let mut sender = lab.client().run(move || TcpStream::connect(address).unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let content: Vec<u8> =
            (0..4_u32 << 20).flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
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
        assert!(after.dropped_queue > before.dropped_queue, "no queue was full");
        let (packets, lost) = (after.packets - before.packets, after.dropped_loss - before.dropped_loss);
        let expected = 0.002 * (packets + lost) as f64;
        // Four standard deviations of a Poisson distribution.
        assert!((lost as f64 - expected).abs() < 4.0 * expected.sqrt(), "{lost} lost, not {expected}");
        let mean = (after.bytes.get() - before.bytes.get()) / packets;
        assert!((1000..=1500).contains(&mean), "packets of the wire, not super-packets: {mean} bytes");
        assert_eq!(after.dropped_overflow, 0);
    }
}

#[test]
fn background_traffic_reaches_no_host_and_a_draining_queue_is_not_shown_as_empty() {
    let spec = with(path("100Mbit", 4), "background=50%");
    let Some(lab) = lab(spec) else { return };
    let (client, server) = udp(&lab);
    client.send(b"first").unwrap();
    thread::sleep(Duration::from_millis(400));
    client.send(b"last").unwrap();
    let mut packet = [0; FULL];
    assert_eq!((server.recv(&mut packet).unwrap(), server.recv(&mut packet).unwrap()), (5, 4));
    assert!(server.recv(&mut packet).is_err(), "nothing else comes");
    let stats = lab.stats().unwrap();
    let background = stats.client_to_server.background;
    // At least 0.4 s of 50 Mbit/s, less four standard deviations of a Poisson distribution.
    assert!(background.offered > 1500, "{stats}");
    assert_eq!((background.lost, stats.client_to_server.packets), (0, 2));
    assert_eq!(stats.server_to_client.background.offered, 0, "no packet has begun that direction");
    assert!(stats.to_string().contains("0 of them dropped (0.00 %)"), "{stats}");

    // The first packets of a burst depart when no more arrive, one per 6 ms.
    let spec = with(path("2Mbit", 2), "aqm=codel");
    let watch = ObservationOptions { flows_and_queues: true, ..ObservationOptions::default() };
    let Some(lab) = observed(spec, &watch) else { return };
    let (client, server) = udp(&lab);
    (0..20).for_each(|_| assert_eq!(client.send(&[0; FULL]).unwrap(), FULL));
    while server.recv(&mut [0; FULL]).is_ok() {}
    let [to_server, _] = &lab.evidence().unwrap()[..] else { panic!("two directions") };
    let left: Vec<_> = to_server.queue.iter().filter(|sample| !sample.sojourn.is_zero()).collect();
    assert!(left.len() > 5, "{left:?}");
    assert!(left.iter().all(|sample| sample.bytes.get() >= 1500 && sample.packets > 0), "{left:?}");
}
