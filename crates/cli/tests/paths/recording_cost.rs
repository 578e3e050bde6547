//! CPU cost of recording, at both ends of a transfer. A separate test program: concurrent tests would use the measured cores and caches.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::running::Running;

/// Returns a record's reported CPU time as a share of one core until its last line.
fn cost(record: &Path) -> f64 {
    let text = fs::read_to_string(record).unwrap();
    let end: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!((&end["event"], &end["telemetry"]["dropped"]), (&"end".into(), &0.into()), "{end}");
    let samples = end["telemetry"]["samples"].as_f64().unwrap();
    assert!(samples > 100.0, "{end}");
    end["telemetry"]["cpu"].as_f64().unwrap() / end["at"].as_f64().unwrap()
}

/// Fetches a file within 2 s, recorded at both ends with these options; returns the cost at receiver and sender.
fn transfer(program: &str, options: &[&str]) -> (f64, f64) {
    let dir = tempfile::tempdir_in(".").unwrap();
    let (served, sent, got) =
        (dir.path().join("served"), dir.path().join("serve.jsonl"), dir.path().join("get.jsonl"));
    fs::create_dir(&served).unwrap();
    File::create(served.join("f")).unwrap().set_len(40 << 20).unwrap();
    let mut serve = Command::new(program);
    serve.arg("serve").arg(&served).args(["--listen", "127.0.0.1:0", "--record"]).arg(&sent).args(options);
    let (mut server, address) = Running::server(&mut serve);
    let url = format!("http://{address}/f");
    let mut get = Command::new(program);
    get.args(["get", "--no-memory", "--limit", "20MiB/s", "--quiet", &url, "-o"]).arg(dir.path().join("f"));
    assert!(get.arg("--record").arg(&got).args(options).status().unwrap().success());
    kill_process(Pid::from_child(&server.0), Signal::TERM).unwrap();
    assert!(server.0.wait().unwrap().success());
    (cost(&got), cost(&sent))
}

#[test]
fn recording_takes_less_than_one_per_cent_of_a_core() {
    // The release build, if `make test` names one; without optimisation the cost is several times as high.
    let release = std::env::var("LONGHAUL_RELEASE").ok();
    let (most, options): (_, &[_]) = match release.is_some() || !cfg!(debug_assertions) {
        true => (0.01, &[]),
        // By default a debug build would sample too rarely to be measured.
        false => (0.05, &["--record-interval", "10ms"]),
    };
    let program = release.as_deref().unwrap_or(env!("CARGO_BIN_EXE_longhaul"));
    let mut shares = Vec::new();
    // Repeats the measurement: on a busy machine the same work takes more CPU time.
    while shares.len() < 10 {
        let (get, serve) = transfer(program, options);
        shares.push((get, serve));
        if get < most && serve < most {
            return println!("recording took {shares:?} of a core");
        }
    }
    panic!("recording took {shares:?} of a core (get, serve); at most {most} is promised");
}
