//! The congestion control of a connection, in segments.

mod bbr;
mod loss_window;

use std::fmt;
use std::time::Duration;

use super::Tcp;
use crate::model::Time;
use bbr::Bbr;
use loss_window::LossWindow;

/// A congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CongestionAlgorithm {
    /// Additive increase of one segment per RTT, halved on loss (RFC 5681), as in simulations of
    /// the 2000s.
    #[default]
    Reno,
    /// Cubic growth, reduced to 0.7 on loss (RFC 9438), as in Linux, but without HyStart: slow
    /// start ends with a loss.
    Cubic,
    /// BBRv1.
    Bbr,
}

impl CongestionAlgorithm {
    /// Returns the algorithm with the kernel's `name`; CUBIC for unsupported ones.
    pub fn named(name: &str) -> Self {
        match name {
            "reno" => Self::Reno,
            "bbr" => Self::Bbr,
            _ => Self::Cubic,
        }
    }
}

/// The sample of an acknowledgement. Counts are in segments.
#[derive(Debug, Clone, Copy)]
pub(super) struct AckSample {
    pub(super) now: Time,
    /// Segments of the acknowledged packet.
    pub(super) segments: u64,
    /// Segments in flight before the acknowledgement.
    pub(super) in_flight: u64,
    /// Total delivered segments, including the packet.
    pub(super) delivered: u64,
    /// Total delivered segments when the packet was sent.
    pub(super) delivered_before: u64,
    /// Time to send or to acknowledge the segments since `delivered_before`, whichever is longer.
    pub(super) interval: Duration,
    /// RTT of the packet.
    pub(super) rtt: Duration,
    /// Whether the acknowledgement shows that other packets are lost.
    pub(super) has_losses: bool,
    /// Whether the packet was sent before the end of an episode of losses, in which a window does
    /// not grow.
    pub(super) is_recovering: bool,
}

/// The state of a congestion control.
pub(super) trait CongestionControl: fmt::Debug + Send {
    /// Returns the window in segments.
    fn window(&self) -> f64;

    /// Returns the control's own pace in segments per second; `None` if it sends in bursts.
    fn own_pace(&self) -> Option<f64> {
        None
    }

    /// Returns the number of windows per RTT at which the kernel paces under a maximum pacing rate
    /// (`tcp_update_pacing_rate`).
    fn windows_per_rtt(&self) -> f64 {
        f64::INFINITY
    }

    /// Handles the first acknowledgement of a packet.
    fn acknowledged(&mut self, sample: &AckSample);

    /// Handles losses, once per episode.
    fn lost(&mut self) {}

    /// Returns whether losses of packets that were sent after an episode began are another one: in
    /// effect the kernel's proportional rate reduction. Otherwise an episode lasts until its losses
    /// are repaired (RFC 6675, ns-2).
    fn has_episode_per_flight(&self) -> bool {
        true
    }

    /// Handles a timeout with `in_flight` segments; `is_first` of consecutive ones.
    fn timed_out(&mut self, in_flight: u64, is_first: bool);

    /// Handles an idle time longer than the timeout.
    fn paused(&mut self) {}

    /// Restarts slow start from the current window, regardless of earlier losses.
    fn restart(&mut self);
}

impl Tcp {
    /// Starts the congestion control with `window` segments; `min_rtt` holds the path's minimum RTT
    /// and its time.
    pub(super) fn start(&self, window: f64, min_rtt: (Duration, Time)) -> Box<dyn CongestionControl> {
        match self.algorithm {
            CongestionAlgorithm::Reno | CongestionAlgorithm::Cubic => Box::new(LossWindow::new(self, window)),
            CongestionAlgorithm::Bbr => Box::new(Bbr::new(window, min_rtt)),
        }
    }
}
