//! `--fix` and `--undo`, in network namespaces of their own.

use std::path::Path;

use serde_json::Value;

use crate::support::{doctor, in_lab, text};

const STATE: &str = ".local/state/longhaul/doctor-undo.json";

/// Prepares small buffers, and defines `fix` and `limits`.
const PREPARED: &str = "set -e
    cd /proc/sys/net/ipv4
    echo '4096 131072 6291456' > tcp_rmem; echo '4096 16384 4194304' > tcp_wmem; echo 1 > tcp_slow_start_after_idle
    fix() { $LONGHAUL doctor --rate 10Gbit --rtt 200ms --no-disk-test --disk \"$HOME\" --fix --yes \"$@\" || [ $? = 77 ]; }
    limits() { cat tcp_rmem tcp_wmem tcp_slow_start_after_idle | tr '\\t\\n' '  '; echo; }
    ";

fn in_prepared_lab(home: &Path, shell: &str) -> Option<String> {
    let output = in_lab(home, &format!("{PREPARED}{shell}"))?;
    assert!(
        output.status.success(),
        "{:?}: {}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    Some(text(&output.stdout))
}

fn saved(home: &Path) -> Vec<Value> {
    let text = std::fs::read(home.join(STATE)).unwrap();
    serde_json::from_slice::<Value>(&text).unwrap()["settings"].as_array().unwrap().clone()
}

#[test]
fn settings_are_written_saved_and_restored() {
    let home = tempfile::tempdir().unwrap();
    let shell = "limits; fix > out; limits; fix > /dev/null; $LONGHAUL doctor --undo; limits";
    let shell = shell.replace("> out", "> $HOME/out");
    let Some(said) = in_prepared_lab(home.path(), &shell) else { return };
    let lines: Vec<_> = said.lines().collect();
    let (before, after) =
        ("4096 131072 6291456 4096 16384 4194304 1", "4096 131072 500000000 4096 16384 500000000 0");
    assert_eq!((lines[0].trim(), lines[1].trim()), (before, after));
    assert_eq!(lines.last().unwrap().trim(), before, "a second --fix has not replaced the old values");
    assert!(said.contains("net.ipv4.tcp_rmem: 4096 131072 500000000 -> 4096 131072 6291456"), "{said}");
    assert!(!home.path().join(STATE).exists(), "nothing is left to undo");
    let shown = std::fs::read_to_string(home.path().join("out")).unwrap();
    assert!(shown.contains("net.ipv4.tcp_wmem: 4096 16384 4194304 -> 4096 16384 500000000"), "{shown}");
}

#[test]
fn value_that_was_changed_since_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let shell = "fix > /dev/null; echo '4096 131072 7000000' > tcp_rmem; $LONGHAUL doctor --undo; limits";
    let Some(said) = in_prepared_lab(home.path(), shell) else { return };
    assert!(said.contains("net.ipv4.tcp_rmem: left at 4096 131072 7000000"), "{said}");
    assert!(said.ends_with("4096 131072 7000000 4096 16384 4194304 1"), "{said}");
}

#[test]
fn other_namespaces_keep_their_old_values() {
    let home = tempfile::tempdir().unwrap();
    if in_prepared_lab(home.path(), "fix > /dev/null").is_none() {
        return;
    }
    let first = saved(home.path());
    assert!(first.iter().any(|setting| setting["name"] == "net.ipv4.tcp_rmem"));
    // This host is another namespace: nothing here is restored.
    let output = doctor(home.path(), &["--undo"]).output().unwrap();
    assert_eq!(output.status.code(), Some(66));
    assert!(
        text(&output.stderr).contains("no old values of this network namespace"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(saved(home.path()), first);
}

#[test]
fn json_names_each_change_and_why_one_was_skipped() {
    let home = tempfile::tempdir().unwrap();
    let Some(said) = in_prepared_lab(home.path(), "fix --json 2> $HOME/shown") else { return };
    let report: Value = serde_json::from_str(&said).unwrap();
    let changes = report["changes"].as_array().unwrap();
    let of = |name: &str| changes.iter().find(|change| change["name"] == name);
    let rmem = of("net.ipv4.tcp_rmem").unwrap();
    assert_eq!((&rmem["written"], &rmem["new"]), (&true.into(), &"4096 131072 500000000".into()));
    // Belongs to the whole machine, and cannot be written here; absent where the machine's suffices.
    if let Some(refused) = of("net.core.rmem_max") {
        assert!(refused["written"] == false && refused["reason"].is_string(), "{refused}");
    }
    let shown = std::fs::read_to_string(home.path().join("shown")).unwrap();
    assert!(shown.contains("net.ipv4.tcp_rmem: 4096 131072 6291456 -> "), "{shown}");
    assert!(saved(home.path()).iter().all(|setting| setting["name"] != "net.core.rmem_max"));
}

#[test]
fn damaged_state_stops_before_anything_is_written() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join(STATE);
    std::fs::create_dir_all(state.parent().unwrap()).unwrap();
    std::fs::write(&state, "{").unwrap();
    let shell = "$LONGHAUL doctor --rate 10Gbit --rtt 200ms --no-disk-test --disk $HOME --fix --yes > /dev/null || echo $?; limits";
    let Some(said) = in_prepared_lab(home.path(), shell) else { return };
    assert_eq!(said, "65\n4096 131072 6291456 4096 16384 4194304 1");
    assert_eq!(std::fs::read_to_string(&state).unwrap(), "{");
}

/// `script` gives the command a terminal.
#[test]
fn question_on_a_terminal_decides() {
    let home = tempfile::tempdir().unwrap();
    let ask = "ask() { echo $1 | script -qec \"$LONGHAUL doctor --rate 10Gbit --rtt 200ms --no-disk-test --disk $HOME --fix\" /dev/null > $HOME/$1 || true; }";
    let shell = format!("{ask}; ask n; limits; ask y; limits");
    let Some(said) = in_prepared_lab(home.path(), &shell) else { return };
    let (before, after) =
        ("4096 131072 6291456 4096 16384 4194304 1", "4096 131072 500000000 4096 16384 500000000 0");
    assert_eq!(said.lines().map(str::trim).collect::<Vec<_>>(), [before, after]);
    let shown = |answer: &str| std::fs::read_to_string(home.path().join(answer)).unwrap();
    assert!(
        shown("n").contains("settings? [y/N]") && shown("n").contains("Nothing was changed."),
        "{}",
        shown("n")
    );
    assert!(shown("y").contains("settings were written"), "{}", shown("y"));
}

#[test]
fn module_that_was_loaded_is_undone() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join(STATE);
    std::fs::create_dir_all(state.parent().unwrap()).unwrap();
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    let module = |namespace: &str| serde_json::json!({ "namespace": namespace, "name": "tcp_none" });
    let modules = [module(own.to_str().unwrap()), module("net:[1]")];
    let saved = serde_json::json!({ "version": 1, "settings": [], "modules": modules });
    std::fs::write(&state, saved.to_string()).unwrap();
    // It has been unloaded meanwhile; that of another namespace stays saved.
    let output = doctor(home.path(), &["--undo"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "module tcp_none: was not loaded");
    let left: Value = serde_json::from_slice(&std::fs::read(&state).unwrap()).unwrap();
    assert_eq!(left["modules"], serde_json::json!([modules[1]]));
}
