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
    /// Returns `tcp_rmem`: minimum, default and maximum receive buffer in bytes.
    pub fn tcp_rmem(self) -> &'static str {
        match self {
            Self::Stock => "4096 131072 6291456",
            Self::Tuned => "4096 131072 1073741824",
        }
    }

    /// Returns `tcp_wmem`: minimum, default and maximum send buffer in bytes.
    pub fn tcp_wmem(self) -> &'static str {
        match self {
            Self::Stock => "4096 16384 4194304",
            Self::Tuned => "4096 16384 1073741824",
        }
    }

    /// Returns `tcp_notsent_lowat`: maximum unsent data in a send buffer, in bytes.
    ///
    /// Both hosts share one kernel's `tcp_mem`, which separate machines would not. Unsent data beyond a few
    /// milliseconds is useless, and unbounded it equals the data in flight. With this bound, 10 Gbit/s at 200 ms stays
    /// below TCP memory pressure, in which the kernel drops received data.
    pub fn tcp_notsent_lowat(self) -> &'static str {
        match self {
            Self::Stock => "4294967295",
            Self::Tuned => "16777216",
        }
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
