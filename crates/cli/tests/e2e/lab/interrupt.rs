//! Interrupts of `longhaul lab run` and `exec`: running commands are stopped with SIGTERM, and
//! cleaned up in any case.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;

use rustix::process::Signal;

use crate::support::Ended;
use crate::support::lab::{
    Scenario, ended, exec, needs_lab, processes_with, send, send_until_end, wait_until,
};

/// Waits until `count` processes run `sleep MARK`.
fn sleeping(mark: &str, count: usize) {
    wait_until(mark, || processes_with(&format!("sleep\0{mark}")).len() == count);
}

fn interrupted(child: Child, signal: Signal) -> Ended {
    send(&child, signal);
    ended(child)
}

/// An interrupt ends the running command with its descendants, cleans up, and keeps the results.
#[test]
fn interrupted_experiment_is_cleaned_up_and_resumed() {
    let Some(()) = needs_lab() else { return };
    for (signal, code, mark) in [(Signal::INT, 130, "98766"), (Signal::TERM, 143, "98767")] {
        let scenario = Scenario::new(&format!(
            "cleanup = 'touch $LAB_DIR/cleaned'\n[path]\n\
             [[run]]\nname = 'quick'\ncommand = 'true'\n\
             [[run]]\nname = 'slow'\nserver = 'sleep {mark}'\ncommand = 'test -e $LAB_DIR/go || sleep {mark}'\n\
             cleanup = 'touch $LAB_DIR/cleaned-slow'\n"
        ));
        let child = scenario.command(&[]).spawn().unwrap();
        wait_until("both ends run", || processes_with(&format!("sleep\0{mark}")).len() >= 2);
        scenario.run(&[]).fails(73, &["another `longhaul lab run` writes to"]);
        let ended = interrupted(child, signal);
        assert_eq!(ended.status.code(), Some(code), "{ended:?}");
        assert!(ended.stderr.contains("the same command goes on from here"), "{ended:?}");
        // A busy machine may not hold the path of the first one.
        assert!(ended.stdout.contains("| quick ") && ended.stdout.contains(" | 1/1"), "{ended:?}");
        sleeping(mark, 0);
        assert_eq!(scenario.executed(), ["quick 1"]);
        assert!(scenario.path("cleaned").exists() && scenario.path("cleaned-slow").exists());

        fs::write(scenario.path("go"), "").unwrap();
        let again = scenario.run(&[]).ok().stderr;
        assert_eq!(scenario.executed(), ["quick 1", "slow 1"]);
        assert!(!again.contains("quick (1)") && again.contains("lab: 2/2 slow (1): "), "{again}");
    }
}

/// An interrupt ends each phase with its processes, and the wait for a server that never listens.
#[test]
fn interrupt_ends_every_phase() {
    let Some(()) = needs_lab() else { return };
    let preparing = "prepare = 'sleep 98768 & wait'\ncleanup = 'touch $LAB_DIR/cleaned'\n[path]\n[[run]]\nname = 'one'\ncommand = 'true'\n";
    let serving = "cleanup = 'touch $LAB_DIR/cleaned'\n[path]\n[server]\ncommand = 'exec sleep 98769'\nport = 80\n\
         [[run]]\nname = 'one'\ncommand = 'true'\n";
    // Descendants end with the set-up, including one that ignores signals.
    let setting_up = "cleanup = 'touch $LAB_DIR/cleaned'\n[path]\n[[run]]\nname = 'one'\ncommand = 'true'\n\
         setup = \"(trap '' TERM; sleep 98771; sleep 98771) & sleep 98771\"\n";
    for (toml, mark, count, signal, code) in [
        (preparing, "98768", 1, Signal::INT, 130),
        (serving, "98769", 1, Signal::INT, 130),
        (setting_up, "98771", 2, Signal::TERM, 143),
    ] {
        let scenario = Scenario::new(toml);
        let child = scenario.command(&[]).spawn().unwrap();
        sleeping(mark, count);
        let ended = interrupted(child, signal);
        assert_eq!(ended.status.code(), Some(code), "{toml}: {ended:?}");
        sleeping(mark, 0);
        assert!(scenario.path("cleaned").exists() && scenario.results().is_empty(), "{toml}");
    }
    let child = exec(&["--server", "exec sleep 98773", "--server-port", "80"], "true").spawn().unwrap();
    sleeping("98773", 1);
    assert_eq!(interrupted(child, Signal::INT).status.code(), Some(130));
    sleeping("98773", 0);

    // The server may have to complete a record.
    let scenario = Scenario::new(
        "[path]\n[[run]]\nname = 'one'\ncommand = 'touch $LAB_DIR/runs; sleep 98770'\n\
         server = \"trap 'sleep 0.3; echo end > $LAB_DIR/end; exit' TERM; touch $LAB_DIR/serves; sleep 98770 & wait\"\n",
    );
    let child = scenario.command(&[]).spawn().unwrap();
    wait_until("both ends run", || scenario.path("runs").exists() && scenario.path("serves").exists());
    assert_eq!(interrupted(child, Signal::INT).status.code(), Some(130));
    assert_eq!(fs::read_to_string(scenario.path("end")).unwrap(), "end\n");
    sleeping("98770", 0);
}

#[test]
fn cleanup_runs_after_a_second_interrupt_and_after_a_kill() {
    let Some(()) = needs_lab() else { return };
    for (signal, code) in [(Signal::INT, Some(130)), (Signal::KILL, None)] {
        // Ignores the first signal, so that the second one arrives before the end.
        let scenario = Scenario::new(
            "cleanup = 'touch $LAB_DIR/cleaned'\n[path]\n[[run]]\nname = 'one'\n\
             command = \"trap '' TERM; touch $LAB_DIR/runs; while :; do sleep 0.1; done\"\n\
             cleanup = 'touch $LAB_DIR/cleaned-$LAB_RUN'\n",
        );
        let mut child = scenario.command(&[]).spawn().unwrap();
        wait_until("it runs", || scenario.path("runs").exists());
        assert!(!scenario.path("cleaned").exists());
        send_until_end(&mut child, signal);
        let status = child.wait().unwrap();
        assert_eq!((status.code(), status.signal()), (code, code.map_or(Some(9), |_| None)));
        wait_until("both are cleaned", || {
            scenario.path("cleaned").exists() && scenario.path("cleaned-one").exists()
        });
    }
}

/// A result on a deviating path is kept with its files if its repetition is interrupted.
#[test]
fn interrupted_repetition_keeps_the_earlier_result() {
    let Some(()) = needs_lab() else { return };
    // No machine holds a delay of 1 us to 5 %.
    let scenario = Scenario::new(
        "[path]\ndelay = '1us'\n[[run]]\nname = 'one'\ncommand = 'curl -s http://$LAB_SERVER:9/; \
         if test -e $LAB_DIR/first; then echo second; touch $LAB_DIR/second; sleep 98772; fi; \
         touch $LAB_DIR/first; echo first'\n",
    );
    let child = scenario.command(&["--retries", "2"]).spawn().unwrap();
    wait_until("it is repeated", || scenario.path("second").exists());
    assert_eq!(interrupted(child, Signal::INT).status.code(), Some(130));
    let runs = scenario.results();
    assert!(runs.len() == 1 && runs[0]["exit_code"] == 0 && runs[0]["attempts"] == 1, "{runs:?}");
    assert_eq!(scenario.read("runs/one-1-client.out"), "first\n");
    let listed = scenario.run(&["--retries", "2", "--list"]);
    assert_eq!(listed.stdout, "one (1)", "its retries are left");
}
