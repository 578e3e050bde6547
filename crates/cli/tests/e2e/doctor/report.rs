//! What is found, in bounded time, with and without privileges, and how it is printed.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::doctor::command::{
    LONG_FAT, about_path, assert_unread, doctor, finding, in_lab, in_lab_with, json, unread,
};
use crate::support::lab::{longhaul_in, ran, wait_until};
use crate::support::{Ended, black_hole, names, needs_root, public_copy, write_secret};

#[test]
fn host_with_small_buffers_is_told_the_exact_fix() {
    let home = tempfile::tempdir().unwrap();
    let shell = "echo '4096 131072 6291456' > /proc/sys/net/ipv4/tcp_rmem;
        echo '4096 16384 4194304' > /proc/sys/net/ipv4/tcp_wmem; echo 0 > /proc/sys/net/ipv4/tcp_sack;
        exec longhaul doctor --rate 10Gbit --rtt 200ms --no-disk-test --json";
    let Some(output) = in_lab(home.path(), shell) else { return };
    assert_eq!(output.status.code(), Some(1), "{output:?}");
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
    let shell = "exec longhaul doctor --rate 1Gbit --no-disk-test --json http://$LAB_SERVER:8080/";
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
        let ended = doctor(home.path(), args);
        assert!(ended.status.code() == Some(code) && ended.stderr.contains(expected), "{args:?}: {ended:?}");
    }
}

/// Resolver and kernel themselves wait for 10 s or more; the command for a second.
const MAX_TIME: Duration = Duration::from_secs(8);

#[test]
fn report_begins_with_the_rates() {
    let home = tempfile::tempdir().unwrap();
    let output = about_path(home.path(), &[]);
    assert!([Some(0), Some(1)].contains(&output.status.code()), "{:?}", output.status);
    let text = output.stdout;
    let lines: Vec<_> = text.lines().take(4).collect();
    let path = "For 10.0 Gbit/s (given) at an RTT of 200 ms (given): 238.4 MiB in flight.";
    assert!(lines[0].starts_with(path), "{text}");
    assert!(lines[1].starts_with("One stream receives about "), "{text}");
    assert!(lines[2].starts_with("One stream sends about ") && lines[2].contains(" / 200 ms)"), "{text}");
    assert!(lines[3].contains(" to consider, ") && lines[3].ends_with(" not read"), "{text}");
    assert!(names(home.path()).is_empty(), "nothing is left behind");
}

#[test]
fn host_that_does_not_resolve_is_a_problem_and_the_rest_is_checked() {
    let home = tempfile::tempdir().unwrap();
    let output = doctor(home.path(), &["--no-disk-test", "http://nowhere.invalid/"]);
    assert_eq!(output.status.code(), Some(1));
    let text = output.stdout;
    let problem = text.lines().find(|line| line.starts_with("PROBLEM")).unwrap();
    assert!(problem.contains("server address") && problem.contains("nowhere.invalid"), "{text}");
    assert!(text.contains("fix: getent hosts nowhere.invalid"), "{text}");
    assert!(text.contains("tcp_rmem") && text.contains("One stream sends"), "{text}");
}

/// The lab has no host of this address: packets to it are lost.
#[test]
fn name_service_that_does_not_answer_is_not_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let shell = "exec unshare --mount --propagation private sh -ec '
        echo nameserver 198.18.0.53 > $HOME/resolv.conf
        mount --bind $HOME/resolv.conf /etc/resolv.conf
        before=$(date +%s%3N)
        longhaul doctor --no-disk-test --json http://some.example/ || [ $? = 1 ]
        echo $(($(date +%s%3N) - before)) > $HOME/took'";
    let Some(output) = in_lab(home.path(), shell) else { return };
    let report = json(&output);
    let address = finding(&report, "server address");
    assert_eq!(address["severity"], "problem");
    let took = std::fs::read_to_string(home.path().join("took")).unwrap();
    assert!(Duration::from_millis(took.trim().parse().unwrap()) < MAX_TIME, "{took} ms: {address}");
}

#[test]
fn host_that_refuses_or_drops_everything_leaves_the_assumed_rtt_and_the_reason_is_said() {
    let (_listener, _queue, silent) = black_hole();
    let home = tempfile::tempdir().unwrap();
    for (address, why) in [(SocketAddr::from(([127, 0, 0, 1], 1)), "refused"), (silent, "timed out")] {
        let start = Instant::now();
        let report = json(&doctor(home.path(), &["--no-disk-test", "--json", &format!("http://{address}/")]));
        assert!(start.elapsed() < MAX_TIME, "{:?}", start.elapsed());
        assert_eq!((&report["target"]["rtt_origin"], &report["device"]), (&"assumed".into(), &"lo".into()));
        assert_unread(&report, "RTT", why);
        finding(&report, "tcp_rmem");
    }
}

#[test]
fn disk_is_measured_and_nothing_is_left() {
    let home = tempfile::tempdir().unwrap();
    let report = json(&doctor(home.path(), &[&LONG_FAT[..], &["--json"]].concat()));
    // A disk that others keep busy may write nothing in the time, and that is said.
    if unread(&report, "disk write rate").is_some() {
        assert_unread(&report, "disk write rate", " within ");
    } else {
        assert!(finding(&report, "disk write rate")["quantity"]["measured"].as_u64().unwrap() > 0);
        assert!(finding(&report, "disk stall")["measured"].as_str().unwrap().ends_with(" ms"));
    }
    assert!(names(home.path()).is_empty());
}

#[test]
fn killed_measurement_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let mut child = longhaul_in(home.path()).arg("doctor").args(LONG_FAT).spawn().unwrap();
    // The file has no name; it is open while the measurement runs.
    let fds = format!("/proc/{}/fd", child.id());
    let is_measuring = || {
        let open = fs::read_dir(&fds).into_iter().flatten().flatten();
        let mut links = open.filter_map(|fd| fs::read_link(fd.path()).ok());
        links.any(|link| link.starts_with(home.path()) && link.to_string_lossy().ends_with("(deleted)"))
    };
    wait_until("the disk is measured", is_measuring);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(names(home.path()).is_empty());
}

#[test]
fn directory_that_cannot_be_written_is_a_missing_reading() {
    let home = tempfile::tempdir().unwrap();
    let report = json(&doctor(home.path(), &[&LONG_FAT[..], &["--json", "--disk", "/proc"]].concat()));
    assert_unread(&report, "disk write rate", "cannot write in /proc");
    assert!(unread(&report, "Direct I/O").is_some());
    finding(&report, "tcp_rmem");
}

/// Runs the command with user ID 65534, without privileges; `tcp_rmem` is unreadable, and the
/// directory not writable. Returns `None` if the test does not run as root, which is required to
/// change the user ID.
fn unprivileged(args: &[&str]) -> Option<Ended> {
    needs_root("becoming another user")?;
    let (dir, _) = public_copy();
    write_secret(dir.path().join("hidden"), "4096 131072 6291456");
    let script = "mount --bind hidden /proc/sys/net/ipv4/tcp_rmem
        exec setpriv --reuid=65534 --regid=65534 --clear-groups ./longhaul doctor --rate 10Gbit --rtt 200ms \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", script, "sh"]).args(args);
    command.env("HOME", dir.path()).env_remove("XDG_STATE_HOME").current_dir(dir.path());
    Some(ran(command))
}

#[test]
fn user_without_privilege_has_findings_and_the_names_of_what_was_not_permitted() {
    let Some(output) = unprivileged(&["--json"]) else { return };
    let report = json(&output);
    let is_problem = report["worst"] == "problem";
    assert_eq!(output.status.code(), Some(i32::from(is_problem)), "{output:?}");
    for name in ["tcp_wmem", "SACK", "congestion control", "open files", "memory"] {
        assert!(finding(&report, name)["measured"].is_string(), "{name}");
    }
    for (name, shows) in [
        ("tcp_rmem", "how large the kernel lets a receive window grow"),
        ("disk write rate", "whether the disk writes as fast as the path delivers"),
    ] {
        assert_unread(&report, name, "Permission denied");
        let unread = unread(&report, name).unwrap();
        assert!(unread["would_show"].as_str().unwrap().contains(shows), "{unread}");
    }
    let shown = unprivileged(&["--no-disk-test"]).unwrap().stdout;
    let mut lines = shown.lines().skip_while(|line| !line.starts_with("not read tcp_rmem"));
    assert!(lines.next().unwrap().contains("Permission denied"), "{shown}");
    assert!(lines.next().unwrap().trim().starts_with("would show "), "{shown}");
}

#[test]
fn fix_without_privilege_changes_nothing_and_says_what_it_needs() {
    let Some(output) = unprivileged(&["--no-disk-test", "--fix", "--yes"]) else { return };
    let shown = &output.stdout;
    // A host that is tuned already has nothing to change.
    if !shown.contains("No setting is to be changed") {
        assert_eq!(output.status.code(), Some(77), "{shown}");
        assert!(shown.contains("skipped: ") && shown.contains("needs root"), "{shown}");
    }
    assert!(!shown.contains("were written"), "{shown}");
}
