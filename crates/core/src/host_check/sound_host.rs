//! A host that every check is content with, for tests to spoil.

use std::path::PathBuf;
use std::time::Duration;

use super::facts::*;
use super::finding::{Finding, Fix};
use super::target::{Origin, Target};
use super::{Severity, check};
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
        cpu: CpuFacts { governors: Ok(names(&["performance"])) },
        disk: DiskFacts {
            path: PathBuf::from("/data"),
            free: Ok(Bytes::gib(1000)),
            direct_io: Ok(DirectIoFact::Aligned(Bytes::new(512))),
            write_test: Some(Ok(write_test)),
        },
        resources: ResourceFacts {
            memory: Ok(Bytes::gib(16)),
            files: Ok(FileLimits { soft: 1024, hard: 524_288 }),
            group_memory: Ok(None),
            group_cpu_thousandths: Ok(None),
        },
    }
}
