//! `longhaul explain` as a process: of records, of running processes, of a transfer over an
//! emulated path.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::lab::{objects, ran, ran_in, wait_until};
use crate::support::running::Running;
use crate::support::{Ended, needs_root, public_copy};

fn explain(home: &Path, args: &[&str]) -> Ended {
    ran_in(home, &[&["explain"], args].concat())
}

/// Returns the explanations that a command prints as JSON.
#[track_caller]
fn explained(home: &Path, args: &[&str]) -> Vec<Value> {
    let explained = objects(&explain(home, &[args, &["--json"]].concat()).ok());
    assert!(!explained.is_empty(), "{args:?}");
    explained
}

/// Checks that a command fails with `code` and an error that contains `words`, and prints no
/// explanation.
#[track_caller]
fn fails(home: &Path, args: &[&str], code: i32, words: &[&str]) {
    let ended = explain(home, args);
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(code), ""), "{args:?}: {ended:?}");
    assert!(words.iter().all(|word| ended.stderr.contains(word)), "{args:?}: {ended:?}");
}

#[test]
fn program_that_reads_slowly_is_the_limit_of_its_own_download() {
    let home = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let sender = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        // Writes until the reader closes.
        while socket.write_all(&[7; 65_536]).is_ok() {}
    });
    // Another program as reader: bash, at up to 10 MB/s, for a window opens again only by a part of
    // its buffer.
    let script =
        format!("exec 3<>/dev/tcp/127.0.0.1/{port}; while head -c 1M <&3 >/dev/null; do sleep 0.1; done");
    let child = Running(Command::new("bash").args(["-c", &script]).stdin(Stdio::null()).spawn().unwrap());
    let flow = &explained(home.path(), &["--pid", &child.0.id().to_string(), "--for", "2s"])[0];
    // The sender, which is this process.
    let flows = explained(home.path(), &["--pid", &std::process::id().to_string(), "--for", "2s"]);
    drop(child);
    sender.join().unwrap();
    assert_eq!((&flow["sends"], &flow["limited_by"]), (&false.into(), &"application".into()), "{flow}");
    let sent = flows.iter().find(|sent| sent["from"] == flow["from"] && sent["sends"] == true).unwrap();
    assert!(sent["bytes"].as_u64() > Some(0) && sent["shares"]["path"].as_f64() < Some(0.5), "{sent}");
}

#[test]
fn missing_and_idle_processes_are_reported() {
    let home = tempfile::tempdir().unwrap();
    fails(home.path(), &["--pid", "4194305"], 66, &["there is no process 4194305"]);
    fails(home.path(), &["--pid", "0"], 64, &["--pid"]);
    fails(home.path(), &["--pid", "1", "--for", "0s"], 64, &["--for"]);
    let idle = Running(Command::new("sleep").arg("60").spawn().unwrap());
    let pid = idle.0.id().to_string();
    fails(home.path(), &["--pid", &pid, "--for", "100ms"], 66, &["has moved data", "--for"]);
}

/// Runs a program as an unprivileged user.
const UNPRIVILEGED: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// Explains a process as an unprivileged user; checks that the error contains `words`.
fn refused_to_unprivileged(process: u32, words: &[&str]) {
    let (dir, program) = public_copy();
    let mut command = Command::new(UNPRIVILEGED[0]);
    command.args(&UNPRIVILEGED[1..]).arg(&program).args(["explain", "--for", "1s"]);
    command.args(["--pid", &process.to_string()]).env("HOME", dir.path()).current_dir(dir.path());
    ran(command).fails(77, &[words, &["TCP_INFO", "would show what limits each"]].concat());
}

#[test]
fn process_of_another_user_or_network_is_refused_with_the_missing_evidence() {
    let Some(()) = needs_root("becoming another user") else { return };
    let own = std::process::id();
    refused_to_unprivileged(own, &[&format!("process {own}"), "belongs to another user", "as root"]);

    // Root may read the network of a process, its own user may not.
    let mut command = Command::new("unshare");
    command.arg("--net").args(UNPRIVILEGED).args(["sleep", "120"]);
    let process = Running(command.stdin(Stdio::null()).spawn().unwrap());
    let pid = process.0.id();
    let comm = Path::new("/proc").join(pid.to_string()).join("comm");
    wait_until("it has entered its namespace", || fs::read(&comm).is_ok_and(|name| name == b"sleep\n"));
    refused_to_unprivileged(pid, &[&format!("network namespace of process {pid}"), "run this as root"]);
    let home = tempfile::tempdir().unwrap();
    fails(home.path(), &["--pid", &pid.to_string(), "--for", "100ms"], 66, &["has moved data"]);
}

const HEADER: &str = r#"{"record":"longhaul","version":2,"side":"get","what":"http://server/big","program":"longhaul 0.1.0","started":1795219200.0,"interval":0.1,"host":{"name":"near","kernel":"6.1.0","cores":2}}"#;

#[test]
fn record_is_explained_in_words_and_by_witnesses() {
    let home = tempfile::tempdir().unwrap();
    let loss =
        r#"{"limit":"loss","witness":"losses","seconds":9.0,"rate_bps":80000000,"min_rtt":0.05,"lost":33}"#;
    let done = format!(
        r#"{{"at":10.0,"job":1,"event":"done","bytes":99000000,"seconds":10.0,"limited_by":"loss","shares":{{"loss":0.9,"slow-start":0.1}},"witnesses":[{loss}],"advice":["limited by packet loss","does BBR gain?"]}}"#
    );
    let limited = r#"{"at":1.0,"job":1,"event":"limited","by":"loss","ago":0.5}"#;
    fs::write(home.path().join("r.jsonl"), format!("{HEADER}\n{limited}\n{done}\n")).unwrap();
    let explained = explained(home.path(), &["r.jsonl"]);
    assert_eq!((explained.len(), &explained[0]["limited_by"]), (1, &"loss".into()), "{explained:?}");
    assert_eq!(explained[0]["witnesses"][0], serde_json::from_str::<Value>(loss).unwrap());
    assert_eq!(explained[0]["timeline"][0]["to"], 10.0);
    let words = explain(home.path(), &["r.jsonl"]).ok().stdout;
    for word in ["http://server/big", "limited by packet loss", "does BBR gain?", "0.5 s to   10.0 s  loss"] {
        assert!(words.contains(word), "{words}");
    }
}

#[test]
fn unexplainable_files_are_reported_with_a_reason() {
    let home = tempfile::tempdir().unwrap();
    fails(home.path(), &["none.jsonl"], 66, &["none.jsonl"]);
    fs::write(home.path().join("note.txt"), "no record").unwrap();
    fails(home.path(), &["note.txt"], 65, &["note.txt is no record of longhaul"]);
    fs::write(home.path().join("text.pcap"), "no capture").unwrap();
    fails(home.path(), &["text.pcap"], 65, &["text.pcap is no capture", "tcpdump"]);
    fails(home.path(), &["missing.pcap"], 66, &["missing.pcap"]);
    fs::write(home.path().join("empty.jsonl"), format!("{HEADER}\n")).unwrap();
    let output = explain(home.path(), &["empty.jsonl"]);
    assert_eq!(output.status.code(), Some(65));
    assert!(output.stdout.contains("nothing was measured"), "{output:?}");
    fails(home.path(), &[], 64, &["required"]);
    fails(home.path(), &["note.txt", "--pid", "1"], 64, &["cannot be used with"]);
}
