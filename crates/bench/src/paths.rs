//! The emulated paths.

use std::fmt;
use std::time::Duration;

use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_lab::{BackgroundSteps, Hosts, PathSpec, QueueLimit};
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
        match self {
            Self::NoDelay => PathSpec::default(),
            Self::LongCubic | Self::LongBbr => self.tuned(10_000_000_000, 200),
            Self::Far => self.tuned(1_000_000_000, 100),
            Self::FarStock => PathSpec { hosts: Hosts::Stock, ..self.tuned(1_000_000_000, 100) },
            Self::LongStock => PathSpec { hosts: Hosts::Stock, ..self.tuned(10_000_000_000, 200) },
            Self::Paper => PathSpec {
                queue: Some(QueueLimit::Packets(100)),
                hosts: Hosts::Stock,
                congestion: "reno".to_owned(),
                ..self.tuned(100_000_000, 100)
            },
            Self::Grid(path) => PathSpec { hosts: Hosts::Tuned, ..path.spec() },
            Self::SwitchCubic | Self::SwitchBbr | Self::SharedCubic | Self::SharedBbr => PathSpec {
                queue: Some(QueueLimit::Bytes(Bytes::new(1_000_000))),
                background: self.background(),
                ..self.tuned(1_000_000_000, 302)
            },
        }
    }

    fn tuned(self, bits_per_sec: u64, rtt_ms: u64) -> PathSpec {
        let bbr = matches!(self, Self::LongBbr | Self::SwitchBbr | Self::SharedBbr);
        PathSpec {
            rate: Some(Rate::bits_per_sec(bits_per_sec)),
            rtt: Rtt::new(Duration::from_millis(rtt_ms)),
            hosts: Hosts::Tuned,
            congestion: if bbr { "bbr" } else { "cubic" }.to_owned(),
            ..PathSpec::default()
        }
    }

    fn background(self) -> BackgroundSteps {
        match self {
            // A test checks that it parses.
            Self::SharedCubic | Self::SharedBbr => STEPS.parse().unwrap_or_default(),
            _ => BackgroundSteps::default(),
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
    use super::*;

    #[test]
    fn every_path_can_be_built() {
        for path in [
            BenchPath::LongCubic,
            BenchPath::LongBbr,
            BenchPath::LongStock,
            BenchPath::Paper,
            BenchPath::Far,
            BenchPath::FarStock,
            BenchPath::NoDelay,
            BenchPath::SwitchCubic,
            BenchPath::SwitchBbr,
            BenchPath::SharedCubic,
            BenchPath::SharedBbr,
        ] {
            path.spec().validate().unwrap();
        }
        assert!(!BenchPath::SharedCubic.spec().background.is_none());
    }
}
