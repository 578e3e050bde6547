//! Checks whether this host can carry a transfer of a rate and an RTT: readings in, findings out.
//!
//! [`HostFacts`] holds what was read of the host, [`Target`] what the transfer needs. [`check`]
//! compares them: each [`Finding`] names the measured and the needed value with its arithmetic, the
//! commands that change it, and where the advice comes from. A reading that is missing becomes an
//! [`Unread`] instead, which says what it would have shown.

mod ceiling;
mod congestion;
mod device;
mod disk;
mod facts;
mod finding;
mod needed_buffers;
mod resources;
mod target;
mod tcp_options;

pub use ceiling::{Ceiling, Ceilings};
pub use facts::{
    AutotuneLimits, BufferFacts, CongestionFacts, DeviceFacts, DirectIoFact, DiskFacts, FileLimits,
    HostFacts, KernelVersion, LinkNegotiation, NumaFacts, Offload, Qdisc, Reading, ResourceFacts, RingSizes,
    TcpFacts, TcpMemory, WriteTest,
};
pub use finding::{
    Finding, Fix, GOVERNOR, Lasting, QDISC, Quantity, RINGS, START_FILES, SYSCTL_FILE, SettingChange,
    Severity, Unread,
};
pub use target::{Origin, Target};

use serde::Serialize;

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

    /// Judges a reading, or notes that it is missing.
    fn judge<T>(
        &mut self,
        reading: &Reading<T>,
        name: &'static str,
        would_show: &'static str,
        judge: impl FnOnce(&T) -> Finding,
    ) {
        match reading {
            Ok(value) => self.push(name, judge(value)),
            Err(reason) => self.unread.push(Unread { name, reason: reason.clone(), would_show }),
        }
    }

    fn push(&mut self, name: &'static str, finding: Finding) {
        self.findings.push(Finding { name, ..finding });
    }

    /// Adds a finding of a property that the checks do not read before others of its severity.
    pub fn add(&mut self, name: &'static str, finding: Finding) {
        self.findings.insert(0, Finding { name, ..finding });
        self.sort();
    }

    fn sort(&mut self) {
        self.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    }
}

/// Checks a host for a transfer.
pub fn check(facts: &HostFacts, target: &Target) -> Diagnosis {
    let (findings, unread, ceilings) = (Vec::new(), Vec::new(), Ceilings::of(facts, target));
    let mut report = Diagnosis { target: target.clone(), findings, unread, ceilings };
    needed_buffers::check(facts, target, &mut report);
    tcp_options::check(facts, target, &mut report);
    congestion::check(facts, target, &mut report);
    device::check(&facts.device, target, &mut report);
    disk::check(&facts.disk, target, &mut report);
    resources::check(facts, target, &mut report);
    report.sort();
    report
}

#[cfg(test)]
mod tests;
