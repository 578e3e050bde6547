//! One sender of a simulation: its window, its pace, and its observations.

use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};

use super::window::CongestionWindow;
use crate::model::Time;

/// A sender with as much to send as the path takes.
#[derive(Debug)]
pub(super) struct SimulatedFlow {
    pub(super) window: CongestionWindow,
    pacing: FlowPacing,
    /// When the pace allows the next packet; from the start, when it begins.
    next: Time,
    /// When it ends.
    end: Option<Time>,
    in_flight: usize,
    pub(super) rtt: Option<Duration>,
    pub(super) min_rtt: Duration,
    pub(super) sent: u64,
    pub(super) acknowledged: u64,
    pub(super) lost: u64,
}

/// What spreads a flow's packets.
#[derive(Debug)]
enum FlowPacing {
    /// Nothing: what the window allows leaves at once.
    Never,
    /// The kernel, by the window and no faster than a rate, where one is given: it goes on when the rate is taken away.
    Kernel(Option<Rate>),
}

impl SimulatedFlow {
    /// Makes one that sends from `begin` on, until `end`.
    pub(super) fn new(begin: Time, end: Option<Time>) -> Self {
        Self {
            window: CongestionWindow::default(),
            pacing: FlowPacing::Never,
            next: begin,
            end,
            in_flight: 0,
            rtt: None,
            min_rtt: Duration::MAX,
            sent: 0,
            acknowledged: 0,
            lost: 0,
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
        (self.window.allows(self.in_flight) && !is_over).then_some(at)
    }

    /// Notes that a packet is sent.
    pub(super) fn send(&mut self, now: Time, packet: Bytes) {
        self.sent += 1;
        self.in_flight += 1;
        if let Some(rate) = self.rate(packet) {
            self.next = self.next.max(now) + rate.time_for(packet);
        }
    }

    /// Hears what became of a packet that was sent at `sent`.
    pub(super) fn hear(&mut self, sent: Time, is_lost: bool, now: Time) {
        let in_flight = self.in_flight;
        self.in_flight -= 1;
        if is_lost {
            self.lost += 1;
            self.window.lost(sent, now);
        } else {
            self.acknowledged += 1;
            let rtt = now.since(sent);
            self.rtt = Some(rtt);
            self.min_rtt = self.min_rtt.min(rtt);
            self.window.acknowledged(now, in_flight);
        }
    }

    /// Returns the rate at which packets leave, as Linux chooses it (`tcp_update_pacing_rate`): a little more than a window in a
    /// round trip, or the pace set where that is less.
    fn rate(&self, packet: Bytes) -> Option<Rate> {
        let FlowPacing::Kernel(most) = self.pacing else { return None };
        let Some(rtt) = self.rtt else { return most };
        let bytes = self.window.packets() * packet.get() as f64;
        let rate = Rate::over(Bytes::new((bytes * self.window.headroom()) as u64), rtt);
        Some(most.map_or(rate, |most| most.min(rate)))
    }
}
