//! Interrupts of `longhaul lab run` and `exec`: running commands are stopped with SIGTERM, and cleaned up in any case.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Output;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::lab::command::{SLOW, exec, processes_with, send, skipped, text, wait_until};
use crate::lab::scenario::Scenario;

fn error(output: &Output) -> String {
    text(&output.stderr)
}

/// An interrupt ends the running command with its descendants, cleans up, and keeps the results.
#[test]
fn an_interrupt_loses_nothing() {
    if skipped() {
        return;
    }
    for (signal, code, mark) in [(Signal::INT, 130, "98766"), (Signal::TERM, 143, "98767")] {
        let scenario = Scenario::new(&format!(
            "cleanup = 'touch $LAB_DIR/cleaned'\n[path]\n\
             [[run]]\nname = 'quick'\ncommand = 'true'\n\
             [[run]]\nname = 'slow'\nserver = 'sleep {mark}'\ncommand = 'test -e $LAB_DIR/go || sleep {mark}'\n\
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

/// Preparation may take minutes; an interrupt must end it.
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

/// A server that never listens is awaited for ten seconds; an interrupt ends the wait.
#[test]
fn an_interrupt_ends_the_wait_for_the_server_command() {
    if skipped() {
        return;
    }
    let scenario = Scenario::new(
        "[path]\n[server]\ncommand = 'exec sleep 98769'\nport = 80\n[[run]]\nname = 'one'\ncommand = 'true'\n",
    );
    let runs =
        [scenario.command(&[]), exec(&["--server", "exec sleep 98769", "--server-port", "80"], "true")];
    for mut command in runs {
        let child = command.spawn().unwrap();
        wait_until("it serves", || !processes_with("sleep\098769").is_empty());
        let start = Instant::now();
        send(&child, Signal::INT);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", error(&output));
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
        assert!(processes_with("sleep\098769").is_empty());
    }
    assert!(scenario.results().is_empty());
}

/// A command that ignores signals is killed by the second one, with its descendants.
#[test]
fn second_signal_kills_a_command_that_ignores_the_first() {
    if skipped() {
        return;
    }
    for (index, signals) in [[Signal::INT, Signal::INT], [Signal::TERM, Signal::HUP]].iter().enumerate() {
        let mark = 98_780 + index;
        let child = exec(&SLOW, &format!("trap '' INT TERM HUP; sleep {mark}; true")).spawn().unwrap();
        wait_until("it runs", || !processes_with(&format!("sleep\0{mark}")).is_empty());
        for signal in signals {
            assert!(!processes_with(&format!("sleep\0{mark}")).is_empty());
            send(&child, *signal);
            std::thread::sleep(Duration::from_millis(300));
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(137), "{}", error(&output));
        wait_until("nothing is left", || processes_with(&format!("sleep\0{mark}")).is_empty());
    }
}

/// The server may have to complete a record.
#[test]
fn an_interrupt_lets_the_server_command_end() {
    if skipped() {
        return;
    }
    let scenario = Scenario::new(
        "[path]\n[[run]]\nname = 'one'\ncommand = 'touch $LAB_DIR/runs; sleep 98770'\n\
         server = \"trap 'sleep 0.3; echo end > $LAB_DIR/end; exit' TERM; touch $LAB_DIR/serves; sleep 98770 & wait\"\n",
    );
    let child = scenario.command(&[]).spawn().unwrap();
    wait_until("both ends run", || scenario.path("runs").exists() && scenario.path("serves").exists());
    send(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", error(&output));
    assert_eq!(fs::read_to_string(scenario.path("end")).unwrap(), "end\n");
    assert!(processes_with("sleep\098770").is_empty());
}

/// The machine's settings are restored even if the process is killed.
#[test]
fn cleanup_runs_after_a_second_interrupt_and_after_a_kill() {
    if skipped() {
        return;
    }
    for (signals, code) in [(&[Signal::INT, Signal::INT][..], Some(130)), (&[Signal::KILL], None)] {
        // Ignores the first signal, so that the second one arrives before the end.
        let scenario = Scenario::new(
            "cleanup = 'touch $LAB_DIR/cleaned'\n[path]\n[[run]]\nname = 'one'\n\
             command = \"trap '' TERM; touch $LAB_DIR/runs; while :; do sleep 0.1; done\"\n\
             cleanup = 'sleep 0.2; touch $LAB_DIR/cleaned-$LAB_RUN'\n",
        );
        let mut child = scenario.command(&[]).spawn().unwrap();
        wait_until("it runs", || scenario.path("runs").exists());
        assert!(!scenario.path("cleaned").exists());
        for signal in signals {
            send(&child, *signal);
            std::thread::sleep(Duration::from_millis(300));
        }
        let status = child.wait().unwrap();
        assert_eq!((status.code(), status.signal()), (code, code.map_or(Some(9), |_| None)));
        wait_until("both are cleaned", || {
            scenario.path("cleaned").exists() && scenario.path("cleaned-one").exists()
        });
    }
}

/// An interrupted set-up command is killed with its descendants, including one that ignores signals.
#[test]
fn interrupt_kills_a_setup_with_its_descendants() {
    if skipped() {
        return;
    }
    let scenario = Scenario::new(
        "[path]\n[[run]]\nname = 'one'\ncommand = 'true'\n\
         setup = \"(trap '' TERM; sleep 98771; sleep 98771) & sleep 98771\"\n",
    );
    let child = scenario.command(&[]).spawn().unwrap();
    wait_until("it sets up", || processes_with("sleep\098771").len() == 2);
    send(&child, Signal::TERM);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(143));
    wait_until("nothing is left", || processes_with("98771").is_empty());
}

/// A result on a deviating path is kept with its files if its repetition is interrupted.
#[test]
fn interrupted_repetition_keeps_the_earlier_result() {
    if skipped() {
        return;
    }
    // No machine holds a delay of 50 ns.
    let scenario = Scenario::new(
        "[path]\ndelay = '1us'\n[[run]]\nname = 'one'\ncommand = 'curl -s http://$LAB_SERVER:9/; \
         if test -e $LAB_DIR/first; then echo second; touch $LAB_DIR/second; sleep 98772; fi; \
         touch $LAB_DIR/first; echo first'\n",
    );
    let child = scenario.command(&["--retries", "2"]).spawn().unwrap();
    wait_until("it is repeated", || scenario.path("second").exists());
    send(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", error(&output));
    let runs = scenario.results();
    assert!(runs.len() == 1 && runs[0]["exit_code"] == 0 && runs[0]["attempts"] == 1, "{runs:?}");
    assert_eq!(scenario.read("runs/one-1-client.out"), "first\n");
    let listed = scenario.run(&["--retries", "2", "--list"]);
    assert_eq!(text(&listed.stdout), "one (1)", "its retries are left");
}
