//! The hosts have the requested settings, and leave nothing behind.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{lab, path};
use longhaul_lab::{Host, Hosts, LabError, PathSpec};

const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

fn setting(host: &Host, name: &str) -> String {
    let path = format!("/proc/sys/net/ipv4/{name}");
    let value = host.run(move || fs::read_to_string(path).unwrap()).unwrap();
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn settings_are_as_requested() {
    let allowed = fs::read_to_string(ALLOWED).unwrap();
    for (hosts, congestion, rmem, wmem) in [
        (Hosts::Stock, "cubic", "4096 131072 6291456", "4096 16384 4194304"),
        (Hosts::Tuned, "reno", "4096 131072 1073741824", "4096 16384 1073741824"),
    ] {
        let spec = PathSpec { hosts, congestion: congestion.to_owned(), ..path("1Gbit", 1) };
        let Some(lab) = lab(spec) else { return };
        for host in [lab.client(), lab.server()] {
            assert_eq!(setting(&host, "tcp_rmem"), rmem);
            assert_eq!(setting(&host, "tcp_wmem"), wmem);
            assert_eq!(setting(&host, "tcp_congestion_control"), congestion);
            assert_eq!(setting(&host, "tcp_no_metrics_save"), "1");
        }
    }
    assert_eq!(fs::read_to_string(ALLOWED).unwrap(), allowed, "this machine's list is as before");
}

#[test]
fn an_unknown_congestion_control_is_named() {
    if lab(PathSpec::default()).is_none() {
        return;
    }
    let spec = PathSpec { congestion: "warp".to_owned(), ..PathSpec::default() };
    let error = longhaul_lab::Lab::new(spec).unwrap_err();
    assert!(matches!(error, LabError::Setting { .. }));
    assert!(error.to_string().contains("'warp'"), "{error}");
}

#[test]
fn commands_see_their_host_and_its_processes_only() {
    let Some(lab) = lab(path("1Gbit", 1)) else { return };
    let mut command = lab.client().command("sh");
    command.args(["-c", "echo $LAB_CLIENT $LAB_SERVER; ls -d /proc/[0-9]* | wc -l; exit 7"]);
    command.stdout(Stdio::piped());
    let mut process = lab.client().spawn(command).unwrap();
    let mut output = String::new();
    std::io::Read::read_to_string(&mut process.stdout().unwrap(), &mut output).unwrap();
    assert_eq!(process.wait().unwrap().status.code(), Some(7));
    let (addresses, processes) = output.trim().split_once('\n').unwrap();
    assert_eq!(addresses, format!("{} {}", lab.client().ipv4(), lab.server().ipv4()));
    assert!(processes.trim().parse::<u32>().unwrap() < 8, "{processes}");
}

#[test]
fn dropped_lab_ends_its_daemons_and_namespaces() {
    let Some(lab) = lab(path("1Gbit", 1)) else { return };
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

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(5), "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the processes on this machine that run this test's sleep.
fn sleepers() -> Vec<PathBuf> {
    let is_ours = |path: &PathBuf| {
        fs::read(path.join("cmdline")).is_ok_and(|line| line.windows(5).any(|word| word == b"98761"))
    };
    fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path()).filter(is_ours).collect()
}

#[test]
fn many_labs_at_once() {
    let labs: Vec<_> = (0..4).filter_map(|_| lab(path("100Mbit", 2))).collect();
    for lab in &labs {
        let mut process = lab.client().spawn(lab.client().command("true")).unwrap();
        assert!(process.wait().unwrap().status.success());
    }
}
