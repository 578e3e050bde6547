//! Evidence of `longhaul lab exec`: captures, flows, queues over time, and deviations of the path.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::support::lab::{exec, last_object, needs_lab, needs_lab_with, objects, ran, ran_in};

const PATH: [&str; 6] = ["--rate", "20Mbit", "--rtt", "10ms", "--queue", "60packets"];

/// A transfer of 4 MiB that overflows the queue: its flows, its queue over time, and its captures
/// agree.
#[test]
fn flows_queues_and_captures_of_a_path_agree() {
    // iperf3 ends when all is written: the last bytes may stay in the socket's buffer.
    const MIN_BULK: u64 = 2 << 20;
    let Some(()) = needs_lab_with(&["iperf3", "tcpdump"]) else { return };
    let dir = tempfile::tempdir().unwrap();
    let [evidence, client, server] =
        ["evidence", "client.pcap", "server.pcap"].map(|name| dir.path().join(name));
    let files = ["--evidence", "--pcap", "--pcap-server"].into_iter().zip([&evidence, &client, &server]);
    let mut options =
        [&PATH[..], &["--json", "--server", "exec iperf3 --server", "--server-port", "5201"]].concat();
    options.extend(files.flat_map(|(option, file)| [option, file.to_str().unwrap()]));
    let ended = ran(exec(&options, "iperf3 -4 -c server -n 4M > /dev/null; exit 3"));
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    for direction in ["lab: client -> server: ", "lab: server -> client: "] {
        let line = ended.stderr.lines().find(|line| line.starts_with(direction)).unwrap_or_default();
        assert!(line.contains(" packets, ") && line.ends_with(" ms out at p99"), "{direction}: {ended:?}");
    }
    let line = last_object(&ended);
    let rate = &line["path"]["rate_bps"];
    assert!(line["event"] == "path" && line["exit_code"] == 3 && *rate == 20_000_000, "{line}");
    let up = &line["client_to_server"];
    let [carried, dropped] = ["packets", "dropped_queue"].map(|key| up[key].as_u64().unwrap());
    let flows = up["flows"].as_array().unwrap();
    let sum = |key: &str| flows.iter().map(|flow| flow[key].as_u64().unwrap()).sum::<u64>();
    // Counters and flows are read consecutively, while connections still close.
    assert!((sum("packets") - sum("dropped_queue")).abs_diff(carried) <= 10, "{up}");
    assert!(sum("dropped_queue") == dropped && dropped > 0, "{up}");
    let bulk = flows.iter().max_by_key(|flow| flow["bytes"].as_u64()).unwrap();
    assert!(bulk["to"] == "198.18.0.2:5201" && bulk["protocol"] == "tcp", "{bulk}");
    assert!(bulk["bytes"].as_u64() > Some(MIN_BULK) && bulk["rate_bps"].as_f64() > Some(0.0), "{bulk}");

    let whole = fs::read_to_string(evidence.join("path.json")).unwrap();
    let whole: Value = serde_json::from_str(&whole).unwrap();
    let samples = whole["client_to_server"]["queue"].as_array().unwrap();
    let most = |key: &str| samples.iter().filter_map(|sample| sample[key].as_f64()).fold(0.0, f64::max);
    // A full queue of 60 packets drains in 36 ms.
    assert!((59.0..=60.0).contains(&most("packets")), "{}", most("packets"));
    assert!((0.034..0.037).contains(&most("sojourn_s")), "{}", most("sojourn_s"));
    let picture = fs::read_to_string(evidence.join("queue.svg")).unwrap();
    for words in ["<svg", "Sojourn time", "client to server"] {
        assert!(picture.contains(words), "{words}");
    }

    let tcpdump = |args: &[&str]| {
        let mut command = Command::new("tcpdump");
        command.args(args).current_dir(dir.path());
        ran(command).ok().stdout.lines().count() as u64
    };
    let sent = tcpdump(&["-nr", "client.pcap", "src host 198.18.0.1"]);
    assert!(sent.abs_diff(carried + dropped) <= 10, "{sent}, not {carried} and {dropped}");
    // Packets in flight at the end are not captured at the receiver.
    let arrived = tcpdump(&["-nr", "server.pcap", "src host 198.18.0.1"]);
    assert!((carried - 100..=carried + 10).contains(&arrived), "{arrived} of {carried}");

    let explain = |capture, options: &[&str]| ran_in(dir.path(), &[&["explain", capture], options].concat());
    for (capture, at_sender, words) in
        [("client.pcap", true, "captured at the sender"), ("server.pcap", false, "captured at the receiver")]
    {
        let flow = objects(&explain(capture, &["--json"]).ok()).remove(0);
        assert!(flow["to"] == "198.18.0.2:5201" && flow["at_sender"] == at_sender, "{flow}");
        assert!(flow["bytes"].as_u64() > Some(MIN_BULK) && !flow["limited_by"].is_null(), "{flow}");
        let shown = explain(capture, &[]).ok().stdout;
        assert!(shown.contains(words) && shown.contains("limited by "), "{shown}");
    }
    // A capture is detected by its magic number, for any file name.
    let whole = fs::read(&server).unwrap();
    // Within the last packet: between two packets, a capture would be whole.
    fs::write(dir.path().join("cut"), &whole[..whole.len() - 3]).unwrap();
    let cut = explain("cut", &[]).ok();
    assert!(cut.stderr.contains("WARNING: cut is damaged: cut off after packet "), "{cut:?}");
    tcpdump(&["-r", "server.pcap", "-w", "one.pcap", "src host 198.18.0.1"]);
    let one_sided = explain("one.pcap", &[]);
    assert_eq!(one_sided.status.code(), Some(65));
    assert!(one_sided.stdout.contains("only one direction was captured"), "{one_sided:?}");
    tcpdump(&["-r", "server.pcap", "-w", "none.pcap", "udp"]);
    explain("none.pcap", &[]).fails(65, &["no TCP connection in none.pcap has data"]);
}

#[test]
fn damaged_repeated_and_reordered_packets_are_counted() {
    let Some(()) = needs_lab() else { return };
    let impair = ["--corrupt", "50%", "--duplicate", "50%", "--reorder", "50%,1ms", "--json"];
    let shell = "bash -c 'for i in $(seq 100); do echo > /dev/udp/$LAB_SERVER/9; done'; sleep 0.3";
    let ended = ran(exec(&[&PATH[..], &impair].concat(), shell));
    let line = last_object(&ended);
    for what in ["corrupted", "duplicated", "reordered"] {
        let count = line["client_to_server"][what].as_u64().unwrap_or_default();
        assert!((20..=80).contains(&count), "{what}: {line}");
        assert!(ended.stderr.contains(&format!("; {count} {what}")), "{what}: {ended:?}");
    }
}

#[test]
fn unwritable_evidence_is_reported_before_the_command_runs() {
    let Some(()) = needs_lab() else { return };
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    // A file that cannot be replaced.
    fs::create_dir_all(dir.path().join("evidence/queue.svg")).unwrap();
    for (option, name, named) in [
        ("--evidence", "file/x", "file/x"),
        ("--pcap", "file/x", "file/x"),
        ("--pcap-server", "file/x", "file/x"),
        ("--evidence", "evidence", "queue.svg"),
    ] {
        let ended = ran(exec(&[option, dir.path().join(name).to_str().unwrap()], "echo it ran"));
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(73), ""), "{ended:?}");
        assert!(ended.stderr.contains(named), "{ended:?}");
        assert!(ended.stderr.ends_with(&format!("; choose another place with {option}")), "{ended:?}");
    }
}

#[test]
fn check_of_no_path_is_refused() {
    for (rate, words) in [
        ("100M", "100MiB"),
        ("0", "the slowest that is checked has 100 Mbit/s"),
        ("20Mbit", "the slowest that is checked has 100 Mbit/s"),
    ] {
        let ended = ran_in("/".as_ref(), &["lab", "check", "--max-rate", rate]);
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(64), ""), "{ended:?}");
        assert!(ended.stderr.contains(words), "{ended:?}");
    }
}

#[test]
fn strict_fails_on_a_deviating_path() {
    let Some(()) = needs_lab_with(&["curl"]) else { return };
    // No machine holds a delay of 1 us to 5 %.
    for (strict, code) in [(&[][..], 0), (&["--strict"], 75)] {
        let options = [&["--delay", "1us"], strict].concat();
        let ended = ran(exec(&options, "curl -s http://$LAB_SERVER:9/; true"));
        assert_eq!(ended.status.code(), Some(code), "{ended:?}");
        assert!(ended.stderr.contains("lab: not exactly the path that was asked for: "), "{ended:?}");
    }
}
