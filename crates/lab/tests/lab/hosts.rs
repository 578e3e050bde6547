//! The hosts have the requested settings, and leave nothing behind.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::Stdio;

use crate::common::{lab, path, wait_until, with};
use longhaul_lab::{Host, Hosts, Lab, LabError, PathSpec};

const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

fn setting(host: &Host, name: &str) -> String {
    let path = format!("/proc/sys/net/ipv4/{name}");
    let value = host.run(move || fs::read_to_string(path).unwrap()).unwrap();
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn hosts_of_labs_at_once_have_their_settings() {
    let allowed = fs::read_to_string(ALLOWED).unwrap();
    let mut labs = Vec::new();
    for (hosts, congestion, rmem, wmem) in [
        (Hosts::Stock, "cubic", "4096 131072 6291456", "4096 16384 4194304"),
        (Hosts::Tuned, "reno", "4096 131072 1073741824", "4096 16384 1073741824"),
    ] {
        let spec = with(path("1Gbit", 1), &format!("hosts={hosts}; congestion={congestion}"));
        let Some(lab) = lab(spec) else { return };
        for host in [lab.client(), lab.server()] {
            for (name, expected) in [
                ("tcp_rmem", rmem),
                ("tcp_wmem", wmem),
                ("tcp_congestion_control", congestion),
                ("tcp_no_metrics_save", "1"),
            ] {
                assert_eq!(setting(&host, name), expected, "{name}");
            }
        }
        labs.push(lab);
    }
    assert_eq!(fs::read_to_string(ALLOWED).unwrap(), allowed, "this machine's list is as before");
    let error = Lab::new(with(PathSpec::default(), "congestion=warp")).unwrap_err();
    assert!(matches!(error, LabError::Setting { .. }) && error.to_string().contains("'warp'"), "{error}");
}

#[test]
fn commands_see_only_their_host_and_end_with_the_lab() {
    let Some(lab) = lab(path("1Gbit", 1)) else { return };
    let mut command = lab.client().command("sh");
    command.args(["-c", "echo $LAB_CLIENT $LAB_SERVER; ls -d /proc/[0-9]* | wc -l; exit 7"]);
    command.stdout(Stdio::piped());
    let mut process = lab.client().spawn(command).unwrap();
    let mut output = String::new();
    process.stdout().unwrap().read_to_string(&mut output).unwrap();
    assert_eq!(process.wait().unwrap().status.code(), Some(7));
    drop(process);
    let (addresses, processes) = output.trim().split_once('\n').unwrap();
    assert_eq!(addresses, format!("{} {}", lab.client().ipv4(), lab.server().ipv4()));
    assert!(processes.trim().parse::<u32>().unwrap() < 8, "{processes}");

    let mut command = lab.server().command("sh");
    command.args(["-c", "setsid sleep 98761 & echo $!"]).stdout(Stdio::piped());
    let mut process = lab.server().spawn(command).unwrap();
    assert!(process.wait().unwrap().status.success());
    // A process in exec has no command line.
    wait_until("the daemon runs", || !sleepers().is_empty());
    drop(process);
    drop(lab);
    wait_until("the daemon is gone", || sleepers().is_empty());
}

/// Returns the processes on this machine that run this test's sleep.
fn sleepers() -> Vec<PathBuf> {
    let is_ours = |path: &PathBuf| {
        fs::read(path.join("cmdline")).is_ok_and(|line| line.windows(5).any(|word| word == b"98761"))
    };
    fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path()).filter(is_ours).collect()
}
