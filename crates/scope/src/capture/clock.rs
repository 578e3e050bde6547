//! The clock of a capture, which may have been set while packets were captured; a timestamp may be damaged.

use std::time::Duration;

/// Packets of several interfaces, or cores, are stored out of order by this much at most.
const MAX_DISORDER: Duration = Duration::from_secs(1);
/// No packet for longer is a leap of the clock.
const MAX_PAUSE: Duration = Duration::from_secs(86_400);

/// Maps the timestamps of packets to times that do not leap.
#[derive(Debug, Default)]
pub(super) struct CaptureClock {
    /// The latest timestamp, and its time.
    latest: Option<(Duration, Duration)>,
    /// Whether the clock was set, or a timestamp is damaged.
    pub(super) leaps: bool,
}

impl CaptureClock {
    /// Returns the time of a packet.
    pub(super) fn time(&mut self, stamp: Duration) -> Duration {
        let (last, now) = self.latest.unwrap_or((stamp, stamp));
        let back = last.saturating_sub(stamp);
        if back > Duration::ZERO && back <= MAX_DISORDER {
            return now.saturating_sub(back);
        }
        let step = stamp.saturating_sub(last);
        let is_leap = back > Duration::ZERO || step > MAX_PAUSE;
        self.leaps |= is_leap;
        let time = if is_leap { now } else { now + step };
        self.latest = Some((stamp, time));
        time
    }
}
