//! `longhaul lab` as its user sees it, up to a SIGKILL.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail so")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const SLOW: [&str; 4] = ["--rate", "100Mbit", "--rtt", "20ms"];

fn exec(options: &[&str], shell: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(["lab", "exec"]).args(options).args(["--", "sh", "-c", shell]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Says why no lab can be built here; under CI that is a failure.
fn skipped() -> bool {
    let output = exec(&SLOW, "true").output().unwrap();
    if output.status.success() {
        return false;
    }
    let why = text(&output.stderr);
    assert!(output.status.code() == Some(77), "{why}");
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
    println!("skipped: {why}");
    true
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// Returns the processes whose command line holds `word`.
fn processes_with(word: &str) -> Vec<PathBuf> {
    let holds = |path: &PathBuf| {
        fs::read(path.join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(word))
    };
    fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path()).filter(holds).collect()
}

/// Says whether any process lives in the network namespace `name` ("net:[4026532000]").
fn is_namespace_alive(name: &str) -> bool {
    let lives_there =
        |path: PathBuf| fs::read_link(path.join("ns/net")).is_ok_and(|ns| ns == Path::new(name));
    fs::read_dir("/proc").unwrap().any(|entry| lives_there(entry.unwrap().path()))
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(5), "in vain: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn passes_on_output_and_exit_status() {
    if skipped() {
        return;
    }
    let Output { status, stdout, stderr } = exec(&SLOW, "echo $LAB_NEAR-$LAB_FAR; exit 42").output().unwrap();
    assert_eq!(status.code(), Some(42));
    assert_eq!(text(&stdout), "198.18.0.1-198.18.0.2");
    assert!(text(&stderr).contains("lab: near to far: "), "{}", text(&stderr));
    assert_eq!(exec(&[], "kill -9 $$").output().unwrap().status.code(), Some(128 + 9));
}

#[test]
fn runs_the_far_command_on_the_far_host() {
    if skipped() {
        return;
    }
    let mark = tempfile::NamedTempFile::new().unwrap();
    let far = format!("ip -4 -o addr > {0}; sleep 98762", mark.path().display());
    let near = format!("until grep -q 198.18.0.2/24 {0}; do sleep 0.01; done", mark.path().display());
    let output = exec(&[&SLOW[..], &["--far", &far]].concat(), &near).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(processes_with("98762").is_empty(), "the far command has ended");
    let output = exec(&["--far", "exit 5"], "sleep 0.2").output().unwrap();
    assert!(text(&output.stderr).contains("the far command ended early: exit status: 5"));
    let output = exec(&["--far", "exit 5", "--far-port", "80"], "true").output().unwrap();
    assert_eq!(output.status.code(), Some(71));
    let error = text(&output.stderr);
    assert!(error.contains("nothing listens on port 80 of the far host"), "{error}");
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
    let near = "setsid sleep 98763 & readlink /proc/self/ns/net; exec sleep 98763";
    let far = [&SLOW[..], &["--far", "setsid sleep 98763 & sleep 98763"]].concat();
    let mut child = exec(&far, near).spawn().unwrap();
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
fn explains_what_it_cannot_do() {
    for (options, expected) in [
        (["--loss", "2"], "loss: 2 is not a share between 0 and 1"),
        (["--queue", "10p"], "a queue needs a rate"),
        (["--rate", "fast"], "'fast' is not a rate"),
        (["--hosts", "big"], "'big' is not one of stock, tuned"),
    ] {
        let output = exec(&options, "true").output().unwrap();
        let error = text(&output.stderr);
        let code = output.status.code();
        assert!(code == Some(64) && error.contains(expected) || code == Some(77), "{code:?}: {error}");
    }
}

#[test]
fn an_exit_code_says_what_kind_of_failure_it_was() {
    if skipped() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let good = write("good.toml", "[path]\n[[run]]\nname = 'one'\ncommand = 'true'\n");
    let bad = write("bad.toml", "[path]\nloss = 2\n[[run]]\nname = 'one'\ncommand = 'true'\n");
    let absent = dir.path().join("absent.toml");
    for (scenario, out, code) in
        [(&bad, dir.path(), 64), (&absent, dir.path(), 66), (&good, &good.join("below-a-file"), 73)]
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        let output = command.args(["lab", "run"]).arg(scenario).arg("--out").arg(out).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
    }
    let unknown = exec(&["--congestion", "warp"], "true").output().unwrap();
    assert_eq!(unknown.status.code(), Some(71), "{}", text(&unknown.stderr));
}

/// Root that lacks the capability gets it in a user namespace, or is told which one it lacks.
#[test]
fn root_without_the_capability_is_no_dead_end() {
    if skipped() || !rustix::process::geteuid().is_root() {
        println!("skipped: not as root");
        return;
    }
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]);
    command.arg(env!("CARGO_BIN_EXE_longhaul")).args(["lab", "exec", "--", "true"]);
    let output = command.output().unwrap();
    let error = text(&output.stderr);
    let told = output.status.code() == Some(77) && error.contains("CAP_SYS_ADMIN");
    assert!(output.status.success() || told, "{:?}: {error}", output.status);
}

#[test]
fn runs_a_scenario() {
    if skipped() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let scenario = out.path().join("small.toml");
    fs::write(
        &scenario,
        "[path]\nrate = '100Mbit'\nrtt = '2ms'\n\
         [far]\ncommand = 'sleep 0.3; exec iperf3 --server'\nport = 5201\n\
         [[run]]\nname = 'good'\ncommand = 'echo $LAB_FAR; iperf3 -c $LAB_FAR -n 1M > /dev/null'\nrepeat = 2\n\
         [[run]]\nname = 'bad'\ncommand = 'exit 3'\n\
         [[run]]\nname = 'endless'\ncommand = 'trap \"exit 0\" TERM; sleep 60 & wait'\ntimeout = '100ms'\n",
    )
    .unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    let output = command.args(["lab", "run"]).arg(&scenario).arg("--out").arg(out.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "one run failed: {}", text(&output.stderr));
    assert!(text(&output.stdout).contains("good         2/2"), "{}", text(&output.stdout));
    let json = fs::read(out.path().join("results.json")).unwrap();
    let results: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let runs: Vec<_> = results["runs"].as_array().unwrap().iter().collect();
    let order: Vec<_> = runs.iter().map(|run| (run["name"].as_str().unwrap(), &run["exit_code"])).collect();
    assert_eq!(order, [("good", &0.into()), ("bad", &3.into()), ("endless", &0.into()), ("good", &0.into())]);
    assert!(text(&output.stdout).contains("endless      0/1"), "{}", text(&output.stdout));
    assert_eq!(runs.iter().map(|run| &run["timed_out"]).filter(|over| **over == true).count(), 1);
    assert_eq!(fs::read_to_string(out.path().join("good-2-near.log")).unwrap(), "198.18.0.2\n");
}
