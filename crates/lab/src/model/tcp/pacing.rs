//! The pace of a connection: when its next packet may depart.

use std::time::Duration;

use super::congestion::CongestionControl;
use crate::model::Time;

/// A connection's pace. Rates are in segments per second.
#[derive(Debug)]
pub(super) struct Pacing {
    /// Whether the kernel paces: from the first cap on, also after the cap is removed.
    is_active: bool,
    cap: f64,
    /// Earliest departure of the next packet.
    pub(super) next: Time,
    /// Whether this departure is queued as a timer event.
    pub(super) is_queued: bool,
}

impl Pacing {
    /// Creates no pace but the congestion control's own.
    pub(super) fn new() -> Self {
        Self { is_active: false, cap: f64::INFINITY, next: Time::START, is_queued: false }
    }

    /// Sets or removes the cap.
    pub(super) fn set_cap(&mut self, cap: Option<f64>) {
        self.is_active |= cap.is_some();
        self.cap = cap.unwrap_or(f64::INFINITY);
    }

    /// Records a departure of `segments` at `now`: the next follows at the control's own pace, or at Linux's pace of
    /// slightly more than a window per RTT (`tcp_update_pacing_rate`), limited to the cap.
    pub(super) fn sent(&mut self, segments: u64, control: &dyn CongestionControl, rtt: Duration, now: Time) {
        let own = control.own_pace();
        let pace = if self.is_active {
            let by_window = || control.windows_per_rtt() * control.window() / rtt.as_secs_f64();
            own.unwrap_or_else(by_window).min(self.cap)
        } else {
            own.unwrap_or(f64::INFINITY)
        };
        let gap = Duration::try_from_secs_f64(segments as f64 / pace).unwrap_or(Duration::MAX);
        self.next = self.next.max(now) + gap;
    }
}
