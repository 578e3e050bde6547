//! The TCP settings of the hosts: stock or tuned.

use std::fmt;
use std::str::FromStr;

use super::ParsePathError;

/// The limits of the hosts' TCP buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hosts {
    /// Debian's defaults: windows of a few MiB.
    #[default]
    Stock,
    /// Receive and send buffers of up to 1 GiB, the maximum of TCP's window scale.
    Tuned,
}

impl Hosts {
    /// Returns the settings of TCP's buffers in bytes, by their sysctl names: minimum, default and
    /// maximum of each, and the maximum of unsent data.
    ///
    /// Both hosts share one kernel's `tcp_mem`, which separate machines would not. Unsent data
    /// beyond a few milliseconds is useless, and unbounded it equals the data in flight. With this
    /// bound, 10 Gbit/s at 200 ms stays below TCP memory pressure, in which the kernel drops
    /// received data.
    pub(crate) fn settings(self) -> [(&'static str, &'static str); 3] {
        let [receive, send, unsent] = match self {
            Self::Stock => ["4096 131072 6291456", "4096 16384 4194304", "4294967295"],
            Self::Tuned => ["4096 131072 1073741824", "4096 16384 1073741824", "16777216"],
        };
        [("net.ipv4.tcp_rmem", receive), ("net.ipv4.tcp_wmem", send), ("net.ipv4.tcp_notsent_lowat", unsent)]
    }
}

impl FromStr for Hosts {
    type Err = ParsePathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "stock" => Ok(Self::Stock),
            "tuned" => Ok(Self::Tuned),
            _ => Err(ParsePathError(format!("'{text}' is not one of stock, tuned"))),
        }
    }
}

impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Stock => "stock",
            Self::Tuned => "tuned",
        })
    }
}
