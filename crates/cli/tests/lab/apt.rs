//! GridFTP-APT's scenarios in small, and the tool for their sessions.

use std::process::{Command, Output};

use serde_json::Value;

use crate::ours::{data_of, ours, root};
use crate::scenario::Scenario;
use crate::support::{skipped, text};

/// Runs the sessions of a command, half a second apart.
fn sessions(count: &str, command: &str) -> Output {
    let tool = root().join("scenarios/tools/sessions");
    Command::new(tool).args([count, "0.5", "sh", "-c", command]).output().unwrap()
}

#[test]
fn sessions_are_compared_over_the_last_of_their_times() {
    // Its first lines come before anything counts; then each session gets its number times 8000 bit/s.
    let command = r#"at=0; while :; do
        echo "{\"at\":$((at / 10)).$((at % 10)),\"event\":\"progress\",\"received\":$((at * 100 * {})),\"rtt\":0.1}"
        echo '{"event":"warning"}'; at=$((at + 1)); sleep 0.1; done"#;
    let output = sessions("3", command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let told: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    for (name, expected) in [
        ("session_1_bps", 8e3),
        ("session_2_bps", 16e3),
        ("session_3_bps", 24e3),
        ("sum_bps", 48e3),
        // (1 + 2 + 3)^2 / (3 (1 + 4 + 9))
        ("jain", 0.8571),
    ] {
        assert_eq!(told[name].as_f64(), Some(expected), "{name}: {told}");
    }
}

#[test]
fn sessions_that_end_early_or_tell_nothing_are_a_failure() {
    for (command, expected) in [
        ("echo 'no space left'; exit 3", "no space left"),
        ("exec sleep 60", "session 1 told nothing of its progress"),
    ] {
        let output = sessions("2", command);
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains(expected), "{error}");
    }
}

fn run(scenario: &Scenario, args: &[&str]) -> Vec<Value> {
    let output = scenario.run(args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let runs = scenario.results();
    assert!(runs.iter().all(|run| run["remarks"].as_array().is_some_and(Vec::is_empty)), "{runs:?}");
    assert!(!scenario.out("file").exists() && !data_of(scenario).exists(), "all is removed");
    runs
}

fn value(run: &Value, name: &str) -> f64 {
    run["values"][name].as_f64().unwrap_or_else(|| panic!("{name}: {run}"))
}

#[test]
fn the_sweeps_in_small() {
    if skipped() {
        return;
    }
    for (name, set, figure) in [
        ("apt-alpha.toml", "alpha=2", "mean-transfer-rate-by-alpha-tau-10-ms.svg"),
        ("apt-delta.toml", "delta=1s", "mean-transfer-rate-by-delta-tau-10-ms.svg"),
        ("apt-n0.toml", "n0=8", "streams-at-the-end-by-n0.svg"),
        ("apt-background.toml", "path.background=20M", "background-traffic-lost.svg"),
    ] {
        let scenario = ours(name);
        let rtt = if name == "apt-background.toml" { &[][..] } else { &["--set", "path.rtt=20ms"] };
        let runs = run(&scenario, &[&["--set", "size=6MB", "--set", set], rtt].concat());
        let [apt, own] = &runs[..] else { panic!("{runs:?}") };
        for run in [apt, own] {
            // 64 KB in 20 ms are 26 Mbit/s on one stream, in 100 ms 5 Mbit/s.
            assert!((3e6..96e6).contains(&value(run, "goodput_bps")), "{run}");
            assert!((1.0..=256.0).contains(&value(run, "streams")), "{run}");
            assert_eq!(value(run, "path_queue_packets"), 100.0);
        }
        assert!(scenario.out(figure).exists(), "{figure}");
    }
}

#[test]
fn the_sessions_in_small() {
    if skipped() {
        return;
    }
    for name in ["apt-fairness-droptail.toml", "apt-fairness-red.toml"] {
        let scenario = ours(name);
        let runs = run(&scenario, &["--set", "apart=1", "--set", "size=1GB"]);
        let [apt, own] = &runs[..] else { panic!("{runs:?}") };
        for run in [apt, own] {
            assert!((0.25..=1.0).contains(&value(run, "jain")), "{run}");
            assert!((30e6..97e6).contains(&value(run, "sum_bps")), "{run}");
        }
        for figure in ["evolution-apt.svg", "evolution-longhaul.svg"] {
            assert!(scenario.read(figure).contains("session 4"), "{figure}");
        }
    }
}
