//! The sender's state of one connection: window, pace, losses, and the next packet.

use std::time::Duration;

use super::Tcp;
use super::congestion::{AckSample, CongestionControl};
use super::scoreboard::{AckOutcome, RecoveryPoint, Scoreboard, Transmission};
use super::timer::Timer;
use crate::model::Time;

/// A sender with selective acknowledgements.
#[derive(Debug)]
pub(super) struct SimulatedConnection {
    phase: ConnectionPhase,
    /// Index of the connection's download.
    pub(super) download: usize,
    pub(super) timer: Timer,
    pub(super) congestion: Box<dyn CongestionControl>,
    pub(super) pacing: Pacing,
    scoreboard: Scoreboard,
    recovery: RecoveryPoint,
    delivery: Delivery,
    last_sent: Time,
    /// Whether a packet has arrived since the last query.
    pub(super) carried: bool,
}

/// The phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionPhase {
    /// Handshake: nothing can be sent.
    Opening,
    /// Sends new packets.
    Open,
    /// Completes packets already sent, and sends no new ones.
    Closing,
}

/// The delivery so far, for rate samples (Linux `tcp_rate.c`).
#[derive(Debug, Clone, Copy)]
struct Delivery {
    /// Segments per packet.
    segments: u64,
    /// Packets delivered.
    packets: u64,
    /// Time of the last acknowledgement.
    at: Time,
    /// Send time of the last acknowledged packet.
    first_sent: Time,
}

/// A packet in flight, and the delivery when it was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentPacket {
    pub(super) at: Time,
    transmission: Transmission,
    before: Delivery,
}

impl SimulatedConnection {
    /// Creates a connection of `download` that can send from `opens` on, after a handshake of
    /// `rtt`.
    pub(super) fn new(tcp: &Tcp, download: usize, opens: Time, rtt: Duration) -> Self {
        Self {
            phase: ConnectionPhase::Opening,
            download,
            timer: Timer::new(rtt, opens),
            congestion: tcp.start(tcp.initial as f64, (rtt, opens)),
            pacing: Pacing::new(),
            scoreboard: Scoreboard::new(tcp),
            recovery: RecoveryPoint::default(),
            delivery: Delivery { segments: tcp.segments, packets: 0, at: opens, first_sent: opens },
            last_sent: opens,
            carried: false,
        }
    }

    /// Returns the next packet that the window allows; `is_more` says whether the download has
    /// unsent packets.
    pub(super) fn sendable(&self, is_more: bool) -> Option<u64> {
        // A window smaller than a packet still allows one packet.
        let window = self.congestion.window().max(self.delivery.segments as f64);
        let in_flight = (self.scoreboard.in_flight() + 1) * self.delivery.segments;
        (self.phase != ConnectionPhase::Opening && in_flight as f64 <= window)
            .then(|| self.scoreboard.sendable(self.takes_more() && is_more))?
    }

    /// Returns whether the connection sends new packets, now or after its handshake.
    pub(super) fn takes_more(&self) -> bool {
        self.phase != ConnectionPhase::Closing
    }

    /// Stops sending new packets.
    pub(super) fn close(&mut self) {
        if self.phase == ConnectionPhase::Opening {
            self.timer.deadline = None;
        }
        self.phase = ConnectionPhase::Closing;
    }

    /// Returns whether the connection is closing and has nothing outstanding.
    pub(super) fn is_over(&self) -> bool {
        self.phase == ConnectionPhase::Closing && !self.scoreboard.has_outstanding()
    }

    /// Records that `packet` is sent at `now`; returns it, and whether this is its first
    /// transmission.
    pub(super) fn record_transmission(&mut self, packet: u64, now: Time) -> (SentPacket, bool) {
        if self.scoreboard.in_flight() == 0 {
            (self.delivery.at, self.delivery.first_sent) = (now, now);
        }
        let (transmission, is_first) = self.scoreboard.sent(packet);
        self.pacing.sent(self.delivery.segments, &*self.congestion, self.timer.last_rtt, now);
        self.last_sent = now;
        if self.timer.deadline.is_none() {
            self.timer.start(now);
        }
        (SentPacket { at: now, transmission, before: self.delivery }, is_first)
    }

    /// Restarts slow start after a long idle time; must be called before sending resumes.
    pub(super) fn resume_after_idle(&mut self, now: Time) {
        if !self.scoreboard.has_outstanding() && now.since(self.last_sent) > self.timer.timeout() {
            self.congestion.paused();
        }
    }

    /// Processes an acknowledgement at `now`. `is_last`: the download has no unsent packets.
    pub(super) fn process_ack(&mut self, sent: &SentPacket, now: Time, is_last: bool) -> AckOutcome {
        let (in_flight, rtt) = (self.scoreboard.in_flight(), now.since(sent.at));
        self.timer.acknowledged(rtt);
        let outcome = self.scoreboard.acknowledged(sent.transmission, is_last);
        if outcome.newest_lost.is_some_and(|transmission| self.has_recovered(transmission)) {
            self.congestion.lost();
            self.recovery = self.scoreboard.recovery_point(false);
        }
        if outcome.is_new {
            self.carried = true;
            self.delivery.packets += 1;
            (self.delivery.at, self.delivery.first_sent) = (now, sent.at);
            let (segments, before) = (self.delivery.segments, sent.before);
            self.congestion.acknowledged(&AckSample {
                now,
                segments,
                in_flight: in_flight * segments,
                delivered: self.delivery.packets * segments,
                delivered_before: before.packets * segments,
                interval: sent.at.since(before.first_sent).max(now.since(before.at)),
                rtt,
                has_losses: outcome.lost > 0,
                is_recovering: !self.recovery.grows && !self.has_recovered(sent.transmission.number),
            });
        }
        self.timer.deadline = None;
        if self.scoreboard.has_outstanding() {
            self.timer.start(now);
        }
        outcome
    }

    /// Returns whether the last loss episode is over for the transmission of a number.
    fn has_recovered(&self, transmission: u64) -> bool {
        if self.congestion.has_episode_per_flight() {
            transmission >= self.recovery.transmission
        } else {
            self.scoreboard.is_complete_to(self.recovery.packet)
        }
    }

    /// Handles the timer's expiry: the handshake is complete, or all packets in flight are lost.
    /// Returns their number.
    pub(super) fn timed_out(&mut self, now: Time) -> u64 {
        if self.phase == ConnectionPhase::Opening {
            self.phase = ConnectionPhase::Open;
            self.timer.deadline = None;
            return 0;
        }
        let lost = self.scoreboard.in_flight();
        self.congestion.timed_out(lost * self.delivery.segments, self.timer.ran_out());
        self.scoreboard.lose_flight();
        self.recovery = self.scoreboard.recovery_point(true);
        self.timer.start(now);
        lost
    }
}

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

    /// Records a departure of `segments` at `now`: the next follows at the control's own pace, or
    /// at Linux's pace of slightly more than a window per RTT (`tcp_update_pacing_rate`), limited
    /// to the cap.
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
