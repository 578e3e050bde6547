//! `--fix --permanent`: lines in files below an /etc of the test's own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use longhaul_sys::ethtool::Ethtool;
use longhaul_sys::link;
use serde_json::Value;

use crate::doctor::command::{about_path, in_namespaces, json, run, undo};
use crate::support::Ended;

const SYSCTLS: &str = "/etc/sysctl.d/99-zz-longhaul.conf";
const RULES: &str = "/etc/udev/rules.d/90-longhaul.rules";
const RECEIVE: &str = "net.ipv4.tcp_rmem = 4096 131072 500000000";

/// Makes an empty /etc, and a device with an offload that is off the one of the default route.
/// /usr/sbin holds nothing any more.
fn prepare_device() {
    run("ip link add v0 type veth peer v1; ip link set v0 up
        ip addr add 198.51.100.1/24 dev v0; ip route add default dev v0");
    let device = link::named("v0").unwrap().index;
    Ethtool::open().unwrap().set_feature(device, "tx-tcp-segmentation", false).unwrap();
    run("mount -t tmpfs none /etc; mount -t tmpfs none /usr/sbin");
}

/// Makes the receive buffer small.
fn shrink() {
    fs::write("/proc/sys/net/ipv4/tcp_rmem", "4096 131072 6291456").unwrap();
}

fn fix(home: &Path, more: &[&str]) -> Ended {
    about_path(home, &[&["--fix", "--yes"], more].concat())
}

/// Fixes for good; returns the exit code, and what is printed.
fn fix_permanently(home: &Path) -> (Option<i32>, String) {
    let ended = fix(home, &["--permanent"]);
    (ended.status.code(), ended.stdout)
}

#[test]
fn rule_whose_program_is_not_installed_is_refused() {
    in_namespaces(|home| {
        prepare_device();
        let output = fix(home, &["--permanent", "--json"]);
        let report = json(&output);
        let rules = report["files"].as_array().unwrap().iter().find(|file| file["name"] == RULES).unwrap();
        let reason = "/usr/sbin/ethtool is not installed: the rule would do nothing";
        assert_eq!((&rules["written"], &rules["reason"]), (&false.into(), &reason.into()));
        assert!(!Path::new(RULES).exists() && output.status.code() == Some(77), "{report}");
    });
}

#[test]
fn settings_that_are_written_last_until_undo() {
    in_namespaces(|home| {
        prepare_device();
        fs::write("/usr/sbin/ethtool", "").unwrap();
        shrink();
        // Of this thread and its programs alone. What is read at the start is not only root's.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        let report = json(&fix(home, &["--permanent", "--json"]));
        let written = fs::read_to_string(SYSCTLS).unwrap();
        assert!(written.lines().any(|line| line == RECEIVE), "{written}");
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let sysctls = Path::new(SYSCTLS);
        assert_eq!((mode(sysctls), mode(sysctls.parent().unwrap())), (0o644, 0o755));
        // Only what was written lasts: other settings are the host's alone, and MTUs the user's.
        let changes = report["changes"].as_array().unwrap();
        for change in changes.iter().filter(|change| change["written"] == false) {
            assert!(!written.contains(change["name"].as_str().unwrap()), "{change}: {written}");
        }
        let rules = fs::read_to_string(RULES).unwrap();
        assert!(rules.contains("ethtool -K v0 tso on") && !rules.contains("mtu"), "{rules}");
        let files: Vec<&Value> =
            report["files"].as_array().unwrap().iter().map(|file| &file["name"]).collect();
        assert!(files.contains(&&SYSCTLS.into()) && files.contains(&&RULES.into()), "{report}");
        // Lines that are there are not added again, and those of others stay.
        shrink();
        let (_, again) = fix_permanently(home);
        assert!(!again.contains(&format!("+ {RECEIVE}")), "{again}");
        assert!(!again.contains("end with the next start"), "{again}");
        assert_eq!(fs::read_to_string(SYSCTLS).unwrap(), written);
        fs::write(SYSCTLS, written + "net.ipv4.tcp_none = 1").unwrap();
        let (_, undone) = undo(home);
        assert!(undone.contains(&format!("{SYSCTLS}: lines removed: ")), "{undone}");
        assert_eq!(fs::read_to_string(SYSCTLS).unwrap(), "net.ipv4.tcp_none = 1\n");
        assert!(!Path::new(RULES).exists());
        let limits = fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").unwrap();
        assert_eq!(limits.split_whitespace().collect::<Vec<_>>(), ["4096", "131072", "6291456"]);
        assert_eq!(undo(home).0, Some(66));
        // Without it nothing lasts.
        assert!(fix(home, &[]).stdout.contains("until the next start"));
        assert_eq!(fs::read_to_string(SYSCTLS).unwrap(), "net.ipv4.tcp_none = 1\n");
        // It needs an undo to last.
        let (_, late) = fix_permanently(home);
        assert!(late.contains("end with the next start: run longhaul doctor --undo, then --fix"), "{late}");
    });
}

#[test]
fn setting_that_a_later_file_sets_does_not_count_as_lasting() {
    in_namespaces(|home| {
        run("mount -t tmpfs none /etc");
        shrink();
        fs::write("/proc/sys/net/ipv4/tcp_wmem", "4096 16384 4194304").unwrap();
        // Read before, and to the same value.
        fs::create_dir("/etc/sysctl.d").unwrap();
        fs::write("/etc/sysctl.d/99-sysctl.conf", "net.ipv4.tcp_rmem=1 2 3").unwrap();
        fs::write("/etc/sysctl.d/zz.conf", "-net/ipv4/tcp_rmem=4096\t131072 500000000").unwrap();
        fs::write("/etc/sysctl.conf", "#net.ipv4.tcp_rmem = 1\nnet.ipv4.tcp_wmem = 4096 16384 4194304")
            .unwrap();
        let (code, shown) = fix_permanently(home);
        let reason = "/etc/sysctl.conf sets net.ipv4.tcp_wmem to another value later: change it there";
        assert!(shown.contains(&format!("{SYSCTLS}: skipped: {reason}")) && code == Some(77), "{shown}");
        let written = fs::read_to_string(SYSCTLS).unwrap();
        assert!(written.contains(RECEIVE) && !written.contains("tcp_wmem"), "{written}");
        let summary = shown.lines().last().unwrap();
        let numbers: Vec<usize> = summary.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        // A qdisc or a module of another host may not last either.
        assert!(numbers[1] >= 1 && numbers[1] < numbers[0], "{summary}");
        assert!(summary.contains("of them last; longhaul doctor --undo"), "{summary}");
        // Lines that are there count.
        shrink();
        let (_, shown) = fix_permanently(home);
        assert!(shown.contains("1 settings were written, 1 of them last"), "{shown}");
    });
}

#[test]
fn directory_that_cannot_be_written_is_said_and_the_settings_are_written() {
    in_namespaces(|home| {
        run("mount -t tmpfs none /etc; mount -o remount,ro /etc");
        shrink();
        let (code, shown) = fix_permanently(home);
        assert_eq!(code, Some(77), "{shown}");
        assert!(shown.contains(&format!("{SYSCTLS}: skipped: Read-only file system")), "{shown}");
        assert!(shown.contains("settings were written, until the next start"), "{shown}");
    });
}
