//! `--fix` and `--undo` of settings of the network device, on devices in namespaces of the tests' own.

use std::path::Path;
use std::process::Output;

use longhaul_sys::ethtool::Ethtool;
use longhaul_sys::{link, qdisc};
use serde_json::Value;

use crate::doctor::command::{LONG_FAT, doctor, finding, in_namespaces, json, run, text};

const FIX: [&str; 4] = ["--no-disk-test", "--fix", "--yes", "--json"];
/// What veth can switch, and hardware as well.
const TSO: &str = "tx-tcp-segmentation";

fn fix(home: &Path) -> Value {
    json(&doctor(home, &[&LONG_FAT[..], &FIX].concat()).output().unwrap())
}

fn undo(home: &Path) -> Output {
    doctor(home, &["--undo"]).output().unwrap()
}

/// Returns the change of a setting.
fn change<'a>(report: &'a Value, name: &str) -> &'a Value {
    let changes = report["changes"].as_array().unwrap();
    changes.iter().find(|change| change["name"] == name).unwrap_or_else(|| panic!("no {name} in {report}"))
}

/// Makes a device the one of the default route.
fn route_over(device: &str) {
    run(&format!("ip addr add 198.51.100.1/24 dev {device}"));
    run(&format!("ip link set {device} up"));
    run(&format!("ip route add default dev {device}"));
}

#[test]
fn offload_is_switched_on_and_off_again() {
    in_namespaces(|home| {
        run("ip link add v0 type veth peer v1");
        run("ip link set v1 up");
        route_over("v0");
        let device = link::named("v0").unwrap().index;
        let is_on =
            || Ethtool::open().unwrap().features(device).unwrap().active.iter().any(|name| name == TSO);
        let set = |on| Ethtool::open().unwrap().set_feature(device, TSO, on).unwrap();
        set(false);
        let report = fix(home);
        assert_eq!(finding(&report, "offloads")["severity"], "problem");
        let tso = change(&report, &format!("v0 {TSO}"));
        assert_eq!((&tso["old"], &tso["new"], &tso["written"]), (&"off".into(), &"on".into(), &true.into()));
        assert!(is_on());
        // MTU and link are for the user to change.
        assert_eq!(finding(&report, "MTU")["severity"], "advice");
        assert_eq!(link::named("v0").unwrap().mtu, Some(1500));
        let undone = undo(home);
        assert!(text(&undone.stdout).contains(&format!("v0 {TSO}: on -> off")), "{}", text(&undone.stdout));
        assert!(!is_on());
        // What another hand has changed since is not touched.
        fix(home);
        set(false);
        assert!(undo(home).status.success() && !is_on());
        run("ip link del v0");
        assert_eq!(undo(home).status.code(), Some(66));
    });
}

#[test]
fn setting_of_a_device_that_is_gone_is_dropped() {
    in_namespaces(|home| {
        run("ip link add v0 type veth peer v1");
        route_over("v0");
        let device = link::named("v0").unwrap().index;
        Ethtool::open().unwrap().set_feature(device, TSO, false).unwrap();
        assert_eq!(change(&fix(home), &format!("v0 {TSO}"))["written"], true);
        run("ip link del v0");
        let undone = undo(home);
        let shown = text(&undone.stdout);
        assert!(shown.contains(&format!("v0 {TSO}: the device is gone: nothing to restore")), "{shown}");
        assert_eq!((undone.status.code(), undo(home).status.code()), (Some(0), Some(66)), "{shown}");
    });
}

/// A kernel may have no fq: what it has stays, and the reason is said.
#[test]
fn qdisc_of_the_kernels_choice_is_replaced_and_restored() {
    in_namespaces(|home| {
        run("ip tuntap add t0 mode tap");
        route_over("t0");
        let device = link::named("t0").unwrap().index;
        let before = qdisc::of_device(device).unwrap();
        assert!(before.is_default, "{before:?}");
        let report = fix(home);
        let changed = change(&report, "t0 qdisc");
        assert_eq!(changed["old"], before.kinds.join(" of "), "{changed}");
        let now = qdisc::of_device(device).unwrap();
        if changed["written"] == true {
            assert_eq!(now.kinds, ["fq"]);
        } else {
            assert!(changed["reason"].as_str().unwrap().contains("no qdisc fq (module sch_fq)"), "{changed}");
            assert_eq!(now, before);
        }
        undo(home);
        assert_eq!(qdisc::of_device(device).unwrap(), before);
        // One with options of its own could not be restored.
        run("tc qdisc replace dev t0 root pfifo limit 77");
        let report = fix(home);
        let note = finding(&report, "qdisc")["fix"]["note"].as_str().unwrap();
        assert_eq!(note, "this qdisc was set by tc or a network manager; --fix cannot restore its options");
        let changes = report["changes"].as_array().unwrap();
        assert!(changes.iter().all(|change| change["name"] != "t0 qdisc"), "{report}");
        assert_eq!(qdisc::of_device(device).unwrap().kinds, ["pfifo"]);
    });
}

/// As `--fix` saves it on a kernel that has the other qdisc.
#[test]
fn undo_gives_the_qdisc_back_to_the_kernel_unless_it_was_changed_since() {
    in_namespaces(|home| {
        run("ip tuntap add t0 mode tap");
        run("ip link set t0 up");
        let device = link::named("t0").unwrap().index;
        let before = qdisc::of_device(device).unwrap();
        let state = home.join(".local/state/longhaul/doctor-undo.json");
        let save = || {
            let namespace = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
            let setting = serde_json::json!({ "namespace": namespace, "name": "t0 qdisc", "old": before.kinds[0], "new": "pfifo" });
            std::fs::create_dir_all(state.parent().unwrap()).unwrap();
            std::fs::write(&state, serde_json::json!({ "version": 1, "settings": [setting] }).to_string())
                .unwrap();
        };
        save();
        run("tc qdisc replace dev t0 root pfifo");
        let undone = undo(home);
        assert!(text(&undone.stdout).starts_with("t0 qdisc: pfifo -> "), "{}", text(&undone.stdout));
        assert_eq!(qdisc::of_device(device).unwrap(), before);
        save();
        run("tc qdisc replace dev t0 root bfifo");
        let undone = undo(home);
        assert!(text(&undone.stdout).starts_with("t0 qdisc: left at bfifo"), "{}", text(&undone.stdout));
        assert_eq!(qdisc::of_device(device).unwrap().kinds, ["bfifo"]);
    });
}
