//! Cross flows and acknowledgements at their times.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::{first_packet, path, udp, with};
use crate::measuring::{measure_while_keeping_up, within};

#[test]
fn cross_flows_start_and_end_on_time() {
    let spec = with(path("50Mbit", 10), "cross_flows=2@400ms..900ms");
    measure_while_keeping_up("cross flows of half a second", &spec, |lab| {
        let pause = |ms| thread::sleep(Duration::from_millis(ms));
        let packets = || lab.stats().unwrap().server_to_client.packets as f64;
        pause(600);
        within("packets before the time begins", packets(), 0.0..=0.0)?;
        first_packet(lab);
        pause(200);
        let early = lab.stats().unwrap().cross_flows.bytes;
        within("bytes before the start", early.get() as f64, 0.0..=0.0)?;
        pause(1000);
        let after = lab.stats().unwrap();
        within("bytes", after.cross_flows.bytes.get() as f64, 100_000.0..=f64::INFINITY)?;
        within("seconds", after.cross_flows.time.as_secs_f64(), 0.49..=0.7)?;
        within("failures", after.cross_flows.failed as f64, 0.0..=0.0)?;
        pause(200);
        let before = after.server_to_client.packets as f64;
        within("packets after the end", packets() - before, 0.0..=0.0)
    });
}

#[test]
fn acknowledgements_depart_together() {
    let spec = with(path("100Mbit", 2), "ack_compression=100ms");
    measure_while_keeping_up("compressed acknowledgements", &spec, |lab| {
        let (client, server) = udp(lab);
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
        within("packets", arrivals.len() as f64, 60.0..=60.0)?;
        let pauses = arrivals.windows(2).filter(|pair| pair[1] - pair[0] > Duration::from_millis(50)).count();
        // In 300 ms and a little more.
        within("clumps", 1.0 + pauses as f64, 3.0..=6.0)
    });
}
