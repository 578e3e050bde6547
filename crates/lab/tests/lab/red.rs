//! RED between real TCP hosts: shorter queues at full goodput.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{bulk, lab, path, udp};
use longhaul_lab::{Lab, PathSpec, QueueLimit};

const RTT: Duration = Duration::from_millis(20);

/// A path under TCP load.
#[derive(Debug)]
struct Loaded {
    /// Mean queueing time of a packet in seconds.
    wait: f64,
    /// Received bits per second.
    goodput: f64,
    dropped: u64,
}

/// Loads the path to the server with two connections, and measures after slow start.
fn load(lab: &Lab) -> Loaded {
    let (received, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let (client, server) = udp(lab);
    client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    thread::scope(|scope| {
        let sockets = bulk(lab, scope, &received, &stop);
        scope.spawn(|| echo(&server, &stop));
        thread::sleep(Duration::from_secs(1));
        let (before, begun) = (received.load(Ordering::Relaxed), Instant::now());
        let trips: Vec<f64> = (0..u32::MAX)
            .take_while(|_| begun.elapsed() < Duration::from_secs(4))
            .filter_map(|number| round_trip(&client, number))
            .collect();
        let goodput =
            (received.load(Ordering::Relaxed) - before) as f64 * 8.0 / begun.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        for socket in sockets {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
        let wait = trips.iter().sum::<f64>() / trips.len() as f64 - RTT.as_secs_f64();
        Loaded { wait, goodput, dropped: lab.stats().unwrap().client_to_server.dropped_queue }
    })
}

fn echo(socket: &UdpSocket, stop: &AtomicBool) {
    let mut packet = [0; 4];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((len, from)) = socket.recv_from(&mut packet) {
            socket.send_to(&packet[..len], from).unwrap();
        }
    }
}

/// Returns a probe's RTT in seconds; `None` if it is lost.
fn round_trip(socket: &UdpSocket, number: u32) -> Option<f64> {
    let (mut packet, sent) = ([0; 4], Instant::now());
    socket.send(&number.to_be_bytes()).unwrap();
    while socket.recv(&mut packet).is_ok() {
        if packet == number.to_be_bytes() {
            return Some(sent.elapsed().as_secs_f64());
        }
    }
    None
}

#[test]
fn red_keeps_the_mean_queue_lower_than_droptail() {
    let loaded = |aqm: &str| {
        let queue = Some(QueueLimit::Packets(100));
        let spec = PathSpec { aqm: aqm.parse().unwrap(), queue, ..path("20Mbit", 20) };
        Some(load(&lab(spec)?))
    };
    let (Some(late), Some(early)) = (loaded("droptail"), loaded("red")) else { return };
    println!("DropTail: {late:?}; RED: {early:?}");
    // A packet takes 0.6 ms, and a full queue 60 ms.
    assert!(late.wait > 0.02, "DropTail's queue fills: {late:?}");
    assert!(early.wait < late.wait / 2.0, "RED: {early:?}; DropTail: {late:?}");
    assert!(early.dropped > 0 && late.dropped > 0, "RED: {early:?}; DropTail: {late:?}");
    assert!(early.goodput > 0.7 * late.goodput, "RED: {early:?}; DropTail: {late:?}");
}
