//! Cross flows are counted, and end with the lab.

use std::time::{Duration, Instant};

use crate::common::{first_packet, lab, path, wait_until, with};
use longhaul_lab::Lab;

fn with_flows(flows: &str) -> Option<Lab> {
    let lab = lab(with(path("50Mbit", 10), &format!("cross_flows={flows}")));
    lab.inspect(first_packet)
}

#[test]
fn cross_flows_are_counted_and_end_with_the_lab() {
    let Some(running) = with_flows("3") else { return };
    wait_until("data", || running.stats().unwrap().cross_flows.bytes.get() > 0);
    let stats = running.stats().unwrap();
    assert_eq!((stats.cross_flows.flows, stats.cross_flows.failed), (3, 0));
    assert!(stats.server_to_client.bytes > stats.cross_flows.bytes, "on the path itself: {stats}");
    assert!(stats.to_string().contains("\n3 cross flows: "), "{stats}");

    let Some(failing) = with_flows("2@300ms..") else { return };
    let mut command = failing.server().command("ip");
    command.args(["address", "flush", "dev", "longhaul0"]);
    assert!(failing.server().spawn(command).unwrap().wait().unwrap().status.success());
    wait_until("failures", || failing.stats().unwrap().cross_flows.failed == 2);
    let stats = failing.stats().unwrap();
    assert_eq!(stats.cross_flows.bytes.get(), 0);
    let deviations = stats.infidelities(failing.spec()).join("\n");
    assert!(deviations.contains("2 of 2 cross flows could not be made"), "{deviations}");

    let Some(waiting) = with_flows("2@1000s..") else { return };
    let ends = Instant::now();
    drop((running, failing, waiting));
    assert!(ends.elapsed() < Duration::from_secs(60));
}
