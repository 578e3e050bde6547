//! One sender of a simulation: its congestion control, its pace, and its observations.

use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};

use super::congestion::{AckSample, Congestion, SimulatedControl};
use crate::model::Time;

/// A sender with as much to send as the path takes.
#[derive(Debug)]
pub(super) struct SimulatedFlow {
    pub(super) congestion: Congestion,
    pacing: FlowPacing,
    /// The segments of a packet.
    segments: u64,
    /// When the pace allows the next packet; from the start, when it begins.
    next: Time,
    /// When it ends.
    end: Option<Time>,
    in_flight: u64,
    pub(super) rtt: Option<Duration>,
    pub(super) min_rtt: Duration,
    pub(super) sent: u64,
    pub(super) acknowledged: u64,
    pub(super) lost: u64,
    /// When the last acknowledgement came.
    delivered_at: Time,
    /// When the packet was sent that was acknowledged last.
    first_sent: Time,
}

/// What spreads a flow's packets.
#[derive(Debug)]
enum FlowPacing {
    /// Nothing but the congestion control: what the window allows leaves at once, unless the control paces.
    Never,
    /// The kernel, by the window and no faster than a rate, where one is given: it goes on when the rate is taken away.
    Kernel(Option<Rate>),
}

/// The state of a sender when it sent a packet, from which the acknowledgement makes a sample of the rate (Linux `tcp_rate.c`).
#[derive(Debug, Clone, Copy)]
pub(super) struct SentPacket {
    at: Time,
    delivered: u64,
    delivered_at: Time,
    first_sent: Time,
}

impl SimulatedFlow {
    /// Makes one that sends packets of so many segments from `begin` on, until `end`.
    pub(super) fn new(segments: u64, begin: Time, end: Option<Time>) -> Self {
        Self {
            congestion: Congestion::new(SimulatedControl::Cubic),
            pacing: FlowPacing::Never,
            segments,
            next: begin,
            end,
            in_flight: 0,
            rtt: None,
            min_rtt: Duration::MAX,
            sent: 0,
            acknowledged: 0,
            lost: 0,
            delivered_at: begin,
            first_sent: begin,
        }
    }

    /// Sets the pace, or takes it away.
    pub(super) fn set_pace(&mut self, rate: Option<Rate>) {
        match (rate, &self.pacing) {
            (None, FlowPacing::Never) => (),
            _ => self.pacing = FlowPacing::Kernel(rate),
        }
    }

    /// Returns when it sends its next packet, at `now` or later; `None` where that has to wait for an acknowledgement, or it is over.
    pub(super) fn sends(&self, now: Time) -> Option<Time> {
        let at = self.next.max(now);
        let is_over = self.end.is_some_and(|end| at >= end);
        // A window smaller than a packet still sends one.
        let window = self.congestion.window().max(self.segments as f64);
        let is_open = ((self.in_flight + 1) * self.segments) as f64 <= window;
        (is_open && !is_over).then_some(at)
    }

    /// Notes that a packet is sent.
    pub(super) fn send(&mut self, now: Time, packet: Bytes) -> SentPacket {
        if self.in_flight == 0 {
            (self.delivered_at, self.first_sent) = (now, now);
        }
        self.sent += 1;
        self.in_flight += 1;
        if let Some(rate) = self.rate(packet) {
            self.next = self.next.max(now) + rate.time_for(packet);
        }
        let (delivered_at, first_sent) = (self.delivered_at, self.first_sent);
        SentPacket { at: now, delivered: self.acknowledged, delivered_at, first_sent }
    }

    /// Takes what became of a packet.
    pub(super) fn hear(&mut self, sent: &SentPacket, is_lost: bool, now: Time) {
        let in_flight = self.in_flight * self.segments;
        self.in_flight -= 1;
        if is_lost {
            self.lost += 1;
            self.congestion.lost(sent.at, now);
            return;
        }
        self.acknowledged += 1;
        let rtt = now.since(sent.at);
        self.rtt = Some(rtt);
        self.min_rtt = self.min_rtt.min(rtt);
        (self.delivered_at, self.first_sent) = (now, sent.at);
        let sample = AckSample {
            segments: self.segments,
            in_flight,
            delivered: self.acknowledged * self.segments,
            delivered_before: sent.delivered * self.segments,
            interval: sent.at.since(sent.first_sent).max(now.since(sent.delivered_at)),
            rtt,
        };
        self.congestion.acknowledged(&sample, now);
    }

    /// Returns the window in bytes, for packets of this size.
    pub(super) fn window(&self, packet: Bytes) -> Bytes {
        Bytes::new((self.congestion.window() / self.segments as f64 * packet.get() as f64) as u64)
    }

    /// Returns the rate at which packets leave: the control's own pace, or as Linux chooses it (`tcp_update_pacing_rate`) a little more
    /// than a window in a round trip; the pace set where that is less.
    fn rate(&self, packet: Bytes) -> Option<Rate> {
        let bytes_per_segment = packet.get() as f64 / self.segments as f64;
        let own = self.congestion.own_pace().map(|segments| rate(segments * bytes_per_segment));
        let FlowPacing::Kernel(most) = self.pacing else { return own };
        let by_window = || {
            let windows = self.congestion.windows_per_rtt() / self.rtt?.as_secs_f64();
            windows.is_finite().then(|| rate(self.congestion.window() * bytes_per_segment * windows))
        };
        own.or_else(by_window).into_iter().chain(most).min()
    }
}

/// Returns the rate of so many bytes per second.
fn rate(bytes: f64) -> Rate {
    Rate::bits_per_sec((bytes * 8.0) as u64)
}
