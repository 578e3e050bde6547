//! Without root: what may be read is judged, and what may not is named.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use crate::doctor::command::{assert_unread, finding, json, text, unread};
use crate::support::needs_root;

/// Runs the command with user ID 65534, without privileges; `tcp_rmem` is unreadable, and the directory not writable. Returns `None` if the
/// test does not run as root, which is required to change the user ID.
fn unprivileged(args: &[&str]) -> Option<Output> {
    needs_root("becoming another user")?;
    // The program's own directory may be private.
    let dir = tempfile::tempdir().unwrap();
    fs::copy(env!("CARGO_BIN_EXE_longhaul"), dir.path().join("longhaul")).unwrap();
    fs::write(dir.path().join("hidden"), "4096 131072 6291456").unwrap();
    for (name, mode) in [("", 0o755), ("hidden", 0o600)] {
        fs::set_permissions(dir.path().join(name), Permissions::from_mode(mode)).unwrap();
    }
    let script = "mount --bind hidden /proc/sys/net/ipv4/tcp_rmem
        exec setpriv --reuid=65534 --regid=65534 --clear-groups ./longhaul doctor --rate 10Gbit --rtt 200ms \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", script, "sh"]).args(args);
    command.env("HOME", dir.path()).env_remove("XDG_STATE_HOME").current_dir(dir.path());
    Some(command.stdin(Stdio::null()).output().unwrap())
}

#[test]
fn user_without_privilege_has_findings_and_the_names_of_what_was_not_permitted() {
    let Some(output) = unprivileged(&["--json"]) else { return };
    let report = json(&output);
    let is_problem = report["worst"] == "problem";
    assert_eq!(output.status.code(), Some(i32::from(is_problem)), "{}", text(&output.stderr));
    for name in ["tcp_wmem", "SACK", "congestion control", "open files", "memory"] {
        assert!(finding(&report, name)["measured"].is_string(), "{name}");
    }
    for (name, shows) in [
        ("tcp_rmem", "how large the kernel lets a receive window grow"),
        ("disk write rate", "whether the disk writes as fast as the path delivers"),
    ] {
        assert_unread(&report, name, "Permission denied");
        let unread = unread(&report, name).unwrap();
        assert!(unread["would_show"].as_str().unwrap().contains(shows), "{unread}");
    }
    let shown = text(&unprivileged(&["--no-disk-test"]).unwrap().stdout);
    let mut lines = shown.lines().skip_while(|line| !line.starts_with("not read tcp_rmem"));
    assert!(lines.next().unwrap().contains("Permission denied"), "{shown}");
    assert!(lines.next().unwrap().trim().starts_with("would show "), "{shown}");
}

#[test]
fn fix_without_privilege_changes_nothing_and_says_what_it_needs() {
    let Some(output) = unprivileged(&["--no-disk-test", "--fix", "--yes"]) else { return };
    let shown = text(&output.stdout);
    // A host that is tuned already has nothing to change.
    if !shown.contains("No setting is to be changed") {
        assert_eq!(output.status.code(), Some(77), "{shown}");
        assert!(shown.contains("skipped: ") && shown.contains("needs root"), "{shown}");
    }
    assert!(!shown.contains("were written"), "{shown}");
}
