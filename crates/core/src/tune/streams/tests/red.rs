//! RED (Floyd and Jacobson 1993, gentle) with the default values of ns-2: the drop rate by the
//! average queue.

use super::PACKET;

/// min_th and max_th in packets, max_p, and w_q per packet.
const THRESHOLDS: (f64, f64) = (5.0, 15.0);
const MAX_P: f64 = 0.1;
const W_Q: f64 = 0.002;

#[derive(Debug, Clone, Default)]
pub(super) struct Red {
    /// The average queue in packets.
    average: f64,
}

impl Red {
    /// Updates the average with the `queue` at the arrival of `bytes`; returns the share of them
    /// that is dropped.
    pub(super) fn follow(&mut self, queue: f64, bytes: f64) -> f64 {
        let weight = 1.0 - (1.0 - W_Q).powf(bytes / PACKET);
        self.average += weight * (queue / PACKET - self.average);
        let (least, most) = THRESHOLDS;
        if self.average < most {
            (MAX_P * (self.average - least) / (most - least)).max(0.0)
        } else {
            (MAX_P + (1.0 - MAX_P) * (self.average - most) / most).min(1.0)
        }
    }
}
