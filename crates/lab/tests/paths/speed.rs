//! Paths at rates that need super-packets, measured with bulk TCP between tuned hosts.
//!
//! On a busy machine the emulator is late and reports so; the measurement is then repeated.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{path, udp, with};
use crate::measuring::{Bulk, echo_time, measure_while_keeping_up, within};
use longhaul_core::units::{Bytes, Rate};
use longhaul_lab::Lab;

const RATE: f64 = 2e9;
/// TCP payload per 1500-byte packet: 20 bytes of IP header and 32 of TCP header with timestamps.
const PAYLOAD_SHARE: f64 = 1448.0 / 1500.0;

/// Two windows fill a path of 2 Gbit/s and 40 ms and half a BDP of its queue, without overflow.
/// TCP's own losses are not measured here.
const WINDOW: Option<Bytes> = Some(Bytes::new(7_500_000));

#[test]
fn round_trip_time_and_goodput_are_the_paths() {
    let spec = with(path("2Gbit", 40), "hosts=tuned; queue=40MB");
    measure_while_keeping_up("round trip and goodput at 2 Gbit/s", &spec, |lab| {
        let rtt = idle_round_trip(lab).as_secs_f64();
        within("RTT in seconds", rtt, 0.040..=0.042)?;
        let goodput = Bulk { streams: 2, pace: None, window: WINDOW }.send_while(lab, |received| {
            // After slow start.
            thread::sleep(Duration::from_millis(1500));
            let (before, begun) = (received.load(Ordering::Relaxed), Instant::now());
            thread::sleep(Duration::from_millis(1500));
            let bytes = received.load(Ordering::Relaxed) - before;
            bytes as f64 * 8.0 / begun.elapsed().as_secs_f64()
        });
        let expected = RATE * PAYLOAD_SHARE;
        println!(
            "RTT {:.2} ms, goodput {:.1} % of what the rate allows; {}",
            rtt * 1e3,
            goodput / expected * 100.0,
            lab.stats().unwrap()
        );
        within("goodput in bit/s", goodput, expected * 0.95..=expected * 1.01)
    });
}

/// Returns the median of a few RTTs on an idle path.
fn idle_round_trip(lab: &Lab) -> Duration {
    let (client, server) = udp(lab);
    client.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut times = [(); 7].map(|()| echo_time(&client, &server));
    times.sort();
    times[times.len() / 2]
}

/// A super-packet enters a switch's queue of 1 MB packet by packet, and does not harm a sender
/// below the rate.
#[test]
fn switch_queue_passes_paced_stream_and_drops_of_unpaced_one() {
    let spec = with(path("1200Mbit", 20), "hosts=tuned; queue=1MB");
    for (pace, is_lost) in [(Some(Rate::bits_per_sec(800_000_000)), false), (None, true)] {
        measure_while_keeping_up("a paced stream and an unpaced one", &spec, |lab| {
            Bulk { streams: 1, pace, window: WINDOW }
                .send_while(lab, |_| thread::sleep(Duration::from_millis(1200)));
            let stats = lab.stats().unwrap().client_to_server;
            println!("{pace:?}: {stats}");
            // At least 0.1 s at the pace.
            within("packets", stats.packets as f64, 13_000.0..=f64::INFINITY)?;
            let lost = if is_lost { 1.0..=f64::INFINITY } else { 0.0..=0.0 };
            within("packets that met a full queue", stats.dropped_queue as f64, lost)
        });
    }
}
