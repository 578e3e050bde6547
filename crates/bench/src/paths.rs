//! The emulated paths.

use std::fmt;

use longhaul_lab::PathSpec;
use serde::{Serialize, Serializer};

use crate::grid_path::GridPath;

/// Background traffic of [`BenchPath::SharedCubic`] and [`BenchPath::SharedBbr`].
const STEPS: &str = "0@0s,20%@8s,50%@16s";

/// A path between a server and a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BenchPath {
    /// A long fat path whose hosts use cubic.
    LongCubic,
    /// [`Self::LongCubic`] with bbr.
    LongBbr,
    /// [`Self::LongCubic`] with the hosts' default settings: a send buffer of 4 MB.
    LongStock,
    /// GridFTP-APT's path: 100 Mbit/s, RTT 100 ms (tau = 50 ms), a queue of 100 packets, TCP Reno, as in scenarios/apt-*.toml.
    Paper,
    /// 1 Gbit/s to a server at 100 ms, where small files cost round trips.
    Far,
    /// 1 Gbit/s at 100 ms with the hosts' default settings.
    FarStock,
    /// A plain veth pair.
    NoDelay,
    /// ICDC's path: a long path with a shallow switch queue, hosts with cubic.
    SwitchCubic,
    /// [`Self::SwitchCubic`] with bbr.
    SwitchBbr,
    /// [`Self::SwitchCubic`] with background traffic in steps.
    SharedCubic,
    /// [`Self::SharedCubic`] with bbr.
    SharedBbr,
    /// A path of the pacing grid, between tuned hosts.
    Grid(GridPath),
}

impl BenchPath {
    /// Returns the path's specification.
    pub(crate) fn spec(self) -> PathSpec {
        let mut spec = PathSpec::default();
        for (key, value) in self.values() {
            // A test checks that all are valid.
            let _ = spec.set(key, &value);
        }
        spec
    }

    /// Returns the specification's fields as a scenario has them.
    pub(crate) fn values(self) -> Vec<(&'static str, String)> {
        let path = |rate: &str, rtt: &str, hosts: &str, congestion: &str| {
            let fields = [("rate", rate), ("rtt", rtt), ("hosts", hosts), ("congestion", congestion)];
            fields.map(|(key, value)| (key, value.to_owned())).to_vec()
        };
        let queue = |queue: &str| vec![("queue", queue.to_owned())];
        let switch = |congestion| [path("1Gbit", "302ms", "tuned", congestion), queue("1MB")].concat();
        let shared = |congestion| [switch(congestion), vec![("background", STEPS.to_owned())]].concat();
        match self {
            Self::NoDelay => Vec::new(),
            Self::LongCubic => path("10Gbit", "200ms", "tuned", "cubic"),
            Self::LongBbr => path("10Gbit", "200ms", "tuned", "bbr"),
            Self::LongStock => path("10Gbit", "200ms", "stock", "cubic"),
            Self::Far => path("1Gbit", "100ms", "tuned", "cubic"),
            Self::FarStock => path("1Gbit", "100ms", "stock", "cubic"),
            Self::Paper => [path("100Mbit", "100ms", "stock", "reno"), queue("100packets")].concat(),
            Self::Grid(grid) => {
                let (rate, rtt) = (format!("{}Mbit", grid.mbit), format!("{}ms", grid.rtt_ms));
                let bytes = grid.queue_bytes().get().to_string();
                [path(&rate, &rtt, "tuned", "cubic"), queue(&bytes)].concat()
            }
            Self::SwitchCubic => switch("cubic"),
            Self::SwitchBbr => switch("bbr"),
            Self::SharedCubic => shared("cubic"),
            Self::SharedBbr => shared("bbr"),
        }
    }
}

impl fmt::Display for BenchPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Grid(path) => return write!(f, "{path}, cubic"),
            Self::LongCubic => "10 Gbit/s, RTT 200 ms, cubic",
            Self::LongBbr => "10 Gbit/s, RTT 200 ms, bbr",
            Self::LongStock => "10 Gbit/s, RTT 200 ms, stock hosts, cubic",
            Self::Paper => "100 Mbit/s, RTT 100 ms, queue 100 packets, windows of 64 KiB, reno",
            Self::Far => "1 Gbit/s, RTT 100 ms, cubic",
            Self::FarStock => "1 Gbit/s, RTT 100 ms, stock hosts, cubic",
            Self::NoDelay => "veth, no delay",
            Self::SwitchCubic => "1 Gbit/s, RTT 302 ms, queue 1 MB, cubic",
            Self::SwitchBbr => "1 Gbit/s, RTT 302 ms, queue 1 MB, bbr",
            Self::SharedCubic => "1 Gbit/s, RTT 302 ms, queue 1 MB, background 0, 20, 50 %, cubic",
            Self::SharedBbr => "1 Gbit/s, RTT 302 ms, queue 1 MB, background 0, 20, 50 %, bbr",
        })
    }
}

impl Serialize for BenchPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use longhaul_lab::Hosts;

    use super::*;
    use crate::grid_path::GridQueue;

    #[test]
    fn every_path_can_be_built() {
        use BenchPath::*;
        for path in [
            [LongCubic, LongBbr, LongStock, Paper, Far, FarStock].as_slice(),
            &[NoDelay, SwitchCubic, SwitchBbr, SharedCubic, SharedBbr],
        ]
        .concat()
        {
            let mut spec = PathSpec::default();
            path.values().iter().for_each(|(key, value)| spec.set(key, value).unwrap());
            spec.validate().unwrap();
        }
        assert!(!BenchPath::SharedCubic.spec().background.is_none());
        let grid = GridPath { mbit: 100, rtt_ms: 20, queue: GridQueue::BdpPercent(10) };
        assert_eq!(BenchPath::Grid(grid).spec(), PathSpec { hosts: Hosts::Tuned, ..grid.spec() });
    }
}
