use super::super::check;
use super::super::facts::LinkNegotiation;
use super::super::tests::{self as host, sound_host, target, target_of};
use super::*;

fn judged(name: &str, spoil: impl FnOnce(&mut DeviceFacts)) -> Finding {
    host::judged(name, |facts| spoil(facts.device.as_mut().unwrap()))
}

/// Judges the device for 1 Gbit/s.
fn judged_slow(name: &str, spoil: impl FnOnce(&mut DeviceFacts)) -> Finding {
    host::judged_for(&target_of(1000), name, |facts| spoil(facts.device.as_mut().unwrap()))
}

fn change(fix: &Fix) -> (&str, &str) {
    (&fix.changes[0].name, &fix.changes[0].value)
}

#[test]
fn ethernet_frames_are_advised_against_at_10_gbit_only() {
    let finding = judged("MTU", |device| device.mtu = Ok(1500));
    assert_eq!(finding.severity, Severity::Advice);
    assert!(finding.arithmetic.contains("/ 1500 B = 833333 packets a second; with 9000 B 138889"));
    let fix = finding.fix.unwrap();
    assert_eq!(fix.commands, ["ip link set dev eth0 mtu 9000"]);
    let rule = r#"ACTION=="add", SUBSYSTEM=="net", NAME=="eth0", ATTR{mtu}="9000""#;
    assert_eq!(fix.lasting.unwrap().lines, [rule]);
    assert!(fix.changes.is_empty() && fix.note.contains("drop longer ones"), "{}", fix.note);
    assert_eq!(judged_slow("MTU", |device| device.mtu = Ok(1500)).severity, Severity::Ok);
}

#[test]
fn queueing_without_fq_is_advice_and_a_shaper_is_named() {
    let judge_set = |root: &str, children: &[&str], is_default| {
        let qdisc = Qdisc { root: root.to_owned(), children: host::names(children), is_default };
        judged("qdisc", |device| device.qdisc = Ok(qdisc))
    };
    let judge = |root: &str, children: &[&str]| judge_set(root, children, true);
    assert_eq!(["fq", "noqueue"].map(|root| judge(root, &[]).severity), [Severity::Ok; 2]);
    let plain = judge("pfifo_fast", &[]);
    assert_eq!(plain.severity, Severity::Advice);
    let fix = plain.fix.unwrap();
    assert_eq!(fix.commands, ["tc qdisc replace dev eth0 root fq"]);
    assert_eq!(change(&fix), ("eth0 qdisc", "fq"));
    let several = judge("mq", &["fq_codel"]);
    assert_eq!((several.severity, several.measured.as_str()), (Severity::Advice, "mq of fq_codel"));
    let fix = several.fix.unwrap();
    assert!(fix.commands[0].ends_with("root mq") && fix.changes[0].value == "mq of fq", "{fix:?}");
    let fix = judge_set("fq_codel", &[], false).fix.unwrap();
    assert!(fix.changes.is_empty() && fix.commands == ["tc qdisc replace dev eth0 root fq"], "{fix:?}");
    assert!(fix.note.starts_with("this qdisc was set by tc or a network manager"), "{fix:?}");
    let shaped = judge("htb", &["fq"]);
    assert!(shaped.severity == Severity::Advice && shaped.arithmetic.contains("htb can delay"));
    assert_eq!(shaped.fix, None);
}

#[test]
fn link_below_the_rate_is_a_problem_that_its_modes_decide() {
    let slow = Rate::mbit(1000);
    let fix = |change: &dyn Fn(&mut LinkNegotiation)| {
        let finding = judged("link rate", |device| {
            device.speed = Ok(slow);
            change(device.negotiation.as_mut().unwrap());
        });
        assert_eq!(finding.severity, Severity::Problem);
        finding.fix.unwrap()
    };
    // Fixed, or only a part of the modes is offered.
    for negotiable in [
        fix(&|link| link.is_on = false),
        fix(&|link| link.fastest_offered = Some(slow)),
        fix(&|link| link.fastest_offered = None),
    ] {
        assert_eq!(negotiable.commands, ["ethtool -s eth0 autoneg on"]);
        let rule = r#"RUN+="/usr/sbin/ethtool -s eth0 autoneg on""#;
        assert!(negotiable.lasting.unwrap().lines[0].contains(rule));
        assert!(negotiable.note.contains("up to 25.0 Gbit/s"), "{}", negotiable.note);
    }
    let fixed = fix(&|link| (link.is_on, link.is_possible) = (false, false));
    assert_eq!(fixed.commands, ["ethtool -s eth0 speed 25000 duplex full autoneg off"]);
    assert!(fixed.note.contains("or the link is lost"), "{}", fixed.note);
    for (advice, why) in [
        (fix(&|_| {}), "the cable or the other end is the limit"),
        (fix(&|link| link.fastest_of_peer = Some(slow)), "the other end offers no more than 1.00 Gbit/s"),
        (fix(&|link| link.fastest = Some(slow)), "only another device helps"),
        (fix(&|link| *link = LinkNegotiation::default()), "decided outside of this host"),
    ] {
        assert!(advice.commands.is_empty() && advice.lasting.is_none(), "{advice:?}");
        assert!(advice.note.contains(why), "{}", advice.note);
    }
    let unread = judged("link rate", |device| {
        device.speed = Ok(slow);
        device.negotiation = Err("it is a bridge".to_owned());
    });
    assert_eq!(unread.fix.unwrap(), Fix::advice("what decides the rate was not read (it is a bridge)"));
}

#[test]
fn offloads_that_are_off_are_switched_on_where_the_driver_can() {
    let off = |offload: &mut Offload, switchable: &[&'static str]| {
        (offload.on, offload.switchable) = (false, switchable.to_vec());
    };
    let spoil = |tso: &'static [&'static str]| {
        move |device: &mut DeviceFacts| {
            off(&mut device.offloads.as_mut().unwrap()[0], tso);
            off(&mut device.offloads.as_mut().unwrap()[2], &["rx-gro"]);
        }
    };
    let tso = &["tx-tcp-segmentation", "tx-tcp6-segmentation"];
    let finding = judged("offloads", spoil(tso));
    assert_eq!(finding.severity, Severity::Problem);
    assert_eq!(finding.measured, "tso gro off, gso sg tx rx on");
    let fix = finding.fix.unwrap();
    assert_eq!(fix.commands, ["ethtool -K eth0 tso on gro on"]);
    assert!(fix.lasting.unwrap().lines[0].contains(r#"RUN+="/usr/sbin/ethtool -K eth0 tso on gro on""#));
    let names: Vec<_> = fix.changes.iter().map(|change| change.name.as_str()).collect();
    assert_eq!(names, ["eth0 rx-gro", "eth0 tx-tcp-segmentation", "eth0 tx-tcp6-segmentation"]);
    assert!(fix.changes.iter().all(|change| change.value == "on"));
    let partly = judged("offloads", spoil(&[]));
    assert!(partly.arithmetic.ends_with("the driver has no tso"), "{}", partly.arithmetic);
    assert_eq!(partly.fix.unwrap().commands, ["ethtool -K eth0 gro on"]);
    assert_eq!(judged_slow("offloads", spoil(tso)).severity, Severity::Advice);
    let fixed = Offload { name: "tso", on: false, switchable: Vec::new() };
    let finding = judged("offloads", |device| device.offloads = Ok(vec![fixed]));
    assert_eq!(finding.severity, Severity::Ok);
}

#[test]
fn rings_hold_what_arrives_between_two_polls() {
    let rings = |rx, rx_max| {
        judged("ring sizes", move |device| device.rings = Ok(RingSizes { rx, rx_max, tx: 512, tx_max: 8192 }))
    };
    // 10 Gbit/s in packets of 9000 B for 2 ms.
    let finding = rings(256, 8192);
    assert_eq!((finding.severity, finding.quantity.unwrap().needed), (Severity::Advice, 278));
    let fix = finding.fix.unwrap();
    assert_eq!(fix.commands, ["ethtool -G eth0 rx 278 tx 512"]);
    assert_eq!(fix.note, "the driver may restart its link");
    assert_eq!(change(&fix), ("eth0 rings", "rx 278 tx 512"));
    // Enough, and a device that has no larger ones.
    assert_eq!([rings(278, 8192), rings(256, 256)].map(|finding| finding.severity), [Severity::Ok; 2]);
}

#[test]
fn device_whose_name_a_shell_may_misread_gets_no_command() {
    let spoilt = |name: &str| {
        let mut facts = sound_host();
        let device = facts.device.as_mut().unwrap();
        device.name = name.to_owned();
        device.mtu = Ok(1500);
        device.qdisc = Ok(Qdisc { root: "pfifo_fast".to_owned(), children: Vec::new(), is_default: true });
        device.speed = Ok(Rate::bits_per_sec(1_000_000));
        device.negotiation.as_mut().unwrap().is_on = false;
        device.offloads.as_mut().unwrap()[2] = Offload { name: "gro", on: false, switchable: vec!["rx-gro"] };
        device.rings = Ok(RingSizes { rx: 1, rx_max: 8192, tx: 1, tx_max: 8192 });
        device.numa = Ok(NumaFacts { node: Some(1), nodes: 2, runs_elsewhere: true });
        check(&facts, &target())
    };
    for name in ["a$(reboot)", "a\"b", "-a", "a;b", "a'b", "eth0@if2", "\u{e9}th0"] {
        let diagnosis = spoilt(name);
        let fixes: Vec<_> = diagnosis.fixes().filter(|fix| fix.note.contains("device's name")).collect();
        assert_eq!(fixes.len(), 5, "{diagnosis:?}");
        for fix in diagnosis.fixes() {
            let lasting = fix.lasting.iter().flat_map(|lasting| &lasting.lines).chain([&fix.note]);
            let mut texts = lasting.chain(&fix.commands).chain(fix.changes.iter().map(|change| &change.name));
            assert!(texts.all(|text| !text.contains(name)), "{fix:?}");
        }
    }
    for name in ["eth0.100", "br-1_a"] {
        assert!(spoilt(name).fixes().all(|fix| !fix.note.contains("device's name")));
    }
}

#[test]
fn process_belongs_on_the_node_of_the_device_and_loopback_has_no_link() {
    let numa = |node, nodes, runs_elsewhere| {
        judged("NUMA node", move |device| device.numa = Ok(NumaFacts { node, nodes, runs_elsewhere }))
    };
    let finding = numa(Some(1), 2, true);
    assert_eq!(finding.severity, Severity::Advice);
    let fix = finding.fix.unwrap();
    assert!(fix.commands[0].starts_with("numactl --cpunodebind=1 --membind=1 "));
    assert!(fix.lasting.unwrap().lines.contains(&"NUMAMask=1".to_owned()));
    for sound in [numa(Some(1), 2, false), numa(Some(0), 1, true), numa(None, 2, true)] {
        assert_eq!(sound.severity, Severity::Ok, "{sound:?}");
    }
    let mut facts = sound_host();
    facts.device.as_mut().unwrap().is_loopback = true;
    let names: Vec<_> = check(&facts, &target()).findings.iter().map(|finding| finding.name).collect();
    assert!(names.contains(&"MTU") && !names.contains(&"link rate") && !names.contains(&"offloads"));
}
