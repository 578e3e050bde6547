//! The limits that a transfer can meet.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What held a transfer back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitedBy {
    /// TCP was still speeding up: the handshake, slow start, and slow start again after an idle
    /// time.
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
    /// The program whose connection was observed did not read or write; why, only the program
    /// knows.
    Application,
    /// A token bucket on the path, which drops what exceeds its rate and queues nothing.
    Policer,
    /// Nothing that was observed explains the rate.
    #[default]
    Unknown,
}

/// Each limit with its name and its phrase, in the order of the enum.
const LIMITS: [(LimitedBy, &str, &str); 13] = [
    (LimitedBy::SlowStart, "slow-start", "TCP slow start"),
    (LimitedBy::ReceiveWindow, "receive-window", "the receive window"),
    (LimitedBy::SendBuffer, "send-buffer", "this host's send buffer"),
    (LimitedBy::ServerSendBuffer, "server-send-buffer", "the server's send buffer"),
    (LimitedBy::Loss, "loss", "packet loss"),
    (LimitedBy::Path, "path", "the path"),
    (LimitedBy::Disk, "disk", "the disk"),
    (LimitedBy::Cpu, "cpu", "the CPU"),
    (LimitedBy::Server, "server", "the server"),
    (LimitedBy::Limit, "limit", "--limit"),
    (LimitedBy::Application, "application", "the program"),
    (LimitedBy::Policer, "policer", "a policer on the path"),
    (LimitedBy::Unknown, "unknown", "a cause that is not known"),
];

impl LimitedBy {
    /// All limits.
    pub const ALL: [Self; LIMITS.len()] = {
        let mut all = [Self::Unknown; LIMITS.len()];
        let mut index = 0;
        while index < all.len() {
            all[index] = LIMITS[index].0;
            assert!(all[index] as usize == index);
            index += 1;
        }
        all
    };

    /// Returns the name, which is also the serialised one.
    pub const fn name(self) -> &'static str {
        LIMITS[self as usize].1
    }

    /// Returns the name as a sentence uses it.
    pub const fn phrase(self) -> &'static str {
        LIMITS[self as usize].2
    }
}

impl fmt::Display for LimitedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
