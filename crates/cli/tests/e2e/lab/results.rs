//! Repeating `longhaul lab run`: missing executions run, existing results are kept.

use std::fs;

use crate::support::lab::{Scenario, no_lab};

const FLAKY: &str = "[path]\n\
    [[run]]\nname = 'steady'\ncommand = 'true'\nrepeat = 2\n\
    [[run]]\nname = 'flaky'\ncommand = 'test -e $LAB_DIR/now'\n";

#[test]
fn failed_and_missing_executions_are_resumed() {
    if no_lab() {
        return;
    }
    let scenario = Scenario::new(FLAKY);
    assert_eq!(scenario.run(&["--repeat", "1"]).status.code(), Some(1));
    assert_eq!(scenario.executed(), ["steady 1", "flaky 1"]);
    fs::write(scenario.path("now"), "").unwrap();
    let listed = scenario.run(&["--list"]);
    assert_eq!(listed.stdout, "flaky (1)\nsteady (2)");
    // More repetitions and a comment do not change the measurements.
    scenario.rewrite(&format!("# Again\n{FLAKY}"));
    scenario.run(&[]).ok();
    assert_eq!(scenario.executed(), ["steady 1", "flaky 1", "steady 2"]);

    let before = scenario.read("results.json");
    fs::remove_file(scenario.out("summary.md")).unwrap();
    let ended = scenario.run(&[]).ok();
    assert!(ended.stderr.contains("lab: all 3 executions are done already"), "{ended:?}");
    assert_eq!(scenario.read("results.json"), before);
    let summary = scenario.read("summary.md");
    // A busy machine may not hold the path: " (1 marked)" may follow.
    assert!(summary.contains("| steady ") && summary.contains(" | 2/2"), "{summary}");
}

#[test]
fn never_mixes_or_overwrites_other_results() {
    if no_lab() {
        return;
    }
    let scenario = Scenario::new(FLAKY);
    scenario.run(&["--only", "steady"]);
    let good = scenario.read("results.json");
    scenario.rewrite(&FLAKY.replace("'true'", "'exit 0'"));
    scenario.run(&[]).fails(64, &["holds results of another scenario"]);

    let damaged = &good[..good.len() / 2];
    fs::write(scenario.out("results.json"), damaged).unwrap();
    for args in [&["--list"][..], &[]] {
        scenario.run(args).fails(65, &["damaged", "--fresh"]);
    }
    assert_eq!(scenario.read("results.json"), damaged);
    fs::write(scenario.out("results.json"), &good).unwrap();
    assert!(scenario.out("runs/steady-2-client.out").exists());
    scenario.run(&["--fresh", "--only", "steady", "--repeat", "1"]).ok();
    assert_eq!(scenario.executed(), ["steady 1"]);
    assert!(!scenario.out("runs/steady-2-client.out").exists(), "thrown away");
}

/// A path that no machine holds is repeated, excluded from medians, and a failure with --strict. A repetition that fails keeps the earlier result.
#[test]
fn deviating_path_is_repeated_and_excluded_from_medians() {
    if no_lab() {
        return;
    }
    // Fails in later attempts where `fails` exists.
    let scenario = Scenario::new(
        "[path]\ndelay = '1us'\n[[run]]\nname = 'one'\ncommand = 'curl -s http://$LAB_SERVER:9/; echo run >> $LAB_DIR/ran; \
         echo $(wc -l < $LAB_DIR/ran); test ! -e $LAB_DIR/fails || test $(wc -l < $LAB_DIR/ran) = 1'\n",
    );
    scenario.run(&["--retries", "1"]).ok();
    assert_eq!(fs::read_to_string(scenario.path("ran")).unwrap(), "run\n".repeat(2));
    assert_eq!(scenario.results()[0]["attempts"], 2);
    let summary = scenario.read("summary.md");
    let row = |name: &str| summary.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(row("| one ").contains("1/1 (1 marked) | -"), "{summary}");
    assert!(row("| one, marked").contains("| 1 "), "{summary}");
    // Complete, except with --strict.
    assert!(scenario.run(&[]).stderr.contains("all 1 executions are done already"));
    assert_eq!(scenario.run(&["--strict"]).status.code(), Some(1));

    fs::write(scenario.path("fails"), "").unwrap();
    fs::remove_file(scenario.path("ran")).unwrap();
    scenario.run(&["--fresh", "--retries", "2"]).ok();
    assert_eq!(fs::read_to_string(scenario.path("ran")).unwrap(), "run\n".repeat(3));
    let runs = scenario.results();
    assert!(runs.len() == 1 && runs[0]["exit_code"] == 0 && runs[0]["attempts"] == 3, "{runs:?}");
    assert!(runs[0]["remarks"][0].as_str().unwrap().contains("a repetition for the path's sake failed"));
    assert_eq!(scenario.read("runs/one-1-client.out"), "1\n");
    let hidden = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with('.');
    assert_eq!(fs::read_dir(scenario.out("runs")).unwrap().filter_map(Result::ok).filter(hidden).count(), 0);
}
