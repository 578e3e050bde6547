//! `longhaul lab run` again: what is left is done, what is there is never lost.

use std::fs;
use std::process::Output;

use rustix::process::Signal;

use crate::scenario::Scenario;
use crate::support::{processes_with, send, skipped, text, wait_until};

const FLAKY: &str = "[path]\n\
    [[run]]\nname = 'steady'\ncommand = 'true'\nrepeat = 2\n\
    [[run]]\nname = 'flaky'\ncommand = 'test -e $LAB_DIR/now'\n";

fn error(output: &Output) -> String {
    text(&output.stderr)
}

#[test]
fn goes_on_with_what_failed_or_is_missing() {
    if skipped() {
        return;
    }
    let scenario = Scenario::new(FLAKY);
    assert_eq!(scenario.run(&["--repeat", "1"]).status.code(), Some(1));
    assert_eq!(scenario.executed(), ["steady 1", "flaky 1"]);
    fs::write(scenario.path("now"), "").unwrap();
    let listed = scenario.run(&["--list"]);
    assert_eq!(text(&listed.stdout), "flaky (1)\nsteady (2)");
    // More repetitions and a comment measure the same.
    scenario.rewrite(&format!("# Again\n{FLAKY}"));
    let output = scenario.run(&[]);
    assert!(output.status.success(), "{}", error(&output));
    assert_eq!(scenario.executed(), ["steady 1", "flaky 1", "steady 2"]);

    let before = scenario.read("results.json");
    fs::remove_file(scenario.out("summary.md")).unwrap();
    let output = scenario.run(&[]);
    assert!(output.status.success());
    assert!(error(&output).contains("lab: all 3 executions are done already"), "{}", error(&output));
    assert_eq!(scenario.read("results.json"), before);
    assert!(scenario.read("summary.md").contains("| steady | 2/2 |"), "{}", scenario.read("summary.md"));
}

#[test]
fn never_mixes_or_overwrites_other_results() {
    if skipped() {
        return;
    }
    let scenario = Scenario::new(FLAKY);
    scenario.run(&["--only", "steady"]);
    let good = scenario.read("results.json");
    scenario.rewrite(&FLAKY.replace("'true'", "'exit 0'"));
    let output = scenario.run(&[]);
    assert_eq!(output.status.code(), Some(64), "{}", error(&output));
    assert!(error(&output).contains("holds results of another scenario"), "{}", error(&output));

    for (json, expected) in [
        (good[..good.len() / 2].to_owned(), "damaged"),
        (good.replace("\"version\": 1", "\"version\": 9"), "its version is 9"),
        ("{}".to_owned(), "no results of `longhaul lab run`"),
    ] {
        fs::write(scenario.out("results.json"), &json).unwrap();
        for args in [&["--list"][..], &[]] {
            let output = scenario.run(args);
            assert_eq!(output.status.code(), Some(65), "{}", error(&output));
            assert!(
                error(&output).contains(expected) && error(&output).contains("--fresh"),
                "{}",
                error(&output)
            );
        }
        assert_eq!(scenario.read("results.json"), json);
    }
    fs::write(scenario.out("results.json"), &good).unwrap();
    assert!(scenario.out("runs/steady-2-near.out").exists());
    let output = scenario.run(&["--fresh", "--only", "steady", "--repeat", "1"]);
    assert!(output.status.success(), "{}", error(&output));
    assert_eq!(scenario.executed(), ["steady 1"]);
    assert!(!scenario.out("runs/steady-2-near.out").exists(), "thrown away");
}

/// An interrupt ends the running command with all it started, cleans up, and keeps what was measured.
#[test]
fn an_interrupt_loses_nothing() {
    if skipped() {
        return;
    }
    for (signal, code, mark) in [(Signal::INT, 130, "98766"), (Signal::TERM, 143, "98767")] {
        let scenario = Scenario::new(&format!(
            "cleanup = 'touch $LAB_DIR/cleaned'\n[path]\n\
             [[run]]\nname = 'quick'\ncommand = 'true'\n\
             [[run]]\nname = 'slow'\nfar = 'sleep {mark}'\ncommand = 'test -e $LAB_DIR/go || sleep {mark}'\n\
             cleanup = 'touch $LAB_DIR/cleaned-slow'\n"
        ));
        let child = scenario.command(&[]).spawn().unwrap();
        let word = format!("sleep\0{mark}");
        wait_until("both ends run", || processes_with(&word).len() >= 2);
        let second = scenario.run(&[]);
        assert_eq!(second.status.code(), Some(73), "{}", error(&second));
        assert!(error(&second).contains("another `longhaul lab run` writes to"), "{}", error(&second));
        send(&child, signal);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", error(&output));
        assert!(error(&output).contains("the same command goes on from here"), "{}", error(&output));
        assert!(processes_with(&word).is_empty());
        assert_eq!(scenario.executed(), ["quick 1"]);
        assert!(scenario.path("cleaned").exists() && scenario.path("cleaned-slow").exists());
        assert!(text(&output.stdout).contains("| quick | 1/1 |"), "{}", text(&output.stdout));

        fs::write(scenario.path("go"), "").unwrap();
        let output = scenario.run(&[]);
        assert!(output.status.success(), "{}", error(&output));
        assert_eq!(scenario.executed(), ["quick 1", "slow 1"]);
        assert!(!error(&output).contains("quick (1)") && error(&output).contains("lab: 2/2 slow (1): "));
    }
}

/// Preparing a source file can take minutes; nobody waits for them after Ctrl-C.
#[test]
fn an_interrupt_ends_the_preparation() {
    if skipped() {
        return;
    }
    let scenario = Scenario::new(
        "prepare = 'sleep 98768 & wait'\ncleanup = 'touch $LAB_DIR/cleaned'\n[path]\n\
         [[run]]\nname = 'one'\ncommand = 'true'\n",
    );
    let child = scenario.command(&[]).spawn().unwrap();
    wait_until("it prepares", || !processes_with("sleep\098768").is_empty());
    send(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", error(&output));
    wait_until("it has ended", || processes_with("sleep\098768").is_empty());
    assert!(scenario.path("cleaned").exists() && scenario.results().is_empty());
}
