//! Emulated paths: what is found is what was emulated. `scripts/probe-accuracy.sh` has ten of them.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{BIN, alone, text};

/// A path and what it is to be found as.
struct Path {
    options: [&'static str; 8],
    rate: f64,
    rtt: f64,
    queue: f64,
}

/// Probes across a path; `None` where no lab can be built, which under CI is a failure.
fn probe(path: &Path) -> Option<Value> {
    let home = tempfile::tempdir().unwrap();
    let site = tempfile::tempdir().unwrap();
    std::fs::write(site.path().join("f"), vec![7; 4 << 20]).unwrap();
    let far = format!("{BIN} serve {} --listen 198.18.0.2:8080 --measure", site.path().display());
    let mut command = Command::new(BIN);
    command.args(["lab", "exec", "--hosts", "tuned"]).args(path.options).args([
        "--far",
        &far,
        "--far-port",
        "8080",
    ]);
    command.args(["--", BIN, "probe", "http://198.18.0.2:8080/f", "--json"]).env("HOME", home.path());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let error = text(&output.stderr);
    if output.status.code() == Some(77) {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{error}");
        println!("skipped: {error}");
        return None;
    }
    assert!(output.status.success(), "{error}");
    Some(serde_json::from_str(&text(&output.stdout)).unwrap())
}

fn check(path: &Path) -> Option<Value> {
    let _alone = alone();
    let report = probe(path)?;
    let near = |what: &str, found: &Value, truth: f64| {
        let ratio = found.as_f64().unwrap() / truth;
        assert!((0.75..1.25).contains(&ratio), "{what}: {found}, not {truth}: {report}");
    };
    near("rate", &report["path"]["rate"]["rate_bps"], path.rate);
    near("RTT", &report["rtt"][0]["min"], path.rtt);
    near("queue", &report["path"]["queue"]["bytes"], path.queue);
    assert_eq!(report["path"]["mtu"], 1500);
    // A tenth of ten seconds, and what a busy machine measures too much.
    assert!(report["bytes"].as_f64().unwrap() < path.rate / 8.0 * 1.3, "{report}");
    assert!(report["seconds"].as_f64().unwrap() < 15.0, "{report}");
    Some(report)
}

#[test]
fn short_slow_path_is_found() {
    check(&Path {
        options: ["--rate", "20Mbit", "--rtt", "20ms", "--queue", "100kB", "--loss", "0"],
        rate: 20e6,
        rtt: 0.02,
        queue: 1e5,
    });
}

#[test]
fn long_lossy_path_is_found() {
    let found = check(&Path {
        options: ["--rate", "100Mbit", "--rtt", "100ms", "--queue", "400kB", "--loss", "0.01"],
        rate: 1e8,
        rtt: 0.1,
        queue: 4e5,
    });
    let Some(report) = found else { return };
    let loss = report["path"]["loss"]["share"].as_f64().unwrap();
    assert!((0.006..0.015).contains(&loss), "{report}");
    assert!(report["verdict"]["advice"].to_string().contains("bbr"), "{report}");
}
