//! What recording costs, at both ends of a transfer. A test program of its own: others at the same time would
//! take the cores and caches that it measures.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Ended when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Either is in vain where it has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the share of a core that a record says it took of its last line's time.
fn cost(record: &Path) -> f64 {
    let text = fs::read_to_string(record).unwrap();
    let end: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!((&end["event"], &end["telemetry"]["dropped"]), (&"end".into(), &0.into()), "{end}");
    let samples = end["telemetry"]["samples"].as_f64().unwrap();
    // In a debug build they come less often: every 30 ms.
    assert!(samples > 40.0, "{end}");
    end["telemetry"]["cpu"].as_f64().unwrap() / end["at"].as_f64().unwrap()
}

/// Fetches a file within 2 s, recorded every 10 ms at both ends; returns what that cost the receiver and the sender.
fn transfer(program: &str) -> (f64, f64) {
    let dir = tempfile::tempdir_in(".").unwrap();
    let (served, sent, got) =
        (dir.path().join("served"), dir.path().join("serve.jsonl"), dir.path().join("get.jsonl"));
    fs::create_dir(&served).unwrap();
    File::create(served.join("f")).unwrap().set_len(40 << 20).unwrap();
    let mut serve = Command::new(program);
    serve.arg("serve").arg(&served).args(["--listen", "127.0.0.1:0", "--record"]).arg(&sent);
    let mut server = Server(serve.stderr(Stdio::piped()).spawn().unwrap());
    let mut log = BufReader::new(server.0.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("serving ") {
        line.clear();
        assert!(log.read_line(&mut line).unwrap() > 0, "the server ended before it served");
    }
    let url = format!("http://{}/f", line.split("://").nth(1).unwrap().split('/').next().unwrap());
    let mut get = Command::new(program);
    get.args(["get", "--no-memory", "--limit", "20MiB/s", "--quiet", &url, "-o"]).arg(dir.path().join("f"));
    assert!(get.arg("--record").arg(&got).status().unwrap().success());
    kill_process(Pid::from_child(&server.0), Signal::TERM).unwrap();
    assert!(server.0.wait().unwrap().success());
    (cost(&got), cost(&sent))
}

#[test]
fn recording_takes_less_than_one_per_cent_of_a_core() {
    // The build that is shipped, where `make test` names one; without optimisation it takes several times as much.
    let release = std::env::var("LONGHAUL_RELEASE").ok();
    let most = if release.is_some() || !cfg!(debug_assertions) { 0.01 } else { 0.05 };
    let program = release.as_deref().unwrap_or(env!("CARGO_BIN_EXE_longhaul"));
    let mut shares = Vec::new();
    // The machine may be busy with other work: then once more.
    while shares.len() < 3 {
        let (get, serve) = transfer(program);
        shares.push((get, serve));
        if get < most && serve < most {
            return println!("recording took {shares:?} of a core");
        }
    }
    panic!("recording took {shares:?} of a core (get, serve); at most {most} is promised");
}
