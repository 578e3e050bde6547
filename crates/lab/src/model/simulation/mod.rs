//! A bulk sender on a link in virtual time: what a pace controller is tried on.
//!
//! ```text
//! control -> pace --+--> packets -> link -> echo: acknowledged or lost --+--> observation -> control
//!           window -+         (one returned delay later)                 +--> window
//! ```

mod window;

use std::collections::VecDeque;
use std::time::Duration;

use longhaul_core::units::{Bytes, Rate, Rtt};

use super::{BackgroundCounts, Fate, Link, Time};

use window::Window;

/// A sender with as much to send as the path takes: a window as TCP's, and a pace below it.
///
/// Without a pace every acknowledgement releases at once what the window then allows: in slow start that is two packets,
/// so that they arrive at the bottleneck at twice its rate, in one clump a round trip. With a pace they are
/// spread, as the kernel does it from the moment that SO_MAX_PACING_RATE is set.
///
/// What is lost is sent again as a new packet: there is no order and no end, only goodput.
#[derive(Debug)]
pub struct Simulation {
    link: Link,
    back: Duration,
    packet: Bytes,
    now: Time,
    pace: Option<Rate>,
    /// When the pace allows the next packet.
    next: Time,
    /// What the sender will hear of each packet in flight, in order.
    echoes: VecDeque<Echo>,
    window: Window,
    rtt: Option<Duration>,
    min_rtt: Duration,
    totals: Totals,
}

/// What a sender hears of a packet.
#[derive(Debug)]
struct Echo {
    at: Time,
    sent: Time,
    is_lost: bool,
}

/// What a sender has done since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Packets put on the link.
    pub sent: u64,
    /// Packets acknowledged.
    pub acknowledged: u64,
    /// Packets found lost, and so sent again.
    pub lost: u64,
    /// The background traffic on the link.
    pub background: BackgroundCounts,
}

/// What a sender has seen in an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// What was acknowledged, counting IP-layer bytes.
    pub goodput: Rate,
    /// The round-trip time of the last packet acknowledged.
    pub rtt: Rtt,
    /// The shortest round-trip time so far.
    pub min_rtt: Rtt,
    /// The congestion window, counting IP-layer bytes.
    pub window: Bytes,
    /// Packets found lost, and so sent again.
    pub retransmits: u64,
    /// What was done since the start.
    pub totals: Totals,
    /// Share of the background's packets that were dropped; 0 where there were none.
    pub background_loss: f64,
}

impl Simulation {
    /// Makes a sender of packets of `packet` bytes at the IP layer (at least 1).
    ///
    /// `link` carries them; what the sender hears of them takes `back`. A link made by
    /// [`PathSpec::link`](crate::PathSpec::link) has half of the round-trip time, and the other half is `back`. The link
    /// needs a rate, or the sender a pace from the start: nothing else bounds what is in flight.
    pub fn new(link: Link, back: Duration, packet: Bytes) -> Self {
        Self {
            link,
            back,
            packet: packet.max(Bytes::new(1)),
            now: Time::START,
            pace: None,
            next: Time::START,
            echoes: VecDeque::new(),
            window: Window::default(),
            rtt: None,
            min_rtt: Duration::MAX,
            totals: Totals::default(),
        }
    }

    /// Sets the pace: no packet leaves earlier than this rate allows.
    pub fn set_pace(&mut self, rate: Rate) {
        /// So that a pace of nothing can be raised again.
        const LEAST: Rate = Rate::bits_per_sec(8_000);
        self.pace = Some(rate.max(LEAST));
    }

    /// Lets the window grow as at the start until the next loss, whatever it lost before.
    pub fn grow_again(&mut self) {
        self.window.grow_again();
    }

    /// Returns what was done so far.
    pub fn totals(&self) -> Totals {
        Totals { background: self.link.background(), ..self.totals }
    }

    /// Goes on for `time`, and asks `control` for a pace after each `interval` (at least 1 µs) of it; on `None` the pace stays.
    ///
    /// Before the first acknowledgement nothing was observed, and `control` is not asked. Its second argument is the time
    /// since the simulation's start.
    pub fn run(
        &mut self,
        time: Duration,
        interval: Duration,
        mut control: impl FnMut(Observation, Duration) -> Option<Rate>,
    ) {
        let interval = interval.max(Duration::from_micros(1));
        let end = self.now + time;
        while self.now < end {
            let before = (self.now, self.totals());
            self.advance((self.now + interval).min(end));
            if let Some(observation) = self.observe(before)
                && let Some(rate) = control(observation, self.now.since(Time::START))
            {
                self.set_pace(rate);
            }
        }
    }

    fn observe(&self, (begun, before): (Time, Totals)) -> Option<Observation> {
        let totals = self.totals();
        let offered = totals.background.offered - before.background.offered;
        let lost = totals.background.lost - before.background.lost;
        let acknowledged = self.packet * (totals.acknowledged - before.acknowledged);
        Some(Observation {
            goodput: Rate::over(acknowledged, self.now.since(begun)),
            rtt: Rtt::new(self.rtt?),
            min_rtt: Rtt::new(self.min_rtt),
            window: Bytes::new((self.window.packets() * self.packet.get() as f64) as u64),
            retransmits: totals.lost - before.lost,
            totals,
            background_loss: if offered > 0 { lost as f64 / offered as f64 } else { 0.0 },
        })
    }

    /// Sends and hears all that happens up to `until`.
    fn advance(&mut self, until: Time) {
        loop {
            let heard = self.echoes.front().map(|echo| echo.at).filter(|at| *at <= until);
            let is_open = self.window.allows(self.echoes.len());
            let sends = Some(self.next.max(self.now)).filter(|at| is_open && *at <= until);
            match (heard, sends) {
                (None, None) => break,
                (Some(at), sends) if sends.is_none_or(|sends| at <= sends) => self.hear(at),
                (_, Some(at)) => self.send(at),
                (Some(at), None) => self.hear(at),
            }
        }
        self.now = until;
    }

    fn send(&mut self, now: Time) {
        self.now = now;
        self.totals.sent += 1;
        let (at, is_lost) = match self.link.pass(now, self.packet) {
            Fate::Leaves(at) => (at + self.back, false),
            // Told by the acknowledgements of those behind it.
            Fate::Dropped(_) => (now + self.rtt.map_or(self.back, |_| self.min_rtt), true),
        };
        // What is heard of packets is heard in their order.
        let at = self.echoes.back().map_or(at, |before| at.max(before.at));
        self.echoes.push_back(Echo { at, sent: now, is_lost });
        if let Some(rate) = self.pacing_rate() {
            self.next = self.next.max(now) + rate.time_for(self.packet);
        }
    }

    fn hear(&mut self, now: Time) {
        let in_flight = self.echoes.len();
        let Some(echo) = self.echoes.pop_front() else { return };
        self.now = now;
        if echo.is_lost {
            self.totals.lost += 1;
            self.window.lost(echo.sent, now);
        } else {
            self.totals.acknowledged += 1;
            let rtt = now.since(echo.sent);
            self.rtt = Some(rtt);
            self.min_rtt = self.min_rtt.min(rtt);
            self.window.acknowledged(now, in_flight);
        }
    }

    /// Returns the rate at which packets leave, as Linux chooses it (`tcp_update_pacing_rate`): the pace set, or a little
    /// more than a window in a round trip where that is less.
    fn pacing_rate(&self) -> Option<Rate> {
        let pace = self.pace?;
        let Some(rtt) = self.rtt else { return Some(pace) };
        let bytes = self.window.packets() * self.packet.get() as f64;
        Some(pace.min(Rate::over(Bytes::new((bytes * self.window.headroom()) as u64), rtt)))
    }
}
