//! Evidence of `longhaul lab exec`: captures, flows, queues over time, and deviations of the path.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::lab::command::{exec, longhaul, skipped, text};

const PATH: [&str; 6] = ["--rate", "20Mbit", "--rtt", "10ms", "--queue", "60packets"];

/// Runs an iperf3 server, and sends to it for a second.
fn with_iperf3<'a>(options: &[&'a str]) -> (Vec<&'a str>, &'static str) {
    let server = ["--server", "exec iperf3 --server", "--server-port", "5201"];
    ([&PATH[..], &server, options].concat(), "iperf3 -4 -c server -t 1 > /dev/null; exit 3")
}

#[test]
fn json_has_a_table_of_flows_that_adds_up() {
    if skipped() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let evidence = dir.path().join("evidence");
    let (options, shell) = with_iperf3(&["--json", "--evidence", evidence.to_str().unwrap()]);
    let output = exec(&options, shell).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let line: Value = serde_json::from_str(text(&output.stdout).lines().last().unwrap()).unwrap();
    assert_eq!(
        (&line["event"], &line["exit_code"], &line["path"]["rate_bps"]),
        (&"path".into(), &3.into(), &20_000_000.into())
    );
    let up = &line["client_to_server"];
    let flows = up["flows"].as_array().unwrap();
    let sum = |key: &str| flows.iter().map(|flow| flow[key].as_u64().unwrap()).sum::<u64>();
    // Counters and flows are read consecutively, while connections still close.
    let differ = (sum("packets") - sum("dropped_queue")).abs_diff(up["packets"].as_u64().unwrap());
    assert!(differ <= 10, "{up}");
    assert_eq!(sum("dropped_queue"), up["dropped_queue"].as_u64().unwrap());
    let bulk = flows.iter().max_by_key(|flow| flow["bytes"].as_u64()).unwrap();
    assert!(bulk["to"] == "198.18.0.2:5201" && bulk["protocol"] == "tcp", "{bulk}");
    let rate = bulk["rate_bps"].as_f64().unwrap();
    assert!((14e6..30e6).contains(&rate), "{rate}");

    let whole: Value =
        serde_json::from_str(&fs::read_to_string(evidence.join("path.json")).unwrap()).unwrap();
    let samples = whole["client_to_server"]["queue"].as_array().unwrap();
    let most = |key: &str| samples.iter().filter_map(|sample| sample[key].as_f64()).fold(0.0, f64::max);
    // A full queue of 60 packets drains in 36 ms.
    assert!((59.0..=60.0).contains(&most("packets")), "{}", most("packets"));
    assert!((0.034..0.037).contains(&most("sojourn_s")), "{}", most("sojourn_s"));
    let picture = fs::read_to_string(evidence.join("queue.svg")).unwrap();
    assert!(
        picture.starts_with("<svg")
            && picture.contains("Sojourn time")
            && picture.contains("client to server")
    );
}

#[test]
fn damaged_repeated_and_reordered_packets_are_counted() {
    if skipped() {
        return;
    }
    let share = "50%";
    let impair = ["--corrupt", share, "--duplicate", share, "--reorder", "50%,1ms", "--json"];
    let shell = "bash -c 'for i in $(seq 100); do echo > /dev/udp/$LAB_SERVER/9; done'; sleep 0.3";
    let output = exec(&[&PATH[..], &impair].concat(), shell).output().unwrap();
    let said = text(&output.stderr);
    let line: Value = serde_json::from_str(text(&output.stdout).lines().last().unwrap()).unwrap();
    for what in ["corrupted", "duplicated", "reordered"] {
        let count = line["client_to_server"][what].as_u64().unwrap_or_default();
        assert!((20..=80).contains(&count), "{what}: {line}");
        assert!(said.contains(&format!("; {count} {what}")), "{what}: {said}");
    }
}

#[test]
fn unwritable_evidence_is_reported_before_the_command_runs() {
    if skipped() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let below = file.join("x");
    for option in ["--evidence", "--pcap", "--pcap-server"] {
        let output = exec(&[option, below.to_str().unwrap()], "echo it ran").output().unwrap();
        let error = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(73), ""), "{error}");
        assert!(error.contains(below.to_str().unwrap()), "{error}");
        assert!(error.ends_with(&format!("; choose another place with {option}")), "{error}");
    }
    // An existing directory with a file that cannot be replaced.
    let evidence = dir.path().join("evidence");
    fs::create_dir_all(evidence.join("queue.svg")).unwrap();
    let output = exec(&["--evidence", evidence.to_str().unwrap()], "echo it ran").output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(73), ""));
    let error = text(&output.stderr);
    assert!(error.contains("queue.svg"), "{error}");
    assert!(error.ends_with("; choose another place with --evidence"), "{error}");
}

#[test]
fn check_of_no_path_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let output = longhaul(dir.path()).args(["lab", "check", "--max-rate", "100M"]).output().unwrap();
    assert!(output.status.code() == Some(64) && text(&output.stderr).contains("100MiB"), "{output:?}");
    for rate in ["0", "1Mbit", "20Mbit"] {
        let output = longhaul(dir.path()).args(["lab", "check", "--max-rate", rate]).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(64), ""));
        let error = text(&output.stderr);
        assert!(error.contains("the slowest that is checked has 100 Mbit/s"), "{error}");
    }
}

#[test]
fn both_hosts_packets_are_captured() {
    if skipped() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (client, server) = (dir.path().join("client.pcap"), dir.path().join("server.pcap"));
    let (options, shell) = with_iperf3(&[
        "--pcap",
        client.to_str().unwrap(),
        "--pcap-server",
        server.to_str().unwrap(),
        "--json",
    ]);
    let output = exec(&options, shell).output().unwrap();
    let line: Value = serde_json::from_str(text(&output.stdout).lines().last().unwrap()).unwrap();
    if Command::new("tcpdump").arg("--version").output().is_err() {
        println!("skipped: tcpdump is missing");
        return;
    }
    let packets = |file: &std::path::Path, filter: &str| {
        let output = Command::new("tcpdump").arg("-nr").arg(file).arg(filter).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).lines().count() as u64
    };
    let up = &line["client_to_server"];
    let (carried, dropped) = (up["packets"].as_u64().unwrap(), up["dropped_queue"].as_u64().unwrap());
    assert!(dropped > 0, "{up}");
    let sent = packets(&client, "src host 198.18.0.1");
    assert!(sent.abs_diff(carried + dropped) <= 10, "{sent}, not {carried} and {dropped}");
    // Packets in flight at the end are not captured at the receiver.
    let arrived = packets(&server, "src host 198.18.0.1");
    assert!((carried - 100..=carried + 10).contains(&arrived), "{arrived} of {carried}");
    let explained = longhaul(dir.path()).arg("explain").arg(&server).output().unwrap();
    assert!(explained.status.success(), "{}", text(&explained.stderr));
}

#[test]
fn strict_fails_on_a_deviating_path() {
    if skipped() {
        return;
    }
    // No machine holds a delay of 2 us to 5 %.
    let options =
        ["--rate", "20Mbit", "--rtt", "4us", "--server", "exec iperf3 --server", "--server-port", "5201"];
    let shell = "iperf3 -4 -c server -t 1 > /dev/null";
    let output = exec(&options, shell).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(
        text(&output.stderr).contains("lab: WARNING: not the path that was asked for: "),
        "{}",
        text(&output.stderr)
    );
    let output = exec(&[&options[..], &["--strict"]].concat(), shell).output().unwrap();
    assert_eq!(output.status.code(), Some(75), "{}", text(&output.stderr));
}

#[test]
fn check_reports_the_paths_that_this_machine_holds() {
    if skipped() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let output = longhaul(dir.path()).args(["lab", "check", "--max-rate", "100Mbit"]).output().unwrap();
    let printed = text(&output.stdout);
    let rows: Vec<Vec<&str>> = printed.lines().map(|line| line.split_whitespace().collect()).collect();
    let is_held = rows[1].last() != Some(&"NO");
    assert_eq!((rows.len(), output.status.success()), (2, is_held), "{printed}: {}", text(&output.stderr));
    assert_eq!(rows[1][..3], ["100Mbit", "20ms", "1"], "{printed}");
    let goodput: f64 = rows[1][4].parse().unwrap();
    assert!((50.0..97.0).contains(&goodput) && rows[1][5] == "Mbit/s", "{printed}");
    // 5 % of 10 ms.
    assert!(printed.contains("0.50 ms"), "{printed}");
}
