//! `--fix` and `--undo` of settings of the network device, on devices in namespaces of the tests'
//! own.

use std::path::Path;

use longhaul_sys::ethtool::Ethtool;
use longhaul_sys::{link, qdisc};
use serde_json::Value;

use crate::doctor::command::{about_path, change, finding, in_namespaces, json, run, undo};
use crate::doctor::fix::save;

/// What veth can switch, and hardware as well.
const TSO: &str = "tx-tcp-segmentation";

fn fix(home: &Path) -> Value {
    json(&about_path(home, &["--fix", "--yes", "--json"]))
}

/// Makes a device the one of the default route.
fn route_over(device: &str) {
    run(&format!(
        "ip addr add 198.51.100.1/24 dev {device}; ip link set {device} up; ip route add default dev {device}"
    ));
}

#[test]
fn offload_is_switched_on_and_off_again() {
    in_namespaces(|home| {
        run("ip link add v0 type veth peer v1; ip link set v1 up");
        route_over("v0");
        let device = link::named("v0").unwrap().index;
        let features = || Ethtool::open().unwrap().features(device).unwrap();
        let is_on = || features().active.iter().any(|name| name == TSO);
        let set = |on| Ethtool::open().unwrap().set_feature(device, TSO, on).unwrap();
        let fixed = || {
            let report = fix(home);
            let tso = change(&report, &format!("v0 {TSO}")).unwrap();
            assert!(tso["old"] == "off" && tso["new"] == "on" && tso["written"] == true, "{tso}");
            assert!(is_on());
            report
        };
        set(false);
        let report = fixed();
        assert_eq!(finding(&report, "offloads")["severity"], "problem");
        // MTU and link are for the user to change.
        assert_eq!(finding(&report, "MTU")["severity"], "advice");
        assert_eq!(link::named("v0").unwrap().mtu, Some(1500));
        let (_, shown) = undo(home);
        assert!(shown.contains(&format!("v0 {TSO}: on -> off")) && !is_on(), "{shown}");
        // What another hand has changed since is not touched.
        fixed();
        set(false);
        assert_eq!((undo(home).0, is_on()), (Some(0), false));
        // A device that is gone has nothing to restore.
        fixed();
        run("ip link del v0");
        let (code, shown) = undo(home);
        assert!(shown.contains(&format!("v0 {TSO}: the device is gone: nothing to restore")), "{shown}");
        assert_eq!((code, undo(home).0), (Some(0), Some(66)), "{shown}");
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
        let changed = change(&report, "t0 qdisc").unwrap();
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
        assert_eq!(change(&report, "t0 qdisc"), None, "{report}");
        assert_eq!(qdisc::of_device(device).unwrap().kinds, ["pfifo"]);
    });
}

/// As `--fix` saves it on a kernel that has the other qdisc.
#[test]
fn undo_gives_the_qdisc_back_to_the_kernel_unless_it_was_changed_since() {
    in_namespaces(|home| {
        run("ip tuntap add t0 mode tap; ip link set t0 up");
        let device = link::named("t0").unwrap().index;
        let before = qdisc::of_device(device).unwrap();
        let namespace = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        for (now, shown, kinds) in [
            ("pfifo", "t0 qdisc: pfifo -> ", before.kinds.clone()),
            ("bfifo", "t0 qdisc: left at bfifo", vec!["bfifo".to_owned()]),
        ] {
            let setting = serde_json::json!({ "namespace": namespace, "name": "t0 qdisc", "old": before.kinds[0], "new": "pfifo" });
            save(home, &[setting], None);
            run(&format!("tc qdisc replace dev t0 root {now}"));
            let (_, undone) = undo(home);
            assert!(undone.starts_with(shown), "{undone}");
            let after = qdisc::of_device(device).unwrap();
            assert_eq!((after.kinds, after.is_default), (kinds, now == "pfifo"));
        }
    });
}
