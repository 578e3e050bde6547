//! Held links between real hosts: damage, directions, schedules, pairs of hosts.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{FULL, path, udp, with};
use crate::measuring::{echo_time, measure_while_keeping_up, within};
use longhaul_lab::{Lab, PathSpec, QueueLimit};

/// Probes of which the fastest counts: the test's threads may wait for a CPU, which the path's
/// counters do not show.
const TRIES: u32 = 5;

/// Sends numbered packets to the server; returns the numbers in order of arrival.
fn numbered(lab: &Lab, count: u32, gap: Duration) -> Vec<u32> {
    let (client, server) = udp(lab);
    let sender = thread::spawn(move || {
        for number in 0..count {
            let mut packet = [7; 200];
            packet[..4].copy_from_slice(&number.to_be_bytes());
            client.send(&packet).unwrap();
            thread::sleep(gap);
        }
    });
    let (mut arrived, mut packet) = (Vec::new(), [0; FULL]);
    while let Ok(len) = server.recv(&mut packet) {
        assert!(len == 200 && packet[4..200].iter().all(|byte| *byte == 7), "content");
        arrived.push(u32::from_be_bytes([packet[0], packet[1], packet[2], packet[3]]));
    }
    sender.join().unwrap();
    arrived
}

#[test]
fn packets_are_duplicated_corrupted_and_reordered() {
    const SENT: f64 = 1000.0;
    // Packets of the hosts themselves, as neighbour discovery.
    let own = 3.0;
    let plain = path("100Mbit", 4);
    for (name, spec) in [
        ("duplicated", with(plain.clone(), "duplicate=10%")),
        // The receiving kernel detects the damage by the checksum.
        ("corrupted", with(plain.clone(), "corrupt=10%")),
        ("reordered", with(plain, "reorder=10%,20ms")),
    ] {
        measure_while_keeping_up(name, &spec, |lab| {
            let arrived = numbered(lab, SENT as u32, Duration::from_micros(500));
            let overtaken = arrived.windows(2).filter(|pair| pair[1] < pair[0]).count() as f64;
            let stats = lab.stats().unwrap().client_to_server.impaired;
            let counts = [stats.duplicated, stats.corrupted, stats.reordered].map(|count| count as f64);
            let changed = counts.iter().sum::<f64>();
            within(&format!("packets counted as {name}"), changed, 50.0..=159.0)?;
            let expected = SENT + counts[0] - counts[1];
            within("packets that arrived", arrived.len() as f64, expected - own..=expected + own)?;
            let most = if name == "reordered" { 50.0..=149.0 } else { 0.0..=0.0 };
            within("packets that another overtook", overtaken, most)
        });
    }
}

#[test]
fn directions_differ() {
    let spec = with(path("100Mbit", 20), "up=rate=2Mbit;delay=30ms");
    assert_eq!(spec.round_trip(), Duration::from_millis(40));
    measure_while_keeping_up("directions that differ", &spec, |lab| {
        let (client, server) = udp(lab);
        let (mut there, mut back) = (Duration::MAX, Duration::MAX);
        for _ in 0..TRIES {
            let start = Instant::now();
            client.send(&[0; FULL]).unwrap();
            let mut packet = [0; FULL];
            let (_, from) = server.recv_from(&mut packet).unwrap();
            let arrived = start.elapsed();
            server.send_to(&packet, from).unwrap();
            client.recv(&mut packet).unwrap();
            (there, back) = (there.min(arrived), back.min(start.elapsed() - arrived));
        }
        // 1500 bytes take 6 ms at 2 Mbit/s.
        within("ms there", there.as_secs_f64() * 1e3, 36.0..=45.0)?;
        within("ms back", back.as_secs_f64() * 1e3, 10.0..=16.0)
    });
}

#[test]
fn a_rate_follows_its_schedule() {
    let mut spec = PathSpec { queue: Some(QueueLimit::Packets(1000)), ..path("12Mbit", 2) };
    spec.set_schedule("12Mbit@0s,1.2Mbit@100ms".parse().unwrap());
    measure_while_keeping_up("a rate that follows its schedule", &spec, |lab| {
        let (client, server) = udp(lab);
        let start = Instant::now();
        for _ in 0..120 {
            client.send(&[0; FULL]).unwrap();
        }
        let mut arrivals = Vec::new();
        while server.recv(&mut [0; FULL]).is_ok() {
            arrivals.push(start.elapsed().as_secs_f64() * 1e3);
        }
        // One packet per millisecond for 100 ms, then one per 10 ms.
        within("packets", arrivals.len() as f64, 120.0..=120.0)?;
        within("ms to the packet before the change", arrivals[96], 95.0..=130.0)?;
        within("ms to the last packet", arrivals[119], 290.0..=340.0)
    });
}

#[test]
fn pairs_of_hosts_have_their_own_round_trips_and_bottlenecks() {
    // A packet of 32 bytes takes 12.8 ms at the second bottleneck, which only the first pair
    // crosses.
    let spec = with(path("10Mbit", 0), "pairs=10ms,60ms@first; second=rate=20kbit");
    measure_while_keeping_up("pairs of hosts", &spec, |lab| {
        for (pair, expected) in [(0, 35.6), (1, 60.0)] {
            let address = SocketAddr::from((Ipv4Addr::new(198, 18, pair, 2), 5000));
            let server = lab.server().run(move || UdpSocket::bind(address).unwrap()).unwrap();
            let client = lab.client().run(move || UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
            client.connect(address).unwrap();
            assert_eq!(client.local_addr().unwrap().ip(), Ipv4Addr::new(198, 18, pair, 1));
            let trip = (0..TRIES).map(|_| echo_time(&client, &server)).min().unwrap();
            within("round trip in ms", trip.as_secs_f64() * 1e3, expected..=expected + 6.0)?;
        }
        Ok(())
    });
}
