//! The congestion control interface of a simulated sender.

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
#[derive(Debug)]
pub(super) enum ControlState {
    Cubic(CubicWindow),
    Bbr(Bbr),
}

impl ControlState {
    /// Creates the state of a new connection.
    pub(super) fn new(control: SimulatedControl) -> Self {
        match control {
            SimulatedControl::Cubic => Self::Cubic(CubicWindow::new(INITIAL_WINDOW)),
            SimulatedControl::Bbr => Self::Bbr(Bbr::new(INITIAL_WINDOW, None)),
        }
    }

    /// Creates `control` with the window of another one; `min_rtt` holds the path's minimum RTT and its time.
    pub(super) fn after(other: &Self, control: SimulatedControl, min_rtt: Option<(Duration, Time)>) -> Self {
        match control {
            SimulatedControl::Cubic => Self::Cubic(CubicWindow::new(other.window())),
            SimulatedControl::Bbr => Self::Bbr(Bbr::new(other.window(), min_rtt)),
        }
    }

    /// Returns the window in segments.
    pub(super) fn window(&self) -> f64 {
        match self {
            Self::Cubic(window) => window.segments(),
            Self::Bbr(bbr) => bbr.window(),
        }
    }

    /// Returns the control's own pacing rate in segments per second; `None` if it sends in bursts.
    pub(super) fn own_pace(&self) -> Option<f64> {
        match self {
            Self::Cubic(_) => None,
            Self::Bbr(bbr) => bbr.pace(),
        }
    }

    /// Returns the number of windows per RTT at which the kernel paces under a maximum pacing rate (`tcp_update_pacing_rate`).
    pub(super) fn windows_per_rtt(&self) -> f64 {
        match self {
            Self::Cubic(window) => window.windows_per_rtt(),
            Self::Bbr(_) => f64::INFINITY,
        }
    }

    /// Restarts slow start from the current window.
    pub(super) fn restart(&mut self) {
        match self {
            Self::Cubic(window) => window.restart(),
            Self::Bbr(bbr) => bbr.restart(),
        }
    }

    /// Handles the acknowledgement of a packet.
    pub(super) fn acknowledged(&mut self, sample: &AckSample, now: Time) {
        match self {
            Self::Cubic(window) => window.acknowledged(sample, now),
            Self::Bbr(bbr) => bbr.acknowledged(sample, now),
        }
    }

    /// Handles the loss of a packet that was sent at `sent`.
    pub(super) fn lost(&mut self, sent: Time, now: Time) {
        match self {
            Self::Cubic(window) => window.lost(sent, now),
            Self::Bbr(bbr) => bbr.lost(),
        }
    }
}

/// The initial window in segments (RFC 6928).
pub(super) const INITIAL_WINDOW: f64 = 10.0;
