//! Transfers of curl: by captures of either side, and of the running process.

use serde_json::Value;

use super::{SERVE, transfer_home};
use crate::support::lab::{exec_in, longhaul_in, needs_lab_with, objects, ran};

/// A receive buffer of 256 KiB.
const SMALL_WINDOW: &str = "sysctl -qw net.ipv4.tcp_rmem='4096 131072 262144';";

/// Downloads over a path that is captured on both hosts: either capture names the limit.
#[test]
fn captures_of_either_side_name_the_limit() {
    let Some(()) = needs_lab_with(&["curl"]) else { return };
    for (path, before, size, limit) in [
        ("--rate 200Mbit --rtt 50ms", SMALL_WINDOW, 12_000_000, "receive-window"),
        ("--rate 20Mbit --rtt 20ms --queue 200KB", "", 10_000_000, "path"),
    ] {
        let home = transfer_home(size);
        let captures = "--pcap receiver.pcap --pcap-server sender.pcap --server-port 8080 --server";
        let options: Vec<_> = path.split(' ').chain(captures.split(' ')).chain([SERVE]).collect();
        let client = format!("{before} exec curl -sS -o got http://$LAB_SERVER:8080/file");
        ran(exec_in(home.path(), &options, &client)).ok();
        for (capture, at_sender) in [("receiver.pcap", false), ("sender.pcap", true)] {
            let mut command = longhaul_in(home.path());
            command.args(["explain", capture, "--json"]);
            let flow = objects(&ran(command).ok()).remove(0);
            assert!(flow["at_sender"] == at_sender && flow["limited_by"] == limit, "{flow}");
            assert!(flow["bytes"].as_u64().unwrap() >= size, "{flow}");
            let shares: &Value = &flow["shares"];
            assert!(shares[limit].as_f64().unwrap() > 0.5, "{flow}");
        }
    }
}

#[test]
fn running_curl_with_a_small_window_is_limited_by_it() {
    let Some(()) = needs_lab_with(&["curl"]) else { return };
    let home = transfer_home(1 << 30);
    let client = format!(
        "{SMALL_WINDOW} curl -sS -o /dev/null http://$LAB_SERVER:8080/file & \
         sleep 0.5; longhaul explain --pid $! --for 4s --json; kill $!"
    );
    let options = ["--rate", "200Mbit", "--rtt", "50ms", "--server", SERVE, "--server-port", "8080"];
    let flow = objects(&ran(exec_in(home.path(), &options, &client)).ok()).remove(0);
    assert_eq!((&flow["sends"], &flow["limited_by"]), (&false.into(), &"receive-window".into()), "{flow}");
    assert!(flow["advice"].to_string().contains("tcp_rmem"), "{flow}");
}
