//! What a sender's kernel accounts: the times in which it had data, and waited for the window or
//! the send buffer.

use std::time::Duration;

use super::Classifier;
use crate::advice::interval::Interval;
use crate::advice::reading::{End, Reading};
use crate::advice::witness::Witness;
use crate::advice::{TIMESTAMP_TICK, params};
use crate::units::Rtt;

impl Classifier {
    /// Returns the limit that the sender's kernel names.
    pub(super) fn limit_by_kernel(&self, interval: &Interval) -> Option<Witness> {
        if self.end == End::Receiver || interval.now.sender.times.is_none() {
            return None;
        }
        // Without data to send, this program waits for the server; what another program waits for
        // is not known. The kernel is busy until the last byte is acknowledged.
        if interval.now.threads.is_some() && interval.busy_share() < params::LIMITING_SHARE {
            return Some(Witness::Silence);
        }
        if interval.now.threads.is_none() && interval.busy_share() < 1.0 - params::LIMITING_SHARE {
            return Some(Witness::NothingToSend);
        }
        self.limit_of_busy_sender(interval)
    }

    /// Reads the kernel's account of what limited a sender with data to send.
    pub(super) fn limit_of_busy_sender(&self, interval: &Interval) -> Option<Witness> {
        let of_busy =
            |part: fn(&Reading) -> Option<Duration>| interval.share(part) / interval.busy_share().max(1e-9);
        let window = of_busy(|reading| Some(reading.sender.times?.window_limited));
        let buffer = of_busy(|reading| Some(reading.sender.times?.buffer_limited));
        if window.max(buffer) < params::LIMITING_SHARE {
            return None;
        }
        if buffer > window {
            return Some(Witness::BufferLimited);
        }
        // A receiver that reads at once keeps its window open. The window of a receiver that does
        // not is less than it was by what is unread, or opens seldom, so that less than a window
        // passes in a round trip. The waits of such a reader are in the RTT of the data as a queue
        // is, but only they shrink the window.
        let (least, rtt) = (interval.min_rtt(), interval.now.path.data_rtt.max(interval.min_rtt()));
        // While the window grows, the mean rate of the interval was bound to a smaller one.
        let windows = (interval.before.window.unwrap_or_default(), interval.now.window.unwrap_or_default());
        let (grows, window) = (windows.0 < windows.1, windows.1.get() as f64);
        let (smallest, largest) = (self.buffers.windows.0 as f64, self.buffers.windows.1 as f64);
        let filled =
            |rtt: Option<Rtt>| interval.rate().bdp(rtt.unwrap_or_default()).get() as f64 / window.max(1.0);
        let is_late = rtt.is_some_and(|rtt| interval.is_late(rtt));
        let unread = window == 0.0
            || self.has_window_shrunk(interval, params::OPEN_WINDOW_SHARE)
            || filled(rtt) < params::CLOSED_WINDOW_SHARE
            || !is_late && !grows && filled(rtt) < params::FILLED_WINDOW_SHARE
            || filled(least) < params::CLOSED_WINDOW_SHARE
                && self.has_window_shrunk(interval, params::STEADY_WINDOW_SHARE);
        // On a short path no window limits, whatever delays its acknowledgements.
        let unread = unread || interval.base_rtt() < TIMESTAMP_TICK;
        Some(match unread {
            true => Witness::ClosedWindow,
            // What is unread varies; whether it has reduced the window was to be seen at the start
            // only.
            false if self.is_under_way && smallest < largest * params::STEADY_WINDOW_SHARE => {
                Witness::Unexplained
            }
            // In a queue that is as long as the path no larger window gains.
            false if filled(least) < params::CLOSED_WINDOW_SHARE => Witness::Unexplained,
            false => Witness::WindowLimited,
        })
    }

    /// Returns whether the peer's window is below this share of the largest that it has had.
    fn has_window_shrunk(&self, interval: &Interval, share: f64) -> bool {
        let largest = self.buffers.windows.1 as f64 * interval.streams() as f64;
        interval.now.window.is_some_and(|window| (window.get() as f64) < largest * share)
    }
}

/// Returns the share of an interval in which a sender's kernel waited for the peer's window.
pub(super) fn window_limited_share(interval: &Interval) -> f64 {
    interval.share(|reading| reading.sender.times.map(|times| times.window_limited))
}
