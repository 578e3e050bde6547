//! Held links between real hosts: damage, directions, schedules, pairs of hosts.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{FULL, path, udp};
use crate::disciplines::round_trip;
use crate::measuring::{measure_while_keeping_up, within};
use longhaul_lab::{Lab, PathSpec, QueueLimit};

/// Probes of which the fastest counts: the test's threads may wait for a CPU, which the path's counters do not show.
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
    let gap = Duration::from_micros(500);
    // Packets of the hosts themselves, as neighbour discovery.
    let own = 3.0;
    let spec = PathSpec { duplicate: "10%".parse().unwrap(), ..path("100Mbit", 4) };
    measure_while_keeping_up("duplicated packets", &spec, |lab| {
        let arrived = numbered(lab, 1000, gap).len() as f64;
        let counted = 1000.0 + lab.stats().unwrap().client_to_server.duplicated as f64;
        within("packets with those sent twice", arrived, 1050.0..=1159.0)?;
        within("packets and those counted as sent twice", counted, arrived - own..=arrived + own)
    });
    let spec = PathSpec { corrupt: "10%".parse().unwrap(), duplicate: "0".parse().unwrap(), ..spec };
    // The receiving kernel detects the damage by the checksum.
    measure_while_keeping_up("corrupted packets", &spec, |lab| {
        let arrived = numbered(lab, 1000, gap).len() as f64;
        let counted = 1000.0 - lab.stats().unwrap().client_to_server.corrupted as f64;
        within("undamaged packets", arrived, 840.0..=949.0)?;
        within("packets not counted as damaged", counted, arrived - own..=arrived + own)
    });
    let reorder = "10%,20ms".parse().unwrap();
    let spec = PathSpec { corrupt: "0".parse().unwrap(), reorder, ..spec };
    measure_while_keeping_up("reordered packets", &spec, |lab| {
        let arrived = numbered(lab, 1000, gap);
        let late = arrived.windows(2).filter(|pair| pair[1] < pair[0]).count();
        within("packets", arrived.len() as f64, 1000.0..=1000.0)?;
        let counted = lab.stats().unwrap().client_to_server.reordered as f64;
        within("packets that another overtook", late as f64, 50.0..=149.0)?;
        within("packets counted as reordered", counted, 50.0..=149.0)
    });
}

#[test]
fn directions_differ() {
    let spec = PathSpec { up: "rate=2Mbit; delay=30ms".parse().unwrap(), ..path("100Mbit", 20) };
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
fn pairs_of_hosts_have_their_own_round_trips_through_one_queue() {
    let spec = PathSpec { pairs: "10ms,60ms".parse().unwrap(), ..path("10Mbit", 0) };
    measure_while_keeping_up("pairs of hosts", &spec, |lab| {
        for (pair, expected) in [(0, 10.0), (1, 60.0)] {
            let address = SocketAddr::from((Ipv4Addr::new(198, 18, pair, 2), 5000));
            let server = lab.server().run(move || UdpSocket::bind(address).unwrap()).unwrap();
            let client = lab.client().run(move || UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
            client.connect(address).unwrap();
            assert_eq!(client.local_addr().unwrap().ip(), Ipv4Addr::new(198, 18, pair, 1));
            let echo = thread::spawn(move || {
                let mut packet = [0; 64];
                for _ in 0..TRIES {
                    let (len, from) = server.recv_from(&mut packet).unwrap();
                    server.send_to(&packet[..len], from).unwrap();
                }
            });
            let trip = (0..TRIES).map(|number| round_trip(&client, number).unwrap()).min().unwrap();
            echo.join().unwrap();
            within("round trip in ms", trip.as_secs_f64() * 1e3, expected..=expected + 6.0)?;
        }
        Ok(())
    });
}

/// Sends packets of one pair at full speed until `stop`; returns the received bits per second.
fn arrives(lab: &Lab, pair: u8, stop: Instant) -> thread::JoinHandle<f64> {
    let address = SocketAddr::from((Ipv4Addr::new(198, 18, pair, 2), 5000));
    let server = lab.server().run(move || UdpSocket::bind(address).unwrap()).unwrap();
    let client = lab.client().run(move || UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
    server.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    thread::spawn(move || {
        thread::spawn(move || {
            // 12 Mbit/s exceeds the rate of either bottleneck.
            while Instant::now() < stop {
                let _ = client.send_to(&[0; FULL], address);
                thread::sleep(Duration::from_micros(900));
            }
        });
        let (begun, mut bytes) = (Instant::now(), 0);
        while Instant::now() < stop && server.recv(&mut [0; FULL]).is_ok() {
            bytes += 1500;
        }
        f64::from(bytes) * 8.0 / begun.elapsed().as_secs_f64()
    })
}

#[test]
fn a_parking_lot_has_two_bottlenecks() {
    let queue = Some(QueueLimit::Packets(20));
    let pairs = "4ms,4ms@first,4ms@second".parse().unwrap();
    let spec = PathSpec { queue, pairs, second: "rate=4Mbit".parse().unwrap(), ..path("8Mbit", 0) };
    measure_while_keeping_up("a parking lot", &spec, |lab| {
        let stop = Instant::now() + Duration::from_secs(3);
        let running: Vec<_> = (0..3).map(|pair| arrives(lab, pair, stop)).collect();
        let rates: Vec<f64> = running.into_iter().map(|one| one.join().unwrap() / 1e6).collect();
        let (both, first, second) = (rates[0], rates[1], rates[2]);
        // Each pair offers more than 8 Mbit/s: the two pairs that cross the first bottleneck get about half each.
        within("Mbit/s of the pair at the first", first, 2.5..=5.5)?;
        within("Mbit/s of the pairs at the second, which has 4", both + second, 3.3..=4.2)?;
        // Packets of the pair that crosses both bottlenecks are dropped at each.
        within("Mbit/s of the pair at both over that at the first", both / first, 0.0..=0.6)
    });
}
