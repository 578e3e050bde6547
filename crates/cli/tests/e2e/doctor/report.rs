//! What is found, and how it is printed.

use std::net::TcpListener;

use crate::doctor::command::{assert_unread, doctor, finding, in_lab, in_lab_with, json, text};

#[test]
fn host_with_small_buffers_is_told_the_exact_fix() {
    let home = tempfile::tempdir().unwrap();
    let shell = "echo '4096 131072 6291456' > /proc/sys/net/ipv4/tcp_rmem;
        echo '4096 16384 4194304' > /proc/sys/net/ipv4/tcp_wmem; echo 0 > /proc/sys/net/ipv4/tcp_sack;
        exec $LONGHAUL doctor --rate 10Gbit --rtt 200ms --no-disk-test --json";
    let Some(output) = in_lab(home.path(), shell) else { return };
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report = json(&output);
    assert_eq!(report["worst"], "problem");
    let rmem = finding(&report, "tcp_rmem");
    assert_eq!((&rmem["severity"], &rmem["quantity"]["needed"]), (&"problem".into(), &500_000_000.into()));
    assert_eq!(rmem["fix"]["commands"][0], r#"sysctl -w net.ipv4.tcp_rmem="4096 131072 500000000""#);
    assert_eq!(rmem["fix"]["lasting"]["lines"][0], "net.ipv4.tcp_rmem = 4096 131072 500000000");
    assert_eq!(finding(&report, "SACK")["severity"], "problem");
    // 3 MiB and 2 MiB a round trip.
    assert_eq!(report["ceilings"]["receive"]["now_bps"], 3 * 8 * 5 * (1 << 20));
    assert_eq!(report["ceilings"]["send"]["now_bps"], 2 * 8 * 5 * (1 << 20));
    assert_eq!(report["ceilings"]["send"]["after_bps"], 10_000_000_000_u64);
    // The lab's hosts have no default route.
    assert_eq!((report["device"].as_str(), report["route"].as_str()), (None, Some("default route")));
    assert_unread(&report, "network device", "no default route");
}

#[test]
fn server_of_the_url_determines_route_device_and_rtt() {
    let home = tempfile::tempdir().unwrap();
    let server = format!("{} serve . --listen $LAB_SERVER:8080", env!("CARGO_BIN_EXE_longhaul"));
    let options = ["--rate", "100Mbit", "--rtt", "40ms", "--server", &server, "--server-port", "8080"];
    let shell = "exec $LONGHAUL doctor --rate 1Gbit --no-disk-test --json http://$LAB_SERVER:8080/";
    let Some(output) = in_lab_with(home.path(), &options, shell) else { return };
    let report = json(&output);
    assert_eq!(report["route"], "route to 198.18.0.2");
    let name = report["device"].as_str().unwrap();
    assert_eq!(finding(&report, "network device")["measured"], name);
    assert!(finding(&report, "MTU")["quantity"]["measured"].as_u64().unwrap() >= 1280);
    assert_unread(&report, "link rate", "is a virtual device");
    // That of a handshake.
    assert_eq!(report["target"]["rtt_origin"], "measured");
    let rtt = report["target"]["rtt_seconds"].as_f64().unwrap();
    assert!(rtt >= 0.04, "{rtt}");
}

#[test]
fn server_that_refuses_leaves_the_assumed_rtt_and_says_so() {
    let home = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}/");
    let report = json(&doctor(home.path(), &["--no-disk-test", "--json", &url]));
    assert_eq!((&report["target"]["rtt_origin"], &report["device"]), (&"assumed".into(), &"lo".into()));
    assert_unread(&report, "RTT", "refused");
}

#[test]
fn available_controls_are_shown() {
    let home = tempfile::tempdir().unwrap();
    let report = json(&doctor(home.path(), &["--no-disk-test", "--json"]));
    let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    assert_eq!(finding(&report, "available controls")["measured"], available.trim());
}

#[test]
fn arguments_that_cannot_work_are_refused() {
    let home = tempfile::tempdir().unwrap();
    for (args, code, expected) in [
        (&["--rate", "fast"][..], 64, "'fast' is not a rate"),
        (&["--rate", "0"], 64, "rate of zero"),
        (&["--rate", "10G"], 64, "write 10Gbit or 10GiB"),
        (&["--rtt", "0ms"], 64, "nothing happens in no time"),
        (&["example.org"], 64, "https://example.org/"),
        (&["ssh://host/"], 64, "no protocol of transfers"),
        (&["--yes"], 64, "--fix"),
        (&["--undo", "--fix"], 64, "cannot be used with"),
        (&["--fix"], 64, "add --yes"),
        (&["--disk", "none"], 66, "--disk none: No such file"),
        (&["--undo"], 66, "nothing is to be undone"),
    ] {
        let output = doctor(home.path(), args);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
        assert!(error.contains(expected), "{args:?}: {error}");
    }
}
