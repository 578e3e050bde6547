//! How a path deviated from its specification, with cause and remedy.

use crate::cpu_time::CpuShares;
use crate::cross_traffic::CrossFlowStats;
use crate::spec::PathSpec;

use super::stats::{DirectionStats, PathStats, millis};

impl DirectionStats {
    /// Returns the sum of both 99 % quantiles over [`PathSpec::allowed_lateness`]; above 1 this
    /// direction is late.
    fn lateness(&self, spec: &PathSpec) -> f64 {
        self.late.both_p99().as_secs_f64() / spec.allowed_lateness().0.as_secs_f64()
    }
}

impl PathStats {
    /// Describes how the path deviates from the specification, with cause and remedy: one text for
    /// the lateness of both directions, that of the later one.
    pub fn infidelities(&self, spec: &PathSpec) -> Vec<String> {
        let directions = || self.directions().into_iter().zip([0, 1].map(|stream| spec.direction(stream)));
        let later = directions().map(|((name, stats), spec)| (stats.lateness(&spec), name, stats, spec));
        let latest = later.max_by(|one, other| one.0.total_cmp(&other.0)).filter(|(late, ..)| *late > 1.0);
        let dropped = self.directions().map(|(_, stats)| stats.dropped_overflow).iter().sum::<u64>();
        latest
            .map(|(_, name, stats, spec)| {
                let (allowed, of_what) = spec.allowed_lateness();
                let late = millis(stats.late.both_p99());
                let allowed = millis(allowed);
                format!("{name}: 1 % of packets were {late} late, {allowed} are allowed ({of_what}): {}", self.cause())
            })
            .into_iter()
            .chain((dropped > 0).then(|| {
                format!("{dropped} packets were dropped by the emulator itself, not by the model: {}", self.cause())
            }))
            .chain((self.cross_flows.failed > 0).then(|| {
                let CrossFlowStats { flows, failed, .. } = self.cross_flows;
                format!("{failed} of {flows} cross flows could not be made, or broke off")
            }))
            .chain((self.memory_pressures > 0).then(|| {
                "the kernel ran short of memory for TCP, dropped data it had received and closed windows: raise \
                 net.ipv4.tcp_mem on this machine, which both hosts share"
                    .to_owned()
            }))
            .collect()
    }

    /// Returns the probable cause of a late path, and the remedy.
    fn cause(&self) -> String {
        /// From these shares on, in percent, CPUs are not available when a packet is due.
        const STOLEN: u64 = 2;
        const BUSY: u64 = 85;
        match self.cpu {
            CpuShares { stolen: stolen @ STOLEN.., .. } => {
                format!(
                    "the hypervisor took {stolen} % of the CPU; repeat it at a quieter time, or lower the rate"
                )
            }
            CpuShares { busy: busy @ BUSY.., .. } => {
                format!("the CPUs were {busy} % busy; stop other programs, or lower the rate")
            }
            _ => "single wake-ups were late; repeat it, or choose a path of `longhaul lab check`".to_owned(),
        }
    }
}
