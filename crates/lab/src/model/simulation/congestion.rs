//! The congestion control interface of a simulated sender.

use std::fmt;
use std::time::Duration;

use super::bbr::Bbr;
use super::cubic_window::CubicWindow;
use crate::model::Time;

/// A congestion control in virtual time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SimulatedControl {
    /// CUBIC (RFC 9438), without HyStart.
    #[default]
    Cubic,
    /// BBRv1.
    Bbr,
}

impl SimulatedControl {
    /// Creates the state with a window in segments; `min_rtt` holds the path's minimum RTT and its time.
    pub(super) fn start(self, window: f64, min_rtt: Option<(Duration, Time)>) -> Box<dyn CongestionControl> {
        match self {
            Self::Cubic => Box::new(CubicWindow::new(window)),
            Self::Bbr => Box::new(Bbr::new(window, min_rtt)),
        }
    }

    /// Returns the control with the kernel's `name`; CUBIC for unsupported ones.
    pub(crate) fn named(name: &str) -> Self {
        if name == "bbr" { Self::Bbr } else { Self::Cubic }
    }
}

/// The sample of an acknowledgement. Counts are in segments.
#[derive(Debug, Clone, Copy)]
pub(super) struct AckSample {
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
}

/// The state of a congestion control.
pub(super) trait CongestionControl: fmt::Debug + Send {
    /// Returns the window in segments.
    fn window(&self) -> f64;

    /// Returns the control's own pacing rate in segments per second; `None` if it sends in bursts.
    fn own_pace(&self) -> Option<f64> {
        None
    }

    /// Returns the number of windows per RTT at which the kernel paces under a maximum pacing rate (`tcp_update_pacing_rate`).
    fn windows_per_rtt(&self) -> f64 {
        f64::INFINITY
    }

    /// Restarts slow start from the current window.
    fn restart(&mut self);

    /// Handles the acknowledgement of a packet.
    fn acknowledged(&mut self, sample: &AckSample, now: Time);

    /// Handles the loss of a packet that was sent at `sent`.
    fn lost(&mut self, sent: Time, now: Time);
}

/// The initial window in segments (RFC 6928).
pub(super) const INITIAL_WINDOW: f64 = 10.0;
