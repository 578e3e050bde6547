//! CPU costs of recording a transfer and of observing another process. The release build is
//! measured if `make test-paths` names one; without optimisation the costs are several times as
//! high.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::lab::ran;
use crate::support::running::Running;

/// Returns the program to measure, and the limit for its kind of build.
pub(crate) fn program_and_limit(release: f64, debug: f64) -> (String, f64) {
    let built = std::env::var("LONGHAUL_RELEASE").ok();
    let limit = if built.is_some() || !cfg!(debug_assertions) { release } else { debug };
    (built.unwrap_or(env!("CARGO_BIN_EXE_longhaul").to_owned()), limit)
}

/// Measures shares of a core until one set is below the limit: on a busy machine the same work
/// takes more CPU time.
fn judge<const N: usize>(what: &str, limit: f64, attempts: usize, measure: impl Fn() -> [f64; N]) {
    let mut shares = Vec::new();
    while shares.len() < attempts {
        shares.push(measure());
        if shares[shares.len() - 1].iter().all(|share| *share < limit) {
            return println!("{what} took {shares:?} of a core");
        }
    }
    panic!("{what} took {shares:?} of a core; at most {limit} is promised");
}

/// Serves a sparse file `f` of this size in a new directory; returns the server, the directory and
/// a `get` of the file at 20 MiB/s.
fn serve_and_get(program: &str, size: u64, options: &[&str]) -> (Running, TempDir, Command) {
    let dir = tempfile::tempdir_in(".").unwrap();
    fs::create_dir(dir.path().join("served")).unwrap();
    File::create(dir.path().join("served/f")).unwrap().set_len(size).unwrap();
    let program = fs::canonicalize(program).unwrap();
    let mut serve = Command::new(&program);
    serve.args(["serve", "served", "--listen", "127.0.0.1:0"]).args(options).current_dir(dir.path());
    let (server, address) = Running::server(&mut serve);
    let mut get = Command::new(&program);
    get.args(["get", "--no-memory", "--limit", "20MiB/s", "--quiet", &format!("http://{address}/f")]);
    get.current_dir(dir.path());
    (server, dir, get)
}

/// Returns a record's reported CPU time as a share of one core until its last line.
fn recorded_cost(record: &Path) -> f64 {
    let text = fs::read_to_string(record).unwrap();
    let end: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!((&end["event"], &end["telemetry"]["dropped"]), (&"end".into(), &0.into()), "{end}");
    assert!(end["telemetry"]["samples"].as_f64().unwrap() > 100.0, "{end}");
    end["telemetry"]["cpu"].as_f64().unwrap() / end["at"].as_f64().unwrap()
}

#[test]
fn recording_takes_less_than_one_per_cent_of_a_core() {
    let (program, limit) = program_and_limit(0.01, 0.05);
    // By default a debug build would sample too rarely to be measured.
    let interval: &[&str] = if limit > 0.01 { &["--record-interval", "10ms"] } else { &[] };
    // Both ends of a transfer of 2 s.
    judge("recording by get and serve", limit, 10, || {
        let recorded = [&["--record", "serve.jsonl"], interval].concat();
        let (mut server, dir, mut get) = serve_and_get(&program, 40 << 20, &recorded);
        get.args(["-o", "f", "--record", "get.jsonl"]).args(interval);
        assert!(get.status().unwrap().success());
        kill_process(Pid::from_child(&server.0), Signal::TERM).unwrap();
        assert!(server.0.wait().unwrap().success());
        ["get.jsonl", "serve.jsonl"].map(|record| recorded_cost(&dir.path().join(record)))
    });
}

#[test]
fn observing_a_process_takes_less_than_half_a_per_cent_of_a_core() {
    let (program, limit) = program_and_limit(0.005, 0.01);
    let (_server, _dir, mut get) = serve_and_get(&program, 1 << 30, &[]);
    let mut client = Running(get.args(["-o", "-"]).stdout(Stdio::piped()).spawn().unwrap());
    let mut body = client.0.stdout.take().unwrap();
    body.read_exact(&mut [0; 1]).unwrap();
    let reader = std::thread::spawn(move || std::io::copy(&mut body, &mut std::io::sink()));
    // The CPU seconds of an observation; the `time` of bash has a resolution of milliseconds.
    let observe = |seconds: u32| -> f64 {
        let observe = format!("explain --pid {} --for {seconds}s --json", client.0.id());
        let mut bash = Command::new("bash");
        bash.args(["-c", &format!("TIMEFORMAT='%U %S'; time \"$0\" {observe}"), &program]);
        let ended = ran(bash).ok();
        assert!(ended.stdout.contains("\"limited_by\""), "{ended:?}");
        let times = ended.stderr.lines().last().unwrap();
        times.split_whitespace().map(|time| time.parse::<f64>().unwrap()).sum()
    };
    // Subtracts a run of 1 s from one of 5 s to exclude the start-up cost.
    judge("observing", limit, 3, || [(observe(5) - observe(1)) / 4.0]);
    drop(client);
    reader.join().unwrap().unwrap();
}
