//! A host that every check is content with, and what is found when it is spoilt.

use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::units::{Bytes, Rate, Rtt};

/// 10 Gbit/s at 200 ms: 250 MB in flight.
pub(super) fn target() -> Target {
    Target {
        rate: Rate::mbit(10_000),
        rate_origin: Origin::Given,
        rtt: Rtt::new(Duration::from_millis(200)),
        rtt_origin: Origin::Given,
    }
}

/// The same path at a lower or higher rate.
pub(super) fn target_of(mbit: u64) -> Target {
    Target { rate: Rate::mbit(mbit), ..target() }
}

/// Returns the finding of this name about a host that `spoil` has changed.
pub(super) fn judged_for(target: &Target, name: &str, spoil: impl FnOnce(&mut HostFacts)) -> Finding {
    let mut facts = sound_host();
    spoil(&mut facts);
    check(&facts, target).findings.into_iter().find(|finding| finding.name == name).unwrap()
}

pub(super) fn judged(name: &str, spoil: impl FnOnce(&mut HostFacts)) -> Finding {
    judged_for(&target(), name, spoil)
}

pub(super) fn severity(name: &str, spoil: impl FnOnce(&mut HostFacts)) -> Severity {
    judged(name, spoil).severity
}

pub(super) fn fix(name: &str, spoil: impl FnOnce(&mut HostFacts)) -> Fix {
    judged(name, spoil).fix.unwrap()
}

pub(super) fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Makes a host for [`target`].
pub(super) fn sound_host() -> HostFacts {
    let limits = AutotuneLimits { min: Bytes::kib(4), default: Bytes::kib(128), max: Bytes::mib(512) };
    let offload = |name| Offload { name, on: true, switchable: Vec::new() };
    let (fastest, fastest_offered) = (Some(Rate::mbit(25_000)), Some(Rate::mbit(25_000)));
    let negotiation =
        LinkNegotiation { is_on: true, is_possible: true, fastest, fastest_offered, fastest_of_peer: None };
    let (took, stall) = (Duration::from_secs(2), Duration::from_millis(20));
    let write_test = WriteTest { written: Bytes::gib(3), took, stall, direct: true };
    HostFacts {
        kernel: Ok(KernelVersion(6, 12)),
        buffers: BufferFacts {
            tcp_rmem: Ok(limits),
            tcp_wmem: Ok(limits),
            rmem_max: Ok(Bytes::mib(512)),
            wmem_max: Ok(Bytes::mib(512)),
            tcp_mem: Ok(TcpMemory { low: 300_000, pressure: 400_000, limit: 600_000, page: Bytes::kib(4) }),
            adv_win_scale: Ok(1),
        },
        tcp: TcpFacts {
            window_scaling: Ok(true),
            sack: Ok(true),
            timestamps: Ok(true),
            slow_start_after_idle: Ok(false),
            mtu_probing: Ok(1),
        },
        congestion: CongestionFacts {
            current: Ok("cubic".to_owned()),
            available: Ok(names(&["reno", "cubic", "bbr"])),
            allowed: Ok(names(&["reno", "cubic", "bbr"])),
            modules: Ok(names(&["tcp_bbr", "tcp_cubic"])),
        },
        device: Ok(DeviceFacts {
            name: "eth0".to_owned(),
            is_loopback: false,
            mtu: Ok(9000),
            qdisc: Ok(Qdisc { root: "mq".to_owned(), children: names(&["fq"]), is_default: true }),
            speed: Ok(Rate::mbit(25_000)),
            negotiation: Ok(negotiation),
            offloads: Ok(["tso", "gso", "gro", "sg", "tx", "rx"].map(offload).into()),
            rings: Ok(RingSizes { rx: 4096, rx_max: 8192, tx: 4096, tx_max: 8192 }),
            numa: Ok(NumaFacts { node: Some(0), nodes: 1, runs_elsewhere: false }),
        }),
        disk: DiskFacts {
            path: PathBuf::from("/data"),
            free: Ok(Bytes::gib(1000)),
            direct_io: Ok(DirectIoFact::Aligned(Bytes::new(512))),
            write_test: Some(Ok(write_test)),
        },
        resources: ResourceFacts {
            governors: Ok(names(&["performance"])),
            memory: Ok(Bytes::gib(16)),
            files: Ok(FileLimits { soft: 1024, hard: 524_288 }),
            group_memory: Ok(None),
            group_cpu_thousandths: Ok(None),
        },
    }
}

/// Makes a host of which nothing could be read, for one reason.
pub(super) fn unread_host(reason: &str) -> HostFacts {
    fn none<T>(reason: &str) -> Reading<T> {
        Err(reason.to_owned())
    }
    HostFacts {
        kernel: none(reason),
        buffers: BufferFacts {
            tcp_rmem: none(reason),
            tcp_wmem: none(reason),
            rmem_max: none(reason),
            wmem_max: none(reason),
            tcp_mem: none(reason),
            adv_win_scale: none(reason),
        },
        tcp: TcpFacts {
            window_scaling: none(reason),
            sack: none(reason),
            timestamps: none(reason),
            slow_start_after_idle: none(reason),
            mtu_probing: none(reason),
        },
        congestion: CongestionFacts {
            current: none(reason),
            available: none(reason),
            allowed: none(reason),
            modules: none(reason),
        },
        device: none(reason),
        disk: DiskFacts {
            path: PathBuf::from("."),
            free: none(reason),
            direct_io: none(reason),
            write_test: Some(none(reason)),
        },
        resources: ResourceFacts {
            governors: none(reason),
            memory: none(reason),
            files: none(reason),
            group_memory: none(reason),
            group_cpu_thousandths: none(reason),
        },
    }
}

#[test]
fn sound_host_has_no_advice_and_reaches_the_rate() {
    let diagnosis = check(&sound_host(), &target());
    assert_eq!((diagnosis.worst(), diagnosis.unread.len()), (Severity::Ok, 0), "{diagnosis:#?}");
    assert!(diagnosis.changes().is_empty());
    assert!(diagnosis.findings.iter().all(|finding| !finding.source.is_empty()));
}

#[test]
fn problems_come_first_and_names_are_unique() {
    let mut facts = sound_host();
    facts.tcp.sack = Ok(false);
    facts.tcp.slow_start_after_idle = Ok(true);
    let diagnosis = check(&facts, &target());
    let order: Vec<_> = diagnosis.findings.iter().map(|finding| finding.severity).collect();
    assert!(order.is_sorted_by(|a, b| a >= b));
    assert_eq!(order[..3], [Severity::Problem, Severity::Advice, Severity::Ok]);
    let mut names: Vec<_> = diagnosis.findings.iter().map(|finding| finding.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), diagnosis.findings.len());
}

/// A host on which nothing is right.
fn spoilt_host() -> HostFacts {
    let mut facts = sound_host();
    let none = Bytes::ZERO;
    let limits = AutotuneLimits { min: none, default: none, max: none };
    (facts.buffers.tcp_rmem, facts.buffers.tcp_wmem) = (Ok(limits), Ok(limits));
    (facts.buffers.rmem_max, facts.buffers.wmem_max) = (Ok(none), Ok(none));
    facts.buffers.tcp_mem = Ok(TcpMemory { low: 0, pressure: 0, limit: 0, page: none });
    (facts.tcp.window_scaling, facts.tcp.sack, facts.tcp.timestamps) = (Ok(false), Ok(false), Ok(false));
    (facts.tcp.slow_start_after_idle, facts.tcp.mtu_probing) = (Ok(true), Ok(0));
    facts.congestion.current = Ok("reno".to_owned());
    facts.congestion.allowed = Ok(vec!["reno".to_owned()]);
    let device = facts.device.as_mut().unwrap();
    device.mtu = Ok(1501);
    device.qdisc = Ok(Qdisc { root: "pfifo_fast".to_owned(), children: Vec::new(), is_default: true });
    device.speed = Ok(Rate::bits_per_sec(1));
    device.offloads = Ok(vec![Offload { name: "gro", on: false, switchable: vec!["rx-gro"] }]);
    device.rings = Ok(RingSizes { rx: 1, rx_max: 8192, tx: 1, tx_max: 8192 });
    device.numa = Ok(NumaFacts { node: Some(1), nodes: 2, runs_elsewhere: true });
    facts.resources.governors = Ok(vec!["powersave".to_owned()]);
    facts.disk.free = Ok(none);
    facts.disk.direct_io = Ok(DirectIoFact::Impossible);
    let second = Duration::from_secs(1);
    let test = WriteTest { written: none, took: second, stall: second, direct: true };
    facts.disk.write_test = Some(Ok(test));
    (facts.resources.memory, facts.resources.group_memory) = (Ok(none), Ok(Some(none)));
    facts.resources.files = Ok(FileLimits { soft: 1, hard: 1024 });
    facts.resources.group_cpu_thousandths = Ok(Some(1));
    facts
}

#[test]
fn each_finding_has_a_fix_and_says_what_makes_it_last() {
    let diagnosis = check(&spoilt_host(), &target_of(100_000));
    let (bad, ok): (Vec<_>, Vec<_>) =
        diagnosis.findings.iter().partition(|finding| finding.severity != Severity::Ok);
    let ok: Vec<_> = ok.iter().map(|finding| finding.name).collect();
    assert_eq!(ok, ["available controls", "network device"], "all others are spoilt");
    for finding in bad {
        let fix = finding.fix.as_ref().unwrap_or_else(|| panic!("{finding:?}"));
        assert!(!fix.commands.is_empty() || !fix.note.is_empty(), "{finding:?}");
        assert!(fix.lasting.is_some() || !fix.note.is_empty(), "{finding:?}");
    }
}

#[test]
fn every_missing_reading_is_named_and_the_rest_is_checked() {
    let facts = unread_host("no permission");
    let diagnosis = check(&facts, &target());
    assert!(diagnosis.findings.is_empty(), "{:?}", diagnosis.findings);
    assert!(diagnosis.unread.len() >= 20, "{}", diagnosis.unread.len());
    for unread in &diagnosis.unread {
        assert!(unread.reason == "no permission" && !unread.would_show.is_empty(), "{unread:?}");
    }
    assert_eq!(diagnosis.ceilings.receive.now, None);
    // One that can be read is judged without the others.
    let facts = HostFacts { tcp: TcpFacts { sack: Ok(false), ..facts.tcp }, ..facts };
    assert_eq!(check(&facts, &target()).findings.len(), 1);
}
