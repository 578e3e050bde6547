//! GridFTP-APT's scenarios at a small scale.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::lab::measure;
use crate::support::lab::{Scenario, no_lab, value};

#[test]
fn the_sweeps_in_small() {
    if no_lab() {
        return;
    }
    // The first chunk, N0 W Delta / R, is 8 x 7.8 MB with N0 = 8, more than the file, and also with 4 unless Delta = 1
    // s. Then the second chunk uses alpha = 2 times as many streams.
    for (name, set, streams, figure) in [
        ("apt-alpha", "alpha=2", 4.0, "mean-transfer-rate-by-alpha-tau-10-ms.svg"),
        ("apt-delta", "delta=1s", 8.0, "mean-transfer-rate-by-delta-tau-10-ms.svg"),
        ("apt-n0", "n0=8", 8.0, "streams-at-the-end-by-n0.svg"),
    ] {
        // One stream reaches 26 Mbit/s with its window per RTT; four fill the path, which Longhaul's tuner detects.
        let is_right = |run: &Value| {
            let expected = if run["name"] == "apt" { streams..=streams } else { 1.0..=8.0 };
            expected.contains(&value(run, "streams")) && (10e6..97e6).contains(&value(run, "goodput_bps"))
        };
        let args = ["--set", "size=20MB", "--set", set, "--set", "path.rtt=20ms"];
        let Some((scenario, runs)) = measure(name, &args, |runs| runs.iter().all(is_right)) else { continue };
        assert_eq!(congestion(&scenario), "reno");
        let [apt, own] = &runs[..] else { panic!("{runs:?}") };
        assert_eq!((&apt["name"], &own["name"]), (&"apt".into(), &"longhaul".into()));
        for run in [apt, own] {
            assert!(is_right(run), "{run}");
            assert_eq!(value(run, "path_queue_packets"), 100.0);
        }
        windows_are_the_papers(&scenario);
        assert!(scenario.out(figure).exists(), "{figure}");
    }
}

#[test]
fn the_background_in_small() {
    if no_lab() {
        return;
    }
    // A window allows 5.2 Mbit/s; 80 Mbit/s are left.
    let is_right = |run: &Value| (3e6..80e6).contains(&value(run, "goodput_bps"));
    let args = ["--set", "size=6MB", "--set", "path.background=20M"];
    let Some((scenario, runs)) = measure("apt-background", &args, |runs| runs.iter().all(is_right)) else {
        return;
    };
    assert_eq!(congestion(&scenario), "reno");
    let [apt, own] = &runs[..] else { panic!("{runs:?}") };
    for run in [apt, own] {
        assert!(is_right(run), "{run}");
        assert_eq!(value(run, "path_queue_packets"), 100.0);
        assert!(value(run, "background_server_to_client_packets") > 1000.0, "{run}");
    }
    // The first chunk is 6.3 MB; it is smaller with a longer RTT, and then the rest uses twice as many streams.
    assert!([4.0, 8.0].contains(&value(apt, "streams")), "{apt}");
    // One stream transfers such a small file in two seconds; the tuner may try more.
    assert!((1.0..=8.0).contains(&value(own, "streams")), "{own}");
    windows_are_the_papers(&scenario);
    assert!(scenario.out("background-traffic-lost.svg").exists());
}

/// A socket buffer of 51 KiB gives Linux the stream's window at first; merged packets increase it by up to a third.
fn windows_are_the_papers(scenario: &Scenario) {
    for name in ["apt", "longhaul"] {
        let outputs = fs::read_dir(scenario.out("runs")).unwrap().map(|entry| entry.unwrap().path());
        let is_its = |path: &PathBuf| {
            let file = path.file_name().unwrap().to_str().unwrap();
            file.starts_with(name) && file.ends_with("-client.out")
        };
        let [output] = &outputs.filter(is_its).collect::<Vec<_>>()[..] else { panic!("{name}") };
        let progress_lines = fs::read_to_string(output).unwrap();
        let window = |line: &str| {
            let progress: Value = serde_json::from_str(line).unwrap();
            Some(progress["rwin"].as_f64()? / progress["streams"].as_f64()?)
        };
        let mut windows: Vec<f64> = progress_lines.lines().filter_map(window).collect();
        windows.sort_by(f64::total_cmp);
        let (usual, largest) = (windows[windows.len() / 4], windows[windows.len() - 1]);
        assert!(
            (0.95 * 65536.0..=65536.0).contains(&usual) && largest < 2.0 * 65536.0,
            "{name}: {windows:?}"
        );
    }
}

fn congestion(scenario: &Scenario) -> String {
    let results: Value = serde_json::from_str(&scenario.read("results.json")).unwrap();
    results["path"]["congestion"].as_str().unwrap().to_owned()
}

#[test]
fn the_sessions_in_small() {
    if no_lab() {
        return;
    }
    for name in ["apt-fairness-droptail", "apt-fairness-red"] {
        let is_right = |run: &Value| {
            (0.4..=1.0).contains(&value(run, "jain")) && (60e6..97e6).contains(&value(run, "sum_bps"))
        };
        let args = ["--set", "apart=3", "--set", "size=1GB"];
        let Some((scenario, runs)) = measure(name, &args, |runs| runs.iter().all(is_right)) else { continue };
        let [apt, own] = &runs[..] else { panic!("{runs:?}") };
        for run in [apt, own] {
            assert!(is_right(run), "{run}");
            let each: f64 = (1..=4).map(|n| value(run, &format!("session_{n}_bps"))).sum();
            assert!((each - value(run, "sum_bps")).abs() < 4.0, "{run}");
        }
        for figure in ["evolution-apt.svg", "evolution-longhaul.svg"] {
            assert!(scenario.read(figure).contains("session 4"), "{figure}");
        }
    }
}
