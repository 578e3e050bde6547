//! One sender of a simulation: congestion control, pace, and observations.

use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};

use super::congestion::{AckSample, CongestionControl, INITIAL_WINDOW, SimulatedControl};
use crate::model::Time;

/// A bulk sender.
#[derive(Debug)]
pub(super) struct SimulatedFlow {
    pub(super) congestion: Box<dyn CongestionControl>,
    pacing: FlowPacing,
    /// Segments per packet.
    segments: u64,
    /// Earliest departure of the next packet by the pace; initially the flow's start.
    next: Time,
    /// End of the flow.
    end: Option<Time>,
    in_flight: u64,
    pub(super) rtt: Option<Duration>,
    pub(super) min_rtt: Duration,
    pub(super) sent: u64,
    pub(super) acknowledged: u64,
    pub(super) lost: u64,
    /// Time of the last acknowledgement.
    delivered_at: Time,
    /// Send time of the last acknowledged packet.
    first_sent: Time,
}

/// The pacing of a flow.
#[derive(Debug)]
enum FlowPacing {
    /// Bursts by the window, unless the congestion control paces by itself.
    Never,
    /// Kernel pacing by the window, limited to a rate if set; remains active when the rate is removed.
    Kernel(Option<Rate>),
}

/// State at a packet's transmission, for the acknowledgement's rate sample (Linux `tcp_rate.c`).
#[derive(Debug, Clone, Copy)]
pub(super) struct SentPacket {
    at: Time,
    delivered: u64,
    delivered_at: Time,
    first_sent: Time,
}

impl SimulatedFlow {
    /// Creates a flow of packets of `segments`, from `begin` until `end`.
    pub(super) fn new(segments: u64, begin: Time, end: Option<Time>) -> Self {
        Self {
            congestion: SimulatedControl::Cubic.start(INITIAL_WINDOW, None),
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

    /// Sets or removes the pace.
    pub(super) fn set_pace(&mut self, rate: Option<Rate>) {
        match (rate, &self.pacing) {
            (None, FlowPacing::Never) => (),
            _ => self.pacing = FlowPacing::Kernel(rate),
        }
    }

    /// Returns when the next packet is sent, at `now` or later; `None` if the window is full or the flow has ended.
    pub(super) fn next_departure(&self, now: Time) -> Option<Time> {
        let at = self.next.max(now);
        let is_over = self.end.is_some_and(|end| at >= end);
        // A window smaller than a packet still allows one packet.
        let window = self.congestion.window().max(self.segments as f64);
        let is_open = ((self.in_flight + 1) * self.segments) as f64 <= window;
        (is_open && !is_over).then_some(at)
    }

    /// Records the transmission of a packet.
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

    /// Processes the acknowledgement or the loss of a packet.
    pub(super) fn process_result(&mut self, sent: &SentPacket, is_lost: bool, now: Time) {
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

    /// Returns the window in bytes for packets of this size.
    pub(super) fn window(&self, packet: Bytes) -> Bytes {
        Bytes::new((self.congestion.window() / self.segments as f64 * packet.get() as f64) as u64)
    }

    /// Returns the departure rate: the control's own pace, or Linux's pace of slightly more than a window per RTT
    /// (`tcp_update_pacing_rate`), limited to the set pace.
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

/// Converts bytes per second to a rate.
fn rate(bytes: f64) -> Rate {
    Rate::bits_per_sec((bytes * 8.0) as u64)
}
