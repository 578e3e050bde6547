//! Watches the progress of a connection.

use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_core::probe::flow_rate::{Progress, is_flat, supported_rate};
use longhaul_core::units::Bytes;

use super::{FlowPlan, MeasurementState, SAMPLE_INTERVAL, SETTLED, SETTLED_RTTS, STEP};

/// Records the progress of one connection, and stops all connections once they have shown enough.
pub(in crate::probe) struct FlowWatch<'a> {
    plan: &'a FlowPlan,
    shared: &'a MeasurementState,
    progress: Vec<Progress>,
    latest: Progress,
    looked: Duration,
    /// The current byte limit of all connections together.
    most: Bytes,
}

impl<'a> FlowWatch<'a> {
    pub(in crate::probe) fn new(plan: &'a FlowPlan, shared: &'a MeasurementState) -> Self {
        let latest = Progress { at: shared.started.elapsed(), bytes: Bytes::ZERO };
        Self { plan, shared, progress: vec![latest], latest, looked: Duration::ZERO, most: plan.bytes }
    }

    /// Records `more` bytes; returns whether the progress was checked, which happens once per
    /// [`SAMPLE_INTERVAL`].
    pub(in crate::probe) fn record(&mut self, more: u64) -> bool {
        let Self { plan, shared, .. } = *self;
        let total = shared.moved.fetch_add(more, Ordering::Relaxed) + more;
        let at = shared.started.elapsed();
        self.latest = Progress { at, bytes: self.latest.bytes + Bytes::new(more) };
        let noted = self.progress.last().map_or(Duration::ZERO, |last| last.at);
        if more > 0 && (at.saturating_sub(noted) >= STEP || self.progress.len() == 1) {
            self.progress.push(self.latest);
        }
        let flowed = at.saturating_sub(self.progress.get(1).map_or(at, |first| first.at));
        let looks = at.saturating_sub(self.looked) >= SAMPLE_INTERVAL;
        if looks {
            self.looked = at;
            let settled = SETTLED.max(plan.rtt.get() * SETTLED_RTTS);
            if flowed >= settled && is_flat(&self.progress) {
                shared.stop.store(true, Ordering::Relaxed);
            }
            let rate = plan.filling.map(|time| (supported_rate(&self.progress[1..], plan.rtt), time));
            let supported =
                rate.map_or(Bytes::ZERO, |(rate, time)| rate.bytes_in(time) * u64::from(plan.streams));
            // Not the maximum: a host that reads late first sees too high a rate.
            self.most = plan.bytes.max(supported);
        }
        // Until the first checks, a connection of unknown rate moves about a hundredth of what it
        // carries in ten seconds.
        let is_unknown = plan.filling.is_some() && flowed < SAMPLE_INTERVAL * 2;
        // Based on this connection, because a starved one does not represent the others.
        let moved = if plan.filling.is_some() {
            self.latest.bytes * u64::from(plan.streams)
        } else {
            Bytes::new(total)
        };
        if moved >= self.most && !is_unknown {
            shared.stop.store(true, Ordering::Relaxed);
        }
        looks
    }

    /// Returns the progress from the first byte on, which excludes the request's round trip.
    pub(in crate::probe) fn finish(mut self) -> Vec<Progress> {
        if self.progress.last().is_some_and(|last| last.bytes < self.latest.bytes) {
            self.progress.push(self.latest);
        }
        self.progress.drain(..1);
        self.progress
    }
}
