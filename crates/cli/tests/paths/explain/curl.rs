//! Transfers of curl: by captures of either side, and of the running process.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::explain::command::{
    Running, explain, first_object, has_lab, longhaul, skip, text, transfer_home, with_program,
};

/// Serves a file with kernel defaults: pacing would adapt to the path.
const SERVE: &str = "exec longhaul serve served --listen $LAB_SERVER:8080 --pace off";

/// Returns whether curl can be run.
fn has_curl() -> bool {
    let has = Command::new("curl").arg("--version").output().is_ok();
    if !has {
        skip("curl is missing");
    }
    has
}

/// Downloads with curl over a path that is captured on both hosts; checks that either capture names the limit.
fn check_captures(path: &[&str], before: &str, size: u64, limit: &str) {
    let home = transfer_home(size);
    if !has_curl() || !has_lab(home.path()) {
        return;
    }
    let client = format!("{before} exec curl -sS -o got http://$LAB_SERVER:8080/file");
    let mut command = with_program(longhaul(home.path()));
    command.args(["lab", "exec", "--pcap", "receiver.pcap", "--pcap-server", "sender.pcap"]).args(path);
    command.args(["--server", SERVE, "--server-port", "8080", "--", "sh", "-c", &client]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    for (capture, at_sender) in [("receiver.pcap", false), ("sender.pcap", true)] {
        let flow = first_object(&explain(home.path(), &[capture, "--json"]));
        assert_eq!((&flow["at_sender"], &flow["limited_by"]), (&at_sender.into(), &limit.into()), "{flow}");
        assert!(flow["bytes"].as_u64().unwrap() >= size, "{flow}");
        let shares: &Value = &flow["shares"];
        assert!(shares[limit].as_f64().unwrap() > 0.5, "{flow}");
    }
}

#[test]
fn captures_of_either_side_name_the_receive_window() {
    let before = "sysctl -qw net.ipv4.tcp_rmem='4096 131072 262144';";
    check_captures(&["--rate", "200Mbit", "--rtt", "50ms"], before, 12_000_000, "receive-window");
}

#[test]
fn captures_of_either_side_name_the_path() {
    check_captures(&["--rate", "20Mbit", "--rtt", "20ms", "--queue", "200KB"], "", 10_000_000, "path");
}

#[test]
fn running_curl_with_a_small_window_is_limited_by_it() {
    let home = transfer_home(1 << 30);
    if !has_curl() || !has_lab(home.path()) {
        return;
    }
    let client = "sysctl -qw net.ipv4.tcp_rmem='4096 131072 262144'; \
        curl -sS -o /dev/null http://$LAB_SERVER:8080/file & \
        sleep 0.5; longhaul explain --pid $! --for 4s --json; kill $!";
    let mut command = with_program(longhaul(home.path()));
    command.args(["lab", "exec", "--rate", "200Mbit", "--rtt", "50ms"]);
    command.args(["--server", SERVE, "--server-port", "8080", "--", "sh", "-c", client]);
    let flow = first_object(&command.output().unwrap());
    assert_eq!((&flow["sends"], &flow["limited_by"]), (&false.into(), &"receive-window".into()), "{flow}");
    assert!(flow["advice"].to_string().contains("tcp_rmem"), "{flow}");
}

#[test]
fn running_curl_with_a_rate_limit_is_the_limit_of_its_own_download() {
    if !has_curl() {
        return;
    }
    let home = transfer_home(1 << 30);
    let mut serve = longhaul(home.path());
    serve.args(["serve", "served", "--listen", "127.0.0.1:0"]);
    let (_server, address) = Running::server(&mut serve);
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--limit-rate", "1M", "-o", "/dev/null", &format!("http://{address}/file")]);
    let curl = Running(curl.stdin(Stdio::null()).spawn().unwrap());
    let pid = curl.0.id().to_string();
    let flow = first_object(&explain(home.path(), &["--pid", &pid, "--for", "4s", "--json"]));
    assert_eq!((&flow["sends"], &flow["limited_by"]), (&false.into(), &"application".into()), "{flow}");
}
