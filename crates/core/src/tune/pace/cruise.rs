//! Cruises: holds a pace, and probes for more.

use std::time::Duration;

use super::{Pacer, PacerPhase, Params, Probe, comes_close};
use crate::units::{Bytes, Rate};

impl Pacer {
    /// Cruises at `target`, or without a pace where the path needs none.
    pub(super) fn settle(&mut self, target: Rate) {
        if self.needs_no_pace(target) {
            return self.enter(PacerPhase::Free(None), None);
        }
        (self.ignore_until, self.held_back) = (self.now + self.seen.rtt.get(), None);
        self.shows_pace_from = (Bytes::ZERO, self.now);
        let probe = self.probe(target, self.ignore_until);
        self.enter(PacerPhase::Cruise { target, probe }, Some(target));
    }

    /// Returns the queue that a probe adds before losses: at most half of 0.1 BDP.
    fn usual_probe_queue(&self) -> Duration {
        Params::PROBE_QUEUE.min(self.rtt().mul_f64(Params::STANDING / 2.0))
    }

    pub(super) fn probe(&self, target: Rate, rest_until: Duration) -> Probe {
        let queue = self.probe_queue.unwrap_or_else(|| self.usual_probe_queue());
        Probe::new(queue, target < self.capacity.scaled(0.5), rest_until)
    }

    pub(super) fn cruise(&mut self) {
        let (is_congested, queue, threshold) = (self.is_congested(), self.queue(), self.queue_threshold());
        // A queue that is too short to be seen shows by losses.
        let is_full = queue > threshold / 2 || self.loses(Params::LOSS / 10.0);
        let (rtt, now, capacity) = (self.rtt(), self.now, self.capacity);
        let sent = self.history.sending_rate(self.ago(rtt / 4), now);
        let usual_queue = self.usual_probe_queue();
        let PacerPhase::Cruise { target, probe } = &mut self.phase else { return };
        if is_congested {
            if probe.is_running() && queue <= threshold {
                // The path's queue is too short for the probe's.
                self.probe_queue = Some(probe.queue / 2);
            }
            let before = *target;
            return self.begin_ease(before);
        }
        if probe.is_due(now) {
            if !comes_close(sent, *target) {
                // What is not used is not raised.
                probe.rest(now + rtt);
                self.blind_since = None;
            } else if is_full && comes_close(*target, capacity) {
                *target = target.scaled(Params::HEADROOM);
                probe.rest(now + rtt);
            }
        }
        *target = probe.observe(*target, capacity, &self.seen, &self.history, now);
        match probe.was_hidden.take() {
            // Losses have made the probes shorter than the usual jitter.
            Some(true) if probe.queue < usual_queue => {}
            Some(true) => _ = self.blind_since.get_or_insert(now),
            Some(false) => self.blind_since = None,
            None => {}
        }
        (self.pace, self.probe_queue) = (Some(probe.pace(*target, now)), Some(probe.queue));
        // A path that is just as fast must not lose its pace by an error.
        let is_fast = self.needs_no_pace(capacity.scaled(1.0 / (1.0 + Params::UNCERTAINTY)));
        let is_blind =
            self.blind_since.take_if(|since| now.saturating_sub(*since) > rtt * Params::LISTEN_RTTS);
        if is_fast || is_blind.is_some() {
            self.enter(PacerPhase::Free(None), None);
        }
    }
}
