//! `longhaul lab exec`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::support::lab::{
    exec, needs_lab, needs_lab_with, nginx, processes_with, ran, ran_in, send, send_until_end, wait_until,
};

/// Returns whether any process is in the network namespace `name` ("net:[4026532000]").
fn is_namespace_alive(name: &str) -> bool {
    let lives_there =
        |path: PathBuf| fs::read_link(path.join("ns/net")).is_ok_and(|ns| ns == Path::new(name));
    fs::read_dir("/proc").unwrap().any(|entry| lives_there(entry.unwrap().path()))
}

#[test]
fn commands_run_on_their_hosts_and_the_exit_status_is_passed_on() {
    let Some(()) = needs_lab() else { return };
    let mark = tempfile::NamedTempFile::new().unwrap();
    let server = format!("ip -4 -o addr > {0}; sleep 98762", mark.path().display());
    let client = format!("until grep -q 198.18.0.2/24 {0}; do sleep 0.01; done", mark.path().display());
    let addresses = "echo $LAB_CLIENT-$LAB_SERVER $LAB_NEAR-$LAB_FAR; exit 42";
    for (options, shell, code, stdout, stderr) in [
        (&[][..], addresses, 42, "198.18.0.1-198.18.0.2 198.18.0.1-198.18.0.2", ""),
        (&[], "kill -9 $$", 128 + 9, "", ""),
        (&[], "getent ahostsv4 client", 0, "198.18.0.1", ""),
        (&[], "getent ahostsv4 server", 0, "198.18.0.2", ""),
        (&[], "getent ahostsv6 server", 0, "2001:2::2", ""),
        // The emulated server may be a proxy.
        (&[], "echo $http_proxy", 0, "http://server:3128", ""),
        (&["--server", &server], &client, 0, "", ""),
        (&["--server", "exit 5"], "sleep 0.2", 0, "", "the server command ended early: exit status: 5"),
        (
            &["--far", "exit 5", "--far-port", "80"],
            "true",
            71,
            "",
            "nothing listens on port 80 of the server host",
        ),
    ] {
        let mut command = exec(options, shell);
        command.env("http_proxy", "http://server:3128");
        let ended = ran(command);
        assert_eq!(ended.status.code(), Some(code), "{options:?} {shell}: {ended:?}");
        let is_as_expected = ended.stdout.starts_with(stdout) && ended.stderr.contains(stderr);
        assert!(is_as_expected, "{options:?} {shell}: {ended:?}");
    }
    assert!(processes_with("98762").is_empty(), "the server command has ended");
    // Like a shell.
    for (command, code) in [("no-such-command-here", 127), ("/etc/hosts", 126)] {
        let ended = ran_in("/".as_ref(), &["lab", "exec", "--", command]);
        ended.fails(code, &[&format!("cannot start '{command}'")]);
    }
    let machine = fs::read_to_string("/etc/hosts").unwrap();
    assert!(!machine.contains("198.18.0.2"), "the machine's file is as before: {machine}");
}

#[test]
fn signals_reach_the_command_and_nothing_outlives_the_lab() {
    let Some(()) = needs_lab() else { return };
    for (signal, name) in [(Signal::TERM, "TERM"), (Signal::INT, "INT")] {
        let script = format!("trap 'echo caught; exit 3' {name}; echo up; while :; do sleep 0.05; done");
        let mut child = exec(&[], &script).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "up");
        send(&child, signal);
        assert_eq!(lines.next().unwrap().unwrap(), "caught");
        assert_eq!(child.wait().unwrap().code(), Some(3));
    }
    // A command that ignores signals is killed by the second one, with its descendants.
    for (mark, first, second) in [("98780", Signal::INT, Signal::INT), ("98781", Signal::TERM, Signal::HUP)] {
        let word = format!("sleep\0{mark}");
        let mut child = exec(&[], &format!("trap '' INT TERM HUP; sleep {mark}; true")).spawn().unwrap();
        wait_until("it runs", || !processes_with(&word).is_empty());
        send(&child, first);
        send_until_end(&mut child, second);
        assert_eq!(child.wait().unwrap().code(), Some(128 + 9), "{first:?} {second:?}");
        wait_until("nothing is left", || processes_with(&word).is_empty());
    }
    let client = "setsid sleep 98763 & readlink /proc/self/ns/net; exec sleep 98763";
    let mut child = exec(&["--server", "setsid sleep 98763 & sleep 98763"], client).spawn().unwrap();
    let mut namespace = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut namespace).unwrap();
    let namespace = namespace.trim();
    assert!(is_namespace_alive(namespace));
    wait_until("all commands run", || processes_with("98763").len() >= 5);
    send(&child, Signal::KILL);
    child.wait().unwrap();
    wait_until("no process is left", || processes_with("98763").is_empty());
    wait_until("no namespace is left", || !is_namespace_alive(namespace));
}

#[test]
fn errors_explain_impossible_paths() {
    for (options, expected) in [
        (&["--loss", "2"][..], "'2' is no share of packets: write 2%"),
        (&["--delay", "1ms", "--rtt", "2ms"], "cannot be used with"),
        (&["--queue", "10p"], "a queue needs a rate"),
        (&["--rate", "fast"], "'fast' is not a rate"),
        (&["--rate", "10M"], "write 10Mbit or 10MiB"),
        (&["--rate-steps", "1Mbit@0s,2M@1s"], "write 2Mbit or 2MiB"),
        (&["--rate", "9Mbit", "--background", "0@0s,1M@8s"], "write 1Mbit or 1MiB"),
        (&["--rate", "9Mbit", "--up", "queue=9packets; rate=1M"], "write 1Mbit or 1MiB"),
        (&["--rate", "9Mbit", "--queue", "5M"], "write 5MB or 5MiB"),
        (&["--rate", "9Mbit", "--down", "queue=5M"], "write 5MB or 5MiB"),
        (&["--queue", "100packs"], "'100packs' is not a size"),
        (&["--aqm", "red"], "aqm: what drops early needs a rate"),
        (&["--rate", "1Mbit", "--aqm", "red:max_p=2"], "aqm: max_p of 2 is not between 0 and 1"),
        (
            &["--rate", "1Mbit", "--queue", "10packets", "--aqm", "red"],
            "aqm: max_th of 15 packets is more than",
        ),
        (&["--background", "20%"], "background: background traffic needs a rate"),
        (&["--cross-flows", "65"], "cross_flows: 65 are above 64"),
        (&["--ack-compression", "2s"], "ack_compression: 2000 ms is above one second"),
        (&["--hosts", "big"], "'big' is not one of stock, tuned"),
        (
            &["--pcap", "one.pcap", "--pcap-server", "./one.pcap"],
            "pcap-server: ./one.pcap is the client's capture, too",
        ),
    ] {
        let ended = ran(exec(options, "true"));
        let code = ended.status.code();
        assert!(code == Some(64) && ended.stderr.contains(expected) || code == Some(77), "{ended:?}");
    }
}

/// Creates a `lab exec` by root without the capability that it needs.
fn without_capability(args: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]);
    command.arg(env!("CARGO_BIN_EXE_longhaul")).args(["lab", "exec"]).args(args);
    command
}

/// Root without the capability gains it in a user namespace, where a server changes its user; or
/// gets an error that names it.
#[test]
fn root_without_the_capability_gains_it_or_learns_its_name() {
    let Some(()) = needs_lab_with(&["nginx", "curl"]) else { return };
    let ended = ran(without_capability(&["--", "true"]));
    if ended.status.code() == Some(77) {
        return assert!(ended.stderr.contains("CAP_SYS_ADMIN"), "{ended:?}");
    }
    ended.ok();
    // One of the two id mappings fails: awk parses the ranges, and works once.
    let dir = tempfile::tempdir().unwrap();
    let awk = dir.path().join("awk");
    fs::write(&awk, "#!/bin/sh\nmkdir \"$0.used\" || exit 1\nPATH=${PATH#*:}\nexec awk \"$@\"\n").unwrap();
    fs::set_permissions(&awk, fs::Permissions::from_mode(0o755)).unwrap();
    let search = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let mut command = without_capability(&["--", "true"]);
    command.env("PATH", search);
    ran(command).ok();
    assert!(dir.path().join("awk.used").exists());

    let server =
        nginx("www-data", "access_log off; server { listen 8080; location / { return 200 hello; } }");
    let client = "curl -s http://server:8080/; ps -eo user:20,args | grep '[n]ginx: worker'";
    let args = ["--server-port", "8080", "--server", &server, "--", "sh", "-c", client];
    let mut command = without_capability(&args);
    command.current_dir(dir.path());
    let ended = ran(command);
    assert!(ended.stdout.starts_with("hello") && ended.stdout.contains("www-data"), "{ended:?}");
}
