//! The limits that a transfer can meet.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What held a transfer back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitedBy {
    /// TCP was still speeding up: the handshake, slow start, and slow start again after an idle time.
    #[serde(alias = "ramp-up")]
    SlowStart,
    /// The receiver's window: goodput is RWIN/RTT.
    ReceiveWindow,
    /// This host's send buffer.
    SendBuffer,
    /// A fixed amount in flight, far below the window, without loss: the server's send buffer.
    ServerSendBuffer,
    /// Loss on the path that no queue explains.
    Loss,
    /// The path's capacity: a queue, or probes that gain nothing, have shown it.
    Path,
    /// The disk of this host: the application buffer was full (`get`), or empty (`put`).
    Disk,
    /// One core was busy throughout.
    Cpu,
    /// The server: slow to answer, slow to read, or limited to a rate.
    Server,
    /// The ceiling the user set.
    Limit,
    /// The program whose connection was observed did not read or write; why, only the program knows.
    Application,
    /// A token bucket on the path, which drops what exceeds its rate and queues nothing.
    Policer,
    /// Nothing that was observed explains the rate.
    #[default]
    Unknown,
}

impl LimitedBy {
    /// All limits.
    pub const ALL: [Self; 13] = [
        Self::SlowStart,
        Self::ReceiveWindow,
        Self::SendBuffer,
        Self::ServerSendBuffer,
        Self::Loss,
        Self::Path,
        Self::Disk,
        Self::Cpu,
        Self::Server,
        Self::Limit,
        Self::Application,
        Self::Policer,
        Self::Unknown,
    ];

    /// Returns the name, which is also the serialised one.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SlowStart => "slow-start",
            Self::ReceiveWindow => "receive-window",
            Self::SendBuffer => "send-buffer",
            Self::ServerSendBuffer => "server-send-buffer",
            Self::Loss => "loss",
            Self::Path => "path",
            Self::Disk => "disk",
            Self::Cpu => "cpu",
            Self::Server => "server",
            Self::Limit => "limit",
            Self::Application => "application",
            Self::Policer => "policer",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the name as a sentence uses it.
    pub const fn phrase(self) -> &'static str {
        match self {
            Self::SlowStart => "TCP slow start",
            Self::ReceiveWindow => "the receive window",
            Self::SendBuffer => "this host's send buffer",
            Self::ServerSendBuffer => "the server's send buffer",
            Self::Loss => "packet loss",
            Self::Path => "the path",
            Self::Disk => "the disk",
            Self::Cpu => "the CPU",
            Self::Server => "the server",
            Self::Limit => "--limit",
            Self::Application => "the program",
            Self::Policer => "a policer on the path",
            Self::Unknown => "a cause that is not known",
        }
    }
}

impl fmt::Display for LimitedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
