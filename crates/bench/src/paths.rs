//! The paths that are measured on.

use std::fmt;
use std::time::Duration;

use longhaul_core::units::{Rate, Rtt};
use longhaul_lab::{Hosts, PathSpec};
use serde::{Serialize, Serializer};

/// Payload of a 1500-byte packet: 40 bytes are headers of IPv4 and TCP, 12 its timestamps (RFC 7323).
const PAYLOAD_SHARE: f64 = 1448.0 / 1500.0;

/// A path between nginx and a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BenchPath {
    /// A long fat path whose hosts use cubic.
    LongCubic,
    /// The same with bbr.
    LongBbr,
    /// A plain veth pair.
    NoDelay,
}

impl BenchPath {
    /// Returns what the lab is asked for.
    pub(crate) fn spec(self) -> PathSpec {
        let congestion = match self {
            Self::LongCubic => "cubic",
            Self::LongBbr => "bbr",
            Self::NoDelay => return PathSpec::default(),
        };
        PathSpec {
            rate: Some(Rate::bits_per_sec(10_000_000_000)),
            rtt: Rtt::new(Duration::from_millis(200)),
            hosts: Hosts::Tuned,
            congestion: congestion.to_owned(),
            ..PathSpec::default()
        }
    }

    /// Returns the rate at which TCP payload can pass at most; `None` where the path has no rate.
    ///
    /// A path's rate counts the bytes of IP packets.
    pub(crate) fn payload_rate(self) -> Option<Rate> {
        let rate = self.spec().rate?;
        Some(Rate::bits_per_sec((rate.as_bits_per_sec() as f64 * PAYLOAD_SHARE) as u64))
    }
}

impl fmt::Display for BenchPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::LongCubic => "10 Gbit/s, RTT 200 ms, cubic",
            Self::LongBbr => "10 Gbit/s, RTT 200 ms, bbr",
            Self::NoDelay => "veth, no delay",
        })
    }
}

impl Serialize for BenchPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
