//! Queue disciplines and ECN under the load of two bulk connections.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{path, udp, with};
use crate::measuring::{Bulk, measure_while_keeping_up, within};
use longhaul_lab::{Lab, PathSpec, PathStats};

/// Effects of two bulk connections on the path.
struct Load {
    stats: PathStats,
    /// Median RTT of small packets beside the bulk connections, in ms.
    round_trip: f64,
    /// Received Mbit/s.
    goodput: f64,
}

fn load(lab: &Lab) -> Load {
    let (client, server) = udp(lab);
    client.set_read_timeout(Some(Duration::from_millis(900))).unwrap();
    server.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut packet = [0; 64];
            while !stop.load(Ordering::Relaxed) {
                if let Ok((len, from)) = server.recv_from(&mut packet) {
                    let _ = server.send_to(&packet[..len], from);
                }
            }
        });
        let load = Bulk { streams: 2, pace: None, window: None }.send_while(lab, |received| {
            thread::sleep(Duration::from_secs(2));
            let (before, begun) = (received.load(Ordering::Relaxed), Instant::now());
            let mut trips: Vec<_> = (0..20).filter_map(|number| round_trip(&client, number)).collect();
            let bits = (received.load(Ordering::Relaxed) - before) as f64 * 8.0;
            let goodput = bits / begun.elapsed().as_secs_f64() / 1e6;
            trips.sort();
            let round_trip =
                trips.get(trips.len() / 2).map_or(f64::INFINITY, |trip| trip.as_secs_f64() * 1e3);
            Load { stats: lab.stats().unwrap(), round_trip, goodput }
        });
        stop.store(true, Ordering::Relaxed);
        load
    })
}

/// Sends a packet that is echoed, and pauses.
fn round_trip(client: &UdpSocket, number: u32) -> Option<Duration> {
    let sent = Instant::now();
    client.send(&number.to_be_bytes()).unwrap();
    let mut packet = [0; 64];
    loop {
        let len = client.recv(&mut packet).ok()?;
        if packet[..len] == number.to_be_bytes() {
            let trip = sent.elapsed();
            thread::sleep(Duration::from_millis(50));
            return Some(trip);
        }
    }
}

/// A path of 20 Mbit/s and 20 ms with a queue of one second.
fn deep(aqm: &str) -> PathSpec {
    with(path("20Mbit", 20), &format!("queue=1700packets; aqm={aqm}; hosts=tuned"))
}

/// A packet takes 0.6 ms, and a full queue of 100 packets 60 ms.
#[test]
fn disciplines_keep_the_queue_short_and_the_line_busy() {
    let (any, some) = (0.0..=f64::INFINITY, 1.0..=2000.0);
    let short = |aqm| with(deep(aqm), "queue=100packets; hosts=stock");
    for (name, spec, round_trips, goodputs, drops, marks) in [
        ("codel", deep("codel"), 20.0..=60.0, 15.0..=20.0, some.clone(), any.clone()),
        // Small flows pass bulk ones.
        ("fq_codel", deep("fq_codel"), 20.0..=26.0, 15.0..=20.0, any.clone(), any.clone()),
        // Only packets without TCP data are not ECN-capable.
        ("ECN", with(deep("codel"), "ecn=yes"), any.clone(), 15.0..=20.0, 0.0..=2.0, 5.0..=5000.0),
        // A standing queue.
        ("droptail", deep("droptail"), 100.0..=f64::INFINITY, 15.0..=20.0, any.clone(), any.clone()),
        ("droptail, 100 packets", short("droptail"), 50.0..=81.0, 15.0..=20.0, some.clone(), any.clone()),
        ("red, 100 packets", short("red"), 20.0..=45.0, 10.5..=20.0, some, any),
    ] {
        measure_while_keeping_up(name, &spec, |lab| {
            let Load { stats, round_trip, goodput } = load(lab);
            let up = stats.client_to_server;
            within("round trip in ms", round_trip, round_trips.clone())?;
            within("goodput in Mbit/s", goodput, goodputs.clone())?;
            within("drops", up.dropped_queue as f64, drops.clone())?;
            within("marked packets", up.marked as f64, marks.clone())
        });
    }
}
