//! GridFTP-APT's scenarios at a small scale.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::lab::measure;
use crate::support::lab::{Scenario, needs_lab, value};

#[test]
fn the_sweeps_and_the_background_in_small() {
    let Some(()) = needs_lab() else { return };
    let sweep = |set| ["--set", "size=20MB", "--set", set, "--set", "path.rtt=20ms"];
    let background = ["--set", "size=6MB", "--set", "path.background=20M", "--set", "path.rtt=100ms"];
    // The first chunk of a sweep, N0 W Delta / R, is 8 x 7.8 MB with N0 = 8, more than the file,
    // and also with 4 unless Delta = 1 s. Then the second chunk uses alpha = 2 times as many
    // streams. That of the background is 6.3 MB, or smaller with a longer RTT.
    for (name, args, streams, figure) in [
        ("apt-alpha", sweep("alpha=2"), [4.0, 4.0], "mean-transfer-rate-by-alpha-tau-10-ms.svg"),
        ("apt-delta", sweep("delta=1s"), [8.0, 8.0], "mean-transfer-rate-by-delta-tau-10-ms.svg"),
        ("apt-n0", sweep("n0=8"), [8.0, 8.0], "streams-at-the-end-by-n0.svg"),
        ("apt-background", background, [4.0, 8.0], "background-traffic-lost.svg"),
    ] {
        let has_background = name == "apt-background";
        // One stream reaches 26 Mbit/s with its window per RTT, or 5.2 Mbit/s beside the
        // background, where 80 Mbit/s are left; four fill the path, which Longhaul's tuner detects.
        let rates = if has_background { 3e6..80e6 } else { 10e6..97e6 };
        let is_right = |run: &Value| {
            let used = value(run, "streams");
            let expected = run["name"] != "apt" && (1.0..=8.0).contains(&used) || streams.contains(&used);
            expected && rates.contains(&value(run, "goodput_bps"))
        };
        let measured = measure(name, &args, |scenario, runs| {
            runs.iter().all(is_right) && windows_are_the_papers(scenario)
        });
        let Some((scenario, runs)) = measured else { continue };
        assert_eq!(congestion(&scenario), "reno");
        let [apt, own] = &runs[..] else { panic!("{runs:?}") };
        assert_eq!((&apt["name"], &own["name"]), (&"apt".into(), &"longhaul".into()));
        for run in [apt, own] {
            assert!(is_right(run), "{run}");
            assert_eq!(value(run, "path_queue_packets"), 100.0);
            let packets = run["values"]["background_server_to_client_packets"].as_f64();
            assert_eq!(packets.is_some_and(|packets| packets > 1000.0), has_background, "{run}");
        }
        assert!(windows_are_the_papers(&scenario), "{name}");
        assert!(scenario.out(figure).exists(), "{figure}");
    }
}

/// A socket buffer of 51 KiB gives Linux the stream's window at first; merged packets increase it
/// by up to a third.
fn windows_are_the_papers(scenario: &Scenario) -> bool {
    ["apt", "longhaul"].iter().all(|name| {
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
        (0.95 * 65536.0..=65536.0).contains(&usual) && largest < 2.0 * 65536.0
    })
}

fn congestion(scenario: &Scenario) -> String {
    let results: Value = serde_json::from_str(&scenario.read("results.json")).unwrap();
    results["path"]["congestion"].as_str().unwrap().to_owned()
}

#[test]
fn the_sessions_in_small() {
    let Some(()) = needs_lab() else { return };
    for name in ["apt-fairness-droptail", "apt-fairness-red"] {
        let is_right = |run: &Value| {
            (0.4..=1.0).contains(&value(run, "jain")) && (60e6..97e6).contains(&value(run, "sum_bps"))
        };
        let args = ["--set", "apart=3", "--set", "size=1GB"];
        let Some((scenario, runs)) = measure(name, &args, |_, runs| runs.iter().all(is_right)) else {
            continue;
        };
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
