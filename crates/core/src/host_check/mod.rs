//! Checks whether this host can carry a transfer of a rate and an RTT: readings in, findings out.
//!
//! [`HostFacts`] holds what was read of the host, [`Target`] what the transfer needs. [`check`] compares them: each
//! [`Finding`] names the measured and the needed value with its arithmetic, the commands that change it, and where the
//! advice comes from. A reading that is missing becomes an [`Unread`] instead, which says what it would have shown.

mod buffers;
mod ceiling;
mod congestion;
mod device;
mod disk;
mod facts;
mod finding;
mod report;
mod resources;
mod target;
mod tcp_options;

#[cfg(test)]
mod sound_host;

pub use ceiling::{Ceiling, Ceilings};
pub use facts::{
    AutotuneLimits, BufferFacts, CongestionFacts, CpuFacts, DeviceFacts, DirectIoFact, DiskFacts, FileLimits,
    HostFacts, KernelVersion, LinkNegotiation, NumaFacts, Offload, Qdisc, Reading, ResourceFacts, RingSizes,
    TcpFacts, TcpMemory, WriteTest,
};
pub use finding::{
    Finding, Fix, GOVERNOR, Lasting, QDISC, Quantity, RINGS, START_FILES, SYSCTL_FILE, SettingChange,
    Severity, Unread,
};
pub use target::{Origin, Target};

use serde::Serialize;

use report::Report;

/// What a check found, worst first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diagnosis {
    /// The transfer that was judged.
    pub target: Target,
    /// Findings, problems first.
    pub findings: Vec<Finding>,
    /// Readings that are missing.
    pub unread: Vec<Unread>,
    /// What one stream can reach.
    pub ceilings: Ceilings,
}

impl Diagnosis {
    /// Returns the worst severity found.
    pub fn worst(&self) -> Severity {
        self.findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
    }

    /// Returns the settings that the findings ask to change, one of each name.
    pub fn changes(&self) -> Vec<&SettingChange> {
        self.fixes().flat_map(|fix| &fix.changes).collect()
    }

    /// Returns the fixes of all findings.
    pub fn fixes(&self) -> impl Iterator<Item = &Fix> {
        self.findings.iter().filter_map(|finding| finding.fix.as_ref())
    }

    /// Adds a finding before others of its severity.
    pub fn add(&mut self, finding: Finding) {
        self.findings.insert(0, finding);
        self.sort();
    }

    /// Adds a reading that is missing.
    pub fn add_unread(&mut self, unread: Unread) {
        self.unread.push(unread);
    }

    fn sort(&mut self) {
        self.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    }
}

/// Checks a host for a transfer.
pub fn check(facts: &HostFacts, target: &Target) -> Diagnosis {
    let mut report = Report::default();
    buffers::check(facts, target, &mut report);
    tcp_options::check(facts, target, &mut report);
    congestion::check(facts, target, &mut report);
    device::check(&facts.device, target, &mut report);
    disk::check(&facts.disk, target, &mut report);
    resources::check(facts, target, &mut report);
    let Report { findings, unread } = report;
    let ceilings = Ceilings::of(facts, target);
    let mut diagnosis = Diagnosis { target: target.clone(), findings, unread, ceilings };
    diagnosis.sort();
    diagnosis
}

#[cfg(test)]
mod tests {
    use super::sound_host::{sound_host, target, target_of};
    use super::*;

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
        let none = crate::units::Bytes::ZERO;
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
        device.speed = Ok(crate::units::Rate::bits_per_sec(1));
        device.offloads = Ok(vec![Offload { name: "gro", on: false, switchable: vec!["rx-gro"] }]);
        device.rings = Ok(RingSizes { rx: 1, rx_max: 8192, tx: 1, tx_max: 8192 });
        device.numa = Ok(NumaFacts { node: Some(1), nodes: 2, runs_elsewhere: true });
        facts.cpu.governors = Ok(vec!["powersave".to_owned()]);
        facts.disk.free = Ok(none);
        facts.disk.direct_io = Ok(DirectIoFact::Impossible);
        let second = std::time::Duration::from_secs(1);
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
        let facts = HostFacts::unread("no permission");
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
}
