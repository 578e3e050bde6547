//! `longhaul lab exec`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::process::Signal;

use crate::lab::command::{SLOW, exec, longhaul, processes_with, send, skipped, text, wait_until};

/// Returns whether any process is in the network namespace `name` ("net:[4026532000]").
fn is_namespace_alive(name: &str) -> bool {
    let lives_there =
        |path: PathBuf| fs::read_link(path.join("ns/net")).is_ok_and(|ns| ns == Path::new(name));
    fs::read_dir("/proc").unwrap().any(|entry| lives_there(entry.unwrap().path()))
}

#[test]
fn passes_on_output_and_exit_status() {
    if skipped() {
        return;
    }
    let shell = "echo $LAB_CLIENT-$LAB_SERVER $LAB_NEAR-$LAB_FAR; exit 42";
    let Output { status, stdout, stderr } = exec(&SLOW, shell).output().unwrap();
    assert_eq!(status.code(), Some(42));
    assert_eq!(text(&stdout), "198.18.0.1-198.18.0.2 198.18.0.1-198.18.0.2");
    let printed = text(&stderr);
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines.len(), 2, "{printed}");
    for (line, start) in lines.iter().zip(["lab: client -> server: ", "lab: server -> client: "]) {
        assert!(
            line.starts_with(start) && line.contains(" packets, ") && line.ends_with(" ms out at p99"),
            "{printed}"
        );
    }
    assert_eq!(exec(&[], "kill -9 $$").output().unwrap().status.code(), Some(128 + 9));
}

#[test]
fn runs_the_server_command_on_the_server() {
    if skipped() {
        return;
    }
    let mark = tempfile::NamedTempFile::new().unwrap();
    let server = format!("ip -4 -o addr > {0}; sleep 98762", mark.path().display());
    let client = format!("until grep -q 198.18.0.2/24 {0}; do sleep 0.01; done", mark.path().display());
    let output = exec(&[&SLOW[..], &["--server", &server]].concat(), &client).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(processes_with("98762").is_empty(), "the server command has ended");
    let output = exec(&["--server", "exit 5"], "sleep 0.2").output().unwrap();
    assert!(text(&output.stderr).contains("the server command ended early: exit status: 5"));
    let output = exec(&["--far", "exit 5", "--far-port", "80"], "true").output().unwrap();
    assert_eq!(output.status.code(), Some(71));
    let error = text(&output.stderr);
    assert!(error.contains("nothing listens on port 80 of the server host"), "{error}");
}

/// The emulated server may be a proxy.
#[test]
fn commands_see_the_proxies_of_the_environment() {
    if skipped() {
        return;
    }
    let output = exec(&[], "echo $http_proxy").env("http_proxy", "http://server:3128").output().unwrap();
    assert_eq!(text(&output.stdout), "http://server:3128", "{}", text(&output.stderr));
}

#[test]
fn forwards_a_request_to_end() {
    if skipped() {
        return;
    }
    for (signal, name) in [(Signal::TERM, "TERM"), (Signal::INT, "INT")] {
        let script = format!("trap 'echo caught; exit 3' {name}; echo up; while :; do sleep 0.05; done");
        let mut child = exec(&SLOW, &script).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "up");
        send(&child, signal);
        assert_eq!(lines.next().unwrap().unwrap(), "caught");
        assert_eq!(child.wait().unwrap().code(), Some(3));
    }
}

#[test]
fn a_kill_leaves_nothing() {
    if skipped() {
        return;
    }
    let client = "setsid sleep 98763 & readlink /proc/self/ns/net; exec sleep 98763";
    let server = [&SLOW[..], &["--server", "setsid sleep 98763 & sleep 98763"]].concat();
    let mut child = exec(&server, client).spawn().unwrap();
    let mut namespace = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut namespace).unwrap();
    let namespace = namespace.trim();
    assert!(is_namespace_alive(namespace));
    wait_until("all commands run", || processes_with("98763").len() >= 5);
    send(&child, Signal::KILL);
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    wait_until("no process is left", || processes_with("98763").is_empty());
    wait_until("no namespace is left", || !is_namespace_alive(namespace));
}

#[test]
fn command_that_cannot_be_started_has_the_status_of_a_shell() {
    if skipped() {
        return;
    }
    for (command, expected) in [("no-such-command-here", 127), ("/etc/hosts", 126)] {
        let mut lab = longhaul(env!("CARGO_TARGET_TMPDIR").as_ref());
        let output = lab.args(["lab", "exec", "--", command]).output().unwrap();
        assert_eq!(output.status.code(), Some(expected), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(&format!("cannot start '{command}'")));
    }
}

#[test]
fn errors_explain_impossible_labs() {
    for (options, expected) in [
        (&["--loss", "2"][..], "'2' is no share of packets: write 2%"),
        (&["--loss", "0.05"], "write 5% for this share, or 0.05%"),
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
        (&["--aqm", "pie"], "'pie' is not one of droptail, red, codel, fq_codel"),
        (&["--aqm", "red:max_p=often"], "max_p: 'often' is not a number"),
        (&["--background", "20%"], "background: background traffic needs a rate"),
        (&["--background", "20%@soon"], "'20%@soon' is no background traffic: 'soon' is not a time"),
        (&["--cross-flows", "4@5s"], "'4@5s' are no cross flows: '5s' has no '..'"),
        (&["--cross-flows", "65"], "cross_flows: 65 are above 64"),
        (&["--ack-compression", "2s"], "ack_compression: 2000 ms is above one second"),
        (&["--hosts", "big"], "'big' is not one of stock, tuned"),
        (
            &["--pcap", "one.pcap", "--pcap-server", "./one.pcap"],
            "pcap-server: ./one.pcap is the client's capture, too",
        ),
    ] {
        let output = exec(options, "true").output().unwrap();
        let error = text(&output.stderr);
        let code = output.status.code();
        assert!(code == Some(64) && error.contains(expected) || code == Some(77), "{code:?}: {error}");
    }
}

/// Root without the capability gains it in a user namespace, or gets an error that names it.
#[test]
fn root_without_the_capability_gains_it_or_learns_its_name() {
    if skipped() || !rustix::process::geteuid().is_root() {
        println!("skipped: not as root");
        return;
    }
    let without = || {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]);
        command.arg(env!("CARGO_BIN_EXE_longhaul")).args(["lab", "exec", "--", "true"]);
        command
    };
    let output = without().output().unwrap();
    let error = text(&output.stderr);
    let is_named = output.status.code() == Some(77) && error.contains("CAP_SYS_ADMIN");
    assert!(output.status.success() || is_named, "{:?}: {error}", output.status);
    if is_named {
        return;
    }
    // One of the two id mappings fails: awk parses the ranges, and works once.
    let dir = tempfile::tempdir().unwrap();
    let awk = dir.path().join("awk");
    fs::write(&awk, "#!/bin/sh\nmkdir \"$0.used\" || exit 1\nPATH=${PATH#*:}\nexec awk \"$@\"\n").unwrap();
    fs::set_permissions(&awk, fs::Permissions::from_mode(0o755)).unwrap();
    let search = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let output = without().env("PATH", search).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(dir.path().join("awk.used").exists());
}

#[test]
fn hosts_know_each_other_by_name() {
    if skipped() {
        return;
    }
    let output = exec(&SLOW, "getent ahostsv4 client server; getent ahostsv6 server").output().unwrap();
    let printed = text(&output.stdout);
    for expected in ["198.18.0.1", "198.18.0.2", "2001:2::2"] {
        assert!(printed.contains(expected), "{printed}");
    }
    let machine = fs::read_to_string("/etc/hosts").unwrap();
    assert!(!machine.contains("198.18.0.2"), "the machine's file is as before: {machine}");
}

/// A server that starts as root and changes its user, in a user namespace.
#[test]
fn a_server_with_its_own_user_works_in_a_user_namespace() {
    if skipped() || !rustix::process::geteuid().is_root() || Command::new("nginx").arg("-v").output().is_err()
    {
        println!("skipped: not as root, or nginx is missing");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let conf = dir.path().join("nginx.conf");
    let base = dir.path().display();
    let text_of = format!(
        "user www-data;\ndaemon off;\npid {base}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n access_log off;\n \
         client_body_temp_path {base}/b; proxy_temp_path {base}/p; fastcgi_temp_path {base}/f; \
         uwsgi_temp_path {base}/u; scgi_temp_path {base}/s;\n server {{ listen 8080; location / {{ return 200 hello; }} }}\n}}\n"
    );
    fs::write(&conf, text_of).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]);
    command.arg(env!("CARGO_BIN_EXE_longhaul")).args([
        "lab",
        "exec",
        "--rate",
        "100Mbit",
        "--server-port",
        "8080",
    ]);
    command.args(["--server", &format!("exec nginx -c {}", conf.display()), "--", "sh", "-c"]);
    command.arg("curl -s http://server:8080/; ps -eo user:20,args | grep '[n]ginx: worker'");
    let output = command.output().unwrap();
    if output.status.code() == Some(77) {
        println!("skipped: {}", text(&output.stderr));
        return;
    }
    let printed = text(&output.stdout);
    assert!(
        printed.starts_with("hello") && printed.contains("www-data"),
        "{printed}: {}",
        text(&output.stderr)
    );
}
