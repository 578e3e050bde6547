//! The congestion control of a simulated sender: what it is told of a packet, and what it allows.

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
    /// Returns the control of the kernel's `name`; CUBIC for those that are not simulated.
    pub(crate) fn named(name: &str) -> Self {
        if name == "bbr" { Self::Bbr } else { Self::Cubic }
    }
}

/// What the acknowledgement of a packet tells. All counts are of segments.
#[derive(Debug, Clone, Copy)]
pub(super) struct AckSample {
    /// The segments of the packet.
    pub(super) segments: u64,
    /// Segments in flight before the acknowledgement.
    pub(super) in_flight: u64,
    /// Segments delivered so far, with those of the packet.
    pub(super) delivered: u64,
    /// Segments that had been delivered when the packet was sent.
    pub(super) delivered_before: u64,
    /// The time in which the segments since `delivered_before` were sent and acknowledged: the longer of both.
    pub(super) interval: Duration,
    /// The packet's RTT.
    pub(super) rtt: Duration,
}

/// The state of a congestion control.
#[derive(Debug)]
pub(super) enum Congestion {
    Cubic(CubicWindow),
    Bbr(Bbr),
}

impl Congestion {
    /// Starts a connection.
    pub(super) fn new(control: SimulatedControl) -> Self {
        match control {
            SimulatedControl::Cubic => Self::Cubic(CubicWindow::new(INITIAL_WINDOW)),
            SimulatedControl::Bbr => Self::Bbr(Bbr::new(INITIAL_WINDOW, None)),
        }
    }

    /// Starts `control` with the window of another one, on a path whose minimum RTT was measured at that time.
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

    /// Returns the rate of the control's own pacing, in segments per second; `None` where it sends in bursts.
    pub(super) fn own_pace(&self) -> Option<f64> {
        match self {
            Self::Cubic(_) => None,
            Self::Bbr(bbr) => bbr.pace(),
        }
    }

    /// Returns the windows that the kernel spreads over an RTT under a maximum pacing rate (`tcp_update_pacing_rate`).
    pub(super) fn windows_per_rtt(&self) -> f64 {
        match self {
            Self::Cubic(window) => window.windows_per_rtt(),
            Self::Bbr(_) => f64::INFINITY,
        }
    }

    /// Restarts slow start from the present window.
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
