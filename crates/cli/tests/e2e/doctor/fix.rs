//! `--fix` and `--undo`, in network namespaces of their own.

use std::path::Path;

use serde_json::Value;

use crate::doctor::command::{doctor, in_lab, text};

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

/// Replaces the saved modules by one that was loaded since a start of the host.
fn save_module(home: &Path, boot: &str, name: &str) {
    let state = home.join(STATE);
    let mut saved: Value = std::fs::read(&state).map_or_else(
        |_| serde_json::json!({ "version": 1, "settings": [] }),
        |saved| serde_json::from_slice(&saved).unwrap(),
    );
    saved["boot"] = boot.into();
    saved["modules"] = serde_json::json!([{ "name": name }]);
    std::fs::create_dir_all(state.parent().unwrap()).unwrap();
    std::fs::write(&state, saved.to_string()).unwrap();
}

fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned()
}

#[test]
fn module_of_this_start_is_undone_and_that_of_another_forgotten() {
    let home = tempfile::tempdir().unwrap();
    save_module(home.path(), "an earlier one", "tcp_other");
    assert_eq!(doctor(home.path(), &["--undo"]).output().unwrap().status.code(), Some(66));
    save_module(home.path(), &boot(), "tcp_none");
    let output = doctor(home.path(), &["--undo"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "module tcp_none: was not loaded");
    assert!(!home.path().join(STATE).exists());
}

#[test]
fn setting_that_is_gone_is_exit_code_77_and_stays_saved() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join(STATE);
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    let setting =
        serde_json::json!({ "namespace": own, "name": "net.ipv4.tcp_none", "old": "1", "new": "0" });
    let document = serde_json::json!({ "version": 1, "settings": [setting] });
    std::fs::create_dir_all(state.parent().unwrap()).unwrap();
    std::fs::write(&state, document.to_string()).unwrap();
    let output = doctor(home.path(), &["--undo"]).output().unwrap();
    assert_eq!(output.status.code(), Some(77), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("net.ipv4.tcp_none: not restored: No such file"));
    assert_eq!(saved(home.path())[0]["name"], "net.ipv4.tcp_none");
    let help = doctor(home.path(), &["--help"]).output().unwrap();
    // Lines are wrapped.
    let help = text(&help.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("77 if one could not be, for whatever reason"), "{help}");
}

/// Defines `with_module REFCNT COMMAND`: shows the module tcp_none in /sys, and has a modprobe(8) that knows it alone. A kernel that has
/// no modules has nothing else to try this with.
const MODULE: &str = r#"
    mkdir $HOME/bin
    cat > $HOME/bin/modprobe <<'END'
#!/bin/sh
shown=/sys/module/tcp_none
[ "$*" = "-r tcp_none" ] && [ -d $shown ] || { echo "modprobe: FATAL: Module $2 not found." >&2; exit 1; }
[ "$(cat $shown/refcnt)" = 0 ] || { echo "modprobe: FATAL: Module $2 is in use." >&2; exit 1; }
rm -r $shown
END
    chmod +x $HOME/bin/modprobe
    with_module() {
        unshare --mount sh -ec 'mount -t tmpfs none /sys/module && mkdir /sys/module/tcp_none
            echo $1 > /sys/module/tcp_none/refcnt; shift; PATH=$HOME/bin:$PATH; "$@"' sh "$@"
    }
    "#;

#[test]
fn module_in_use_stays_loaded_and_a_second_undo_has_nothing_to_do() {
    let home = tempfile::tempdir().unwrap();
    let modules = r#""modules": [{ "name": "tcp_none" }]"#;
    let save = format!(
        r#"fix > /dev/null; sed -i 's/"modules": \[\]/{modules}/' $HOME/{STATE}; grep -c tcp_none $HOME/{STATE}"#
    );
    let undo = "with_module 1 $LONGHAUL doctor --undo; limits; $LONGHAUL doctor --undo 2>&1 || echo $?";
    let Some(said) = in_prepared_lab(home.path(), &format!("{MODULE}{save}; {undo}")) else { return };
    assert!(said.contains("net.ipv4.tcp_rmem: 4096 131072 500000000 -> 4096 131072 6291456"), "{said}");
    let stays = "module tcp_none: stays loaded: it is in use; modprobe -r unloads it later";
    assert!(said.contains(stays), "{said}");
    assert!(said.contains("4096 131072 6291456 4096 16384 4194304 1"), "all else is restored: {said}");
    assert!(said.contains("nothing is to be undone") && said.ends_with("66"), "{said}");
    assert!(!home.path().join(STATE).exists());
}

#[test]
fn module_is_unloaded_once_no_saved_value_of_any_namespace_names_it() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join(STATE);
    let setting = |name: &str, old: &str, new: &str| serde_json::json!({ "namespace": "net:[1]", "name": name, "old": old, "new": new, "before": null });
    let buffer = setting("net.ipv4.tcp_rmem", "4096 131072 6291456", "4096 131072 500000000");
    let control = setting("net.ipv4.tcp_congestion_control", "cubic", "none");
    let save = |settings: &[&Value]| {
        std::fs::create_dir_all(state.parent().unwrap()).unwrap();
        std::fs::write(&state, serde_json::json!({ "version": 1, "settings": settings }).to_string())
            .unwrap();
        save_module(home.path(), &boot(), "tcp_none");
    };
    save(&[&buffer, &control]);
    let undo = "with_module 0 $LONGHAUL doctor --undo";
    let shell = format!("{MODULE} fix > /dev/null; {undo}; limits");
    let Some(said) = in_prepared_lab(home.path(), &shell) else { return };
    let stays = "module tcp_none: stays loaded: a saved value, which is not restored, names it";
    assert!(said.contains(stays), "{said}");
    assert!(said.ends_with("4096 131072 6291456 4096 16384 4194304 1"), "{said}");
    assert_eq!(saved(home.path()), [buffer.clone(), control]);
    // Nothing is left of this namespace.
    assert_eq!(doctor(home.path(), &["--undo"]).output().unwrap().status.code(), Some(66));
    save(&[&buffer]);
    let module = MODULE.replace("mkdir $HOME/bin", "");
    let said = in_prepared_lab(home.path(), &format!("{module}{undo}")).unwrap();
    assert_eq!(said, "module tcp_none: unloaded");
    assert_eq!(saved(home.path()), [buffer]);
}
