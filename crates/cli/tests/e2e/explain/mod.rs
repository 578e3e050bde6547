//! `longhaul explain` as a process: of records, of running processes, of a transfer over an emulated path.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::lab::{exec_in, last_object, needs_lab, objects, ran, ran_in, wait_until};
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

/// Checks that a command fails with `code` and an error that contains `words`, and prints no explanation.
#[track_caller]
fn fails(home: &Path, args: &[&str], code: i32, words: &[&str]) {
    let ended = explain(home, args);
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(code), ""), "{args:?}: {ended:?}");
    assert!(words.iter().all(|word| ended.stderr.contains(word)), "{args:?}: {ended:?}");
}

/// The user's limit is a fifth of the path's rate, and the queue holds the whole file.
#[test]
fn transfer_below_the_rate_loses_nothing_and_names_its_limit() {
    const SIZE: u64 = 4_000_000;
    let Some(()) = needs_lab() else { return };
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("served")).unwrap();
    fs::write(home.path().join("served/file"), vec![7; SIZE as usize]).unwrap();
    let path = ["--rate", "100Mbit", "--rtt", "20ms", "--queue", "8MB", "--json", "--server-port", "8080"];
    let serve = "exec longhaul serve served --listen $LAB_SERVER:8080";
    let get = "longhaul get --json --no-memory --limit 20Mbit --record r.jsonl --record-interval 50ms -o got http://$LAB_SERVER:8080/file";
    let ended = ran(exec_in(home.path(), &[&path[..], &["--server", serve]].concat(), get)).ok();
    let done = objects(&ended).into_iter().find(|event| event["event"] == "done").unwrap();
    for (name, expected) in [("bytes", SIZE.into()), ("streams", 1.into()), ("limited_by", "limit".into())] {
        let expected: serde_json::Value = expected;
        assert_eq!(done[name], expected, "{name}: {done}");
    }
    assert!(done["advice"][0].as_str().unwrap().starts_with("limited by "), "{done}");
    let carried = last_object(&ended);
    for direction in ["client_to_server", "server_to_client"] {
        assert_eq!(carried[direction]["dropped_queue"], 0, "{carried}");
    }
    // Headers, and no payload a second time.
    let bytes = carried["server_to_client"]["bytes"].as_u64().unwrap();
    assert!((SIZE..SIZE * 11 / 10).contains(&bytes), "{carried}");
    assert_eq!(explained(home.path(), &["r.jsonl"])[0]["limited_by"], "limit");
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
    // Another program as reader: bash, at up to 10 MB/s, for a window opens again only by a part of its buffer.
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

/// Ten seconds of a lossy download, with samples only.
fn record() -> String {
    let mut lines = format!("{HEADER}\n");
    for tenth in 0..100 {
        let (at, moved, lost) = (f64::from(tenth) / 10.0, tenth * 1_000_000, tenth / 3);
        writeln!(
            lines,
            r#"{{"at":{at},"job":1,"event":"sample","moved":{moved},"sockets":{{"open":1,"unread":0,"rwin":9000000,"rtt":0.05,"data_rtt":0.05,"min_rtt":0.05,"retransmits":0,"out_of_order":{lost},"acked":0}},"streams":[]}}"#
        )
        .unwrap();
    }
    lines + "{\"at\":10.0,\"event\":\"end\",\"telemetry\":{\"samples\":100,\"dropped\":0,\"cpu\":0.001}}\n"
}

#[test]
fn record_of_samples_is_explained_from_them() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("r.jsonl"), record()).unwrap();
    let explained = explained(home.path(), &["r.jsonl"]);
    assert_eq!((explained.len(), &explained[0]["limited_by"]), (1, &"loss".into()), "{explained:?}");
    let shares = explained[0]["shares"].as_object().unwrap();
    let sum: f64 = shares.values().map(|share| share.as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 0.001 && shares["loss"].as_f64().unwrap() > 0.8, "{shares:?}");
    let last = explained[0]["timeline"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["limited_by"], &last["to"]), (&"loss".into(), &9.9.into()));
    let words = explain(home.path(), &["r.jsonl"]).ok().stdout;
    for word in ["http://server/big", "limited by packet loss for ", "arrived out of order", "BBR"] {
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
