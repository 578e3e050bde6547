//! How busy the CPUs of this machine were.

use std::fs;

/// CPU time of this machine since its start, in clock ticks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CpuTime {
    all: u64,
    idle: u64,
    stolen: u64,
}

/// Shares of the CPU time of this machine while a path was running, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuShares {
    /// The share that was used, by the hosts, the path and other programs.
    pub busy: u64,
    /// The share that the hypervisor gave to other guests.
    pub stolen: u64,
}

impl CpuTime {
    /// Reads /proc/stat; zero if it cannot be read.
    pub(crate) fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default()).unwrap_or_default()
    }

    /// Parses the first line of proc_stat(5): user, nice, system, idle, iowait, irq, softirq,
    /// steal; guest time is part of user.
    fn parse(text: &str) -> Option<Self> {
        let numbers = text.lines().next()?.split_whitespace().skip(1).map(|number| number.parse().ok());
        let ticks: Vec<u64> = numbers.take(8).collect::<Option<_>>()?;
        let &[_, _, _, idle, waiting, _, _, stolen] = ticks.as_slice() else { return None };
        Some(Self { all: ticks.iter().sum(), idle: idle + waiting, stolen })
    }

    /// Returns the shares of the time since `before`.
    pub(crate) fn since(self, before: Self) -> CpuShares {
        // Counters may run backwards where a guest is moved to another host.
        let all = self.all.saturating_sub(before.all).max(1);
        let percent = |ticks: u64| ticks.min(all) * 100 / all;
        let (idle, stolen) =
            (self.idle.saturating_sub(before.idle), self.stolen.saturating_sub(before.stolen));
        let busy = if self.all > before.all { 100 - percent(idle) } else { 0 };
        CpuShares { busy, stolen: percent(stolen) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_the_time_between() {
        let at = |text| CpuTime::parse(text).unwrap();
        let (before, after) = (at("cpu  10 0 0 90 0 0 0 0 0 0\ncpu0 1"), at("cpu  80 0 10 100 5 0 0 5 9 0"));
        assert_eq!(after.since(before), CpuShares { busy: 85, stolen: 5 });
        assert_eq!((before.since(after), CpuTime::parse("cpu 1 2").is_none()), (CpuShares::default(), true));
    }
}
