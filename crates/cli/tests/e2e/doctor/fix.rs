//! `--fix` and `--undo`, in network namespaces of their own.

use std::path::Path;

use serde_json::{Value, json};

use crate::doctor::command::{change, doctor, in_lab, undo};

const STATE: &str = ".local/state/longhaul/doctor-undo.json";
const BEFORE: &str = "4096 131072 6291456 4096 16384 4194304 1";
const AFTER: &str = "4096 131072 500000000 4096 16384 500000000 0";

/// Prepares small buffers, and defines `fix` and `limits`.
const PREPARED: &str = "set -e
    cd /proc/sys/net/ipv4
    echo '4096 131072 6291456' > tcp_rmem; echo '4096 16384 4194304' > tcp_wmem; echo 1 > tcp_slow_start_after_idle
    fix() { longhaul doctor --rate 10Gbit --rtt 200ms --no-disk-test --disk \"$HOME\" --fix --yes \"$@\" || [ $? = 77 ]; }
    limits() { cat tcp_rmem tcp_wmem tcp_slow_start_after_idle | tr '\\t\\n' '  ' | sed 's/ $//'; echo; }
    ";

/// Runs a shell command in a lab; returns what it prints.
fn in_prepared_lab(home: &Path, shell: &str) -> Option<String> {
    Some(in_lab(home, &format!("{PREPARED}{shell}"))?.ok().stdout)
}

fn read(home: &Path, name: &str) -> String {
    std::fs::read_to_string(home.join(name)).unwrap()
}

fn saved(home: &Path) -> Value {
    serde_json::from_str::<Value>(&read(home, STATE)).unwrap()["settings"].clone()
}

/// Saves settings, and a module that was loaded since the start `boot` of the host.
pub(super) fn save(home: &Path, settings: &[Value], module: Option<(&str, &str)>) {
    let state = home.join(STATE);
    let mut saved = json!({ "version": 1, "settings": settings });
    if let Some((boot, name)) = module {
        (saved["boot"], saved["modules"]) = (boot.into(), json!([{ "name": name }]));
    }
    std::fs::create_dir_all(state.parent().unwrap()).unwrap();
    std::fs::write(&state, saved.to_string()).unwrap();
}

fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned()
}

#[test]
fn settings_are_written_saved_and_restored_unless_changed_since() {
    let home = tempfile::tempdir().unwrap();
    let shell = format!(
        "limits; fix --json > $HOME/json 2> $HOME/shown; limits; cp $HOME/{STATE} $HOME/saved; fix > /dev/null; longhaul doctor --undo; limits
        [ ! -e $HOME/{STATE} ] && fix > /dev/null; echo '4096 131072 7000000' > tcp_rmem; longhaul doctor --undo; limits"
    );
    let Some(said) = in_prepared_lab(home.path(), &shell) else { return };
    let lines: Vec<_> = said.lines().collect();
    assert_eq!((lines[0], lines[1]), (BEFORE, AFTER));
    assert!(lines[2..].contains(&BEFORE), "a second --fix has not replaced the old values: {said}");
    assert!(said.contains("net.ipv4.tcp_rmem: 4096 131072 500000000 -> 4096 131072 6291456"), "{said}");
    assert!(said.contains("net.ipv4.tcp_rmem: left at 4096 131072 7000000"), "{said}");
    assert_eq!(*lines.last().unwrap(), "4096 131072 7000000 4096 16384 4194304 1");
    assert!(!home.path().join(STATE).exists(), "nothing is left to undo");
    let shown = read(home.path(), "shown");
    assert!(shown.contains("net.ipv4.tcp_wmem: 4096 16384 4194304 -> 4096 16384 500000000"), "{shown}");
    let report: Value = serde_json::from_str(&read(home.path(), "json")).unwrap();
    let rmem = change(&report, "net.ipv4.tcp_rmem").unwrap();
    assert_eq!((&rmem["written"], &rmem["new"]), (&true.into(), &"4096 131072 500000000".into()));
    // Belongs to the whole machine, and cannot be written here; absent where the machine's
    // suffices.
    if let Some(refused) = change(&report, "net.core.rmem_max") {
        assert!(refused["written"] == false && refused["reason"].is_string(), "{refused}");
    }
    let saved = read(home.path(), "saved");
    assert!(saved.contains("net.ipv4.tcp_rmem") && !saved.contains("net.core.rmem_max"), "{saved}");
}

#[test]
fn damaged_state_stops_before_anything_is_written() {
    let home = tempfile::tempdir().unwrap();
    save(home.path(), &[], None);
    std::fs::write(home.path().join(STATE), "{").unwrap();
    let shell = "longhaul doctor --rate 10Gbit --rtt 200ms --no-disk-test --disk $HOME --fix --yes > /dev/null || echo $?; limits";
    let Some(said) = in_prepared_lab(home.path(), shell) else { return };
    assert_eq!(said, format!("65\n{BEFORE}"));
    assert_eq!(read(home.path(), STATE), "{");
}

/// `script` gives the command a terminal.
#[test]
fn question_on_a_terminal_decides() {
    let home = tempfile::tempdir().unwrap();
    let ask = "ask() { echo $1 | script -qec \"longhaul doctor --rate 10Gbit --rtt 200ms --no-disk-test --disk $HOME --fix\" /dev/null > $HOME/$1 || true; }";
    let Some(said) = in_prepared_lab(home.path(), &format!("{ask}; ask n; limits; ask y; limits")) else {
        return;
    };
    assert_eq!(said, format!("{BEFORE}\n{AFTER}"));
    let (no, yes) = (read(home.path(), "n"), read(home.path(), "y"));
    assert!(no.contains("settings? [y/N]") && no.contains("Nothing was changed."), "{no}");
    assert!(yes.contains("settings were written"), "{yes}");
}

#[test]
fn module_of_this_start_is_undone_and_that_of_another_forgotten() {
    let home = tempfile::tempdir().unwrap();
    save(home.path(), &[], Some(("an earlier one", "tcp_other")));
    assert_eq!(undo(home.path()).0, Some(66));
    save(home.path(), &[], Some((&boot(), "tcp_none")));
    assert_eq!(undo(home.path()), (Some(0), "module tcp_none: was not loaded".to_owned()));
    assert!(!home.path().join(STATE).exists());
}

#[test]
fn setting_that_is_gone_is_exit_code_77_and_stays_saved() {
    let home = tempfile::tempdir().unwrap();
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    save(
        home.path(),
        &[json!({ "namespace": own, "name": "net.ipv4.tcp_none", "old": "1", "new": "0" })],
        None,
    );
    let (code, shown) = undo(home.path());
    assert_eq!(code, Some(77), "{shown}");
    assert!(shown.starts_with("net.ipv4.tcp_none: not restored: No such file"), "{shown}");
    assert_eq!(saved(home.path())[0]["name"], "net.ipv4.tcp_none");
    // Lines are wrapped.
    let help = doctor(home.path(), &["--help"]).stdout;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("77 if one could not be, for whatever reason"), "{help}");
}

/// Defines `with_module REFCNT COMMAND`: shows the module tcp_none in /sys, and has a modprobe(8)
/// that knows it alone. A kernel that has no modules has nothing else to try this with.
const MODULE: &str = r#"
    mkdir -p $HOME/bin
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
    let shell = format!(
        r#"{MODULE}fix > /dev/null; sed -i 's/"modules": \[\]/{modules}/' $HOME/{STATE}; grep -c tcp_none $HOME/{STATE}
        with_module 1 longhaul doctor --undo; limits; longhaul doctor --undo 2>&1 || echo $?"#
    );
    let Some(said) = in_prepared_lab(home.path(), &shell) else { return };
    for line in [
        "net.ipv4.tcp_rmem: 4096 131072 500000000 -> 4096 131072 6291456",
        "module tcp_none: stays loaded: it is in use; modprobe -r unloads it later",
        BEFORE,
        "nothing is to be undone",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(said.ends_with("66") && !home.path().join(STATE).exists(), "{said}");
}

#[test]
fn module_is_unloaded_once_no_saved_value_of_any_namespace_names_it() {
    let home = tempfile::tempdir().unwrap();
    let setting = |name: &str, old: &str, new: &str| json!({ "namespace": "net:[1]", "name": name, "old": old, "new": new, "before": null });
    let buffer = setting("net.ipv4.tcp_rmem", "4096 131072 6291456", "4096 131072 500000000");
    let control = setting("net.ipv4.tcp_congestion_control", "cubic", "none");
    let both = [buffer.clone(), control];
    let module = boot();
    save(home.path(), &both, Some((&module, "tcp_none")));
    let undone = "with_module 0 longhaul doctor --undo";
    let shell = format!("{MODULE}fix > /dev/null; {undone}; limits");
    let Some(said) = in_prepared_lab(home.path(), &shell) else { return };
    let stays = "module tcp_none: stays loaded: a saved value, which is not restored, names it";
    assert!(said.contains(stays) && said.ends_with(BEFORE), "{said}");
    // Other namespaces keep their old values: nothing is left of this one.
    let (code, shown) = undo(home.path());
    assert!(code == Some(66) && shown.contains("no old values of this network namespace"), "{shown}");
    assert_eq!(saved(home.path()), json!(both));
    save(home.path(), &both[..1], Some((&module, "tcp_none")));
    let said = in_prepared_lab(home.path(), &format!("{MODULE}{undone}")).unwrap();
    assert_eq!(said, "module tcp_none: unloaded");
    assert_eq!(saved(home.path()), json!([buffer]));
}
