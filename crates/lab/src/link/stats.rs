//! Statistics of a path: packets carried, dropped, damaged and late.

use std::fmt;
use std::time::Duration;

use longhaul_core::units::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::cpu_time::CpuShares;
use crate::cross_traffic::CrossFlowStats;
use crate::model::BackgroundCounts;

use super::lateness_histogram::LatenessHistogram;

/// Counts of a direction's threads.
#[derive(Debug, Default)]
pub(super) struct LinkCounters {
    /// Locked a few times per frame, which costs little beside the frame's copies.
    counts: Mutex<DirectionStats>,
    /// Upper bound of the delay that late reads added to frames.
    pub(super) read_late: LatenessHistogram,
    pub(super) lateness: LatenessHistogram,
}

impl LinkCounters {
    /// Changes the counts.
    pub(super) fn count(&self, change: impl FnOnce(&mut DirectionStats)) {
        change(&mut self.counts.lock());
    }

    pub(super) fn snapshot(&self) -> DirectionStats {
        DirectionStats {
            late: FrameLateness {
                read_p99: self.read_late.quantile(0.99),
                p99: self.lateness.quantile(0.99),
                max: self.lateness.max(),
            },
            ..*self.counts.lock()
        }
    }
}

/// Statistics of one direction. Packets are wire packets, never super-packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirectionStats {
    /// Packets that left the model and entered the ring.
    pub packets: u64,
    /// Bytes of these packets at the IP layer.
    pub bytes: Bytes,
    /// Packets that the queue dropped: full, or early (RED).
    pub dropped_queue: u64,
    /// Packets dropped by random loss.
    pub dropped_loss: u64,
    /// Packets that the emulator failed to carry, which invalidates an experiment: its ring or the
    /// kernel's queue before it was full, or the receiving kernel refused them.
    pub dropped_overflow: u64,
    /// Packets that the queue marked (ECN).
    pub marked: u64,
    /// Packets that were damaged.
    pub impaired: ImpairedPackets,
    /// Background traffic in this direction, up to the last packet of a host.
    pub background: BackgroundCounts,
    /// How late frames were.
    pub late: FrameLateness,
}

/// Packets that the path damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImpairedPackets {
    /// Packets of which a bit was flipped.
    pub corrupted: u64,
    /// Packets that were sent twice.
    pub duplicated: u64,
    /// Packets that were held back, so that others overtake them.
    pub reordered: u64,
}

/// How late the frames of a direction were against the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameLateness {
    /// The 99 % quantile of the delay that late reads added to frames.
    ///
    /// An upper bound: assumes that each frame arrived just after the device was empty. Zero on a
    /// path without a rate.
    pub read_p99: Duration,
    /// The 99 % quantile of a frame's lateness against the model.
    pub p99: Duration,
    /// The largest lateness of a frame against the model.
    pub max: Duration,
}

impl FrameLateness {
    /// Returns the sum of both 99 % quantiles.
    pub fn both_p99(&self) -> Duration {
        self.read_p99 + self.p99
    }
}

impl DirectionStats {
    /// Returns the counters as an object: times in seconds, sizes in bytes.
    pub fn to_json(&self) -> Value {
        json!({
            "packets": self.packets,
            "bytes": self.bytes.get(),
            "dropped_queue": self.dropped_queue,
            "dropped_loss": self.dropped_loss,
            "dropped_overflow": self.dropped_overflow,
            "marked": self.marked,
            "corrupted": self.impaired.corrupted,
            "duplicated": self.impaired.duplicated,
            "reordered": self.impaired.reordered,
            "background_packets": self.background.offered,
            "background_bytes": self.background.bytes.get(),
            "background_lost": self.background.lost,
            "read_late_p99_s": self.late.read_p99.as_secs_f64(),
            "late_p99_s": self.late.p99.as_secs_f64(),
            "late_max_s": self.late.max.as_secs_f64(),
        })
    }
}

impl fmt::Display for DirectionStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} packets, {}; dropped {} by the queue, {} at random; late {} in and {} out at p99",
            self.packets,
            self.bytes,
            self.dropped_queue,
            self.dropped_loss,
            millis(self.late.read_p99),
            millis(self.late.p99)
        )?;
        for (count, what) in [
            (self.marked, "marked by the queue"),
            (self.impaired.corrupted, "corrupted"),
            (self.impaired.duplicated, "duplicated"),
            (self.impaired.reordered, "reordered"),
        ] {
            if count > 0 {
                write!(f, "; {count} {what}")?;
            }
        }
        match self.background {
            BackgroundCounts { offered: 0, .. } => Ok(()),
            BackgroundCounts { offered, lost, bytes } => {
                let share = lost as f64 / offered as f64 * 100.0;
                write!(f, "; background {offered} packets, {bytes}, {lost} of them dropped ({share:.2} %)")
            }
        }
    }
}

/// Formats a time in milliseconds, the unit of configured delays.
pub(super) fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

/// Statistics of both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathStats {
    /// From the client to the server.
    pub client_to_server: DirectionStats,
    /// From the server to the client.
    pub server_to_client: DirectionStats,
    /// The cross flows; their packets also count in both directions.
    pub cross_flows: CrossFlowStats,
    /// TCP memory pressure events (`net.ipv4.tcp_mem`) of the kernel that both hosts share.
    pub memory_pressures: u64,
    /// How busy the CPUs of this machine were while the path was running.
    pub cpu: CpuShares,
}

impl PathStats {
    /// Returns both directions with their names.
    pub fn directions(&self) -> [(&'static str, DirectionStats); 2] {
        [("client -> server", self.client_to_server), ("server -> client", self.server_to_client)]
    }
}

/// One line per direction, and one for cross flows if there are any.
impl fmt::Display for PathStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [(up, to_server), (down, to_client)] = self.directions();
        write!(f, "{up}: {to_server}\n{down}: {to_client}")?;
        match self.cross_flows {
            CrossFlowStats { flows: 0, .. } => Ok(()),
            cross => write!(f, "\n{} cross flows: {} in {:.1?}", cross.flows, cross.goodput(), cross.time),
        }
    }
}
