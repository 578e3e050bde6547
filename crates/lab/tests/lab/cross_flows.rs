//! Cross flows take their share of the path at their time, and end with the lab.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::{first_packet, lab, path};
use longhaul_lab::{Lab, PathSpec};

fn with_flows(flows: &str) -> Option<Lab> {
    lab(PathSpec { cross_flows: flows.parse().unwrap(), ..path("50Mbit", 10) })
}

#[test]
fn cross_flows_fill_an_otherwise_idle_path() {
    let Some(lab) = with_flows("3") else { return };
    first_packet(&lab);
    thread::sleep(Duration::from_millis(1500));
    let stats = lab.stats().unwrap();
    let goodput = stats.cross_flows.goodput().as_bits_per_sec();
    assert!((25_000_000..50_000_000).contains(&goodput), "{stats}");
    assert_eq!((stats.cross_flows.flows, stats.cross_flows.failed), (3, 0));
    assert!(stats.server_to_client.bytes > stats.cross_flows.bytes, "on the path itself: {stats}");
    assert!(stats.to_string().contains("\n3 cross flows: "), "{stats}");
    let ends = Instant::now();
    drop(lab);
    assert!(ends.elapsed() < Duration::from_secs(1), "a clean end takes no time");
}

#[test]
fn cross_flows_start_and_end_on_time() {
    let Some(lab) = with_flows("2@400ms..900ms") else { return };
    thread::sleep(Duration::from_millis(600));
    assert_eq!(lab.stats().unwrap().server_to_client.packets, 0, "time has not begun");
    first_packet(&lab);
    thread::sleep(Duration::from_millis(200));
    assert_eq!(lab.stats().unwrap().cross_flows.bytes.get(), 0, "not yet");
    thread::sleep(Duration::from_millis(1000));
    let after = lab.stats().unwrap();
    let ran = after.cross_flows.time.as_secs_f64();
    assert!(after.cross_flows.bytes.get() > 100_000 && (0.49..0.7).contains(&ran), "{after}");
    assert_eq!(after.cross_flows.failed, 0);
    thread::sleep(Duration::from_millis(200));
    assert_eq!(
        lab.stats().unwrap().server_to_client.packets,
        after.server_to_client.packets,
        "and nothing after"
    );
}

#[test]
fn lab_ends_while_cross_flows_wait() {
    let Some(lab) = with_flows("2@1000s..") else { return };
    first_packet(&lab);
    thread::sleep(Duration::from_millis(50));
    let ends = Instant::now();
    drop(lab);
    assert!(ends.elapsed() < Duration::from_secs(1));
}

#[test]
fn failed_cross_flows_are_reported() {
    let Some(lab) = with_flows("2@300ms..") else { return };
    first_packet(&lab);
    let mut command = lab.server().command("ip");
    command.args(["address", "flush", "dev", "longhaul0"]);
    assert!(lab.server().spawn(command).unwrap().wait().unwrap().status.success());
    thread::sleep(Duration::from_millis(500));
    let stats = lab.stats().unwrap();
    assert_eq!((stats.cross_flows.failed, stats.cross_flows.bytes.get()), (2, 0));
    let deviations = stats.infidelities(lab.spec());
    assert!(
        deviations.iter().any(|why| why.contains("2 of 2 cross flows could not be made")),
        "{deviations:?}"
    );
}
