//! What one stream can reach: a window a round trip.

use serde::Serialize;

use super::facts::HostFacts;
use super::target::{PayloadShare, Target, needed_buffers};
use crate::buffer_plan::window_ceiling;
use crate::units::{Bytes, Rate};

/// The largest window without window scaling (RFC 9293: 16 bits).
pub(super) const UNSCALED_WINDOW: Bytes = Bytes::new(65_535);

/// The rates that windows allow one stream, before and after the fix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Ceilings {
    /// Of data that arrives (`get`).
    pub receive: Ceiling,
    /// Of data that is sent (`put`, `serve`).
    pub send: Ceiling,
}

/// One direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Ceiling {
    /// As the host is; `None` where the limit could not be read.
    #[serde(rename = "now_bps")]
    pub now: Option<Rate>,
    /// The window behind it.
    #[serde(rename = "window_now_bytes")]
    pub window_now: Option<Bytes>,
    /// With the buffers that the findings ask for.
    #[serde(rename = "after_bps")]
    pub after: Rate,
    /// The window behind it.
    #[serde(rename = "window_after_bytes")]
    pub window_after: Bytes,
}

impl Ceilings {
    /// Computes them: RWIN/RTT, or send buffer/RTT.
    pub(super) fn of(facts: &HostFacts, target: &Target) -> Self {
        let shares = [PayloadShare::receiving(facts), PayloadShare::sending()];
        let [receive, send] = [0, 1].map(|way| {
            let scaled = facts.tcp.window_scaling != Ok(false);
            let bounded = |window: Bytes| if scaled { window } else { window.min(UNSCALED_WINDOW) };
            let largest = facts.buffers.largest()[way];
            let window_now = largest.map(|buffer| bounded(shares[way].window_of(buffer)));
            let needed = needed_buffers(facts, target)[way];
            let window_after = shares[way].window_of(needed.max(largest.unwrap_or_default()));
            let rate = |window| window_ceiling(window, target.rtt);
            Ceiling { now: window_now.map(rate), window_now, after: rate(window_after), window_after }
        });
        Self { receive, send }
    }
}

impl Ceiling {
    /// Returns the sentence of a report; `verb` is "receives" or "sends".
    pub fn sentence(&self, verb: &str, target: &Target) -> String {
        let rtt = target.rtt;
        let after = format!("{} after the fix ({} / {rtt})", self.after, self.window_after);
        match (self.now, self.window_now) {
            (Some(now), _) if now >= self.after => {
                format!("One stream {verb} about {now} ({} / {rtt})", self.window_after)
            }
            (Some(now), Some(window)) => {
                format!("One stream {verb} about {now} now ({window} / {rtt}), {after}")
            }
            _ => format!("What one stream {verb} now is unknown; about {after}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{sound_host, target, unread_host};
    use super::*;

    #[test]
    fn window_over_rtt_bounds_the_rate() {
        let mut facts = sound_host();
        // Debian's defaults: 6 MiB to receive, 4 MiB to send.
        facts.buffers.tcp_rmem.as_mut().unwrap().max = Bytes::mib(6);
        facts.buffers.tcp_wmem.as_mut().unwrap().max = Bytes::mib(4);
        let ceilings = Ceilings::of(&facts, &target());
        assert_eq!(ceilings.receive.now.unwrap().as_bytes_per_sec(), (3 << 20) * 5);
        assert_eq!(ceilings.send.now.unwrap().as_bytes_per_sec(), (2 << 20) * 5);
        assert_eq!(ceilings.send.after, target().rate);
        let expected = "One stream receives about 126 Mbit/s now (3 MiB / 200 ms), 10.0 Gbit/s after the fix (238.4 MiB / 200 ms)";
        assert_eq!(ceilings.receive.sentence("receives", &target()), expected);
        // Without window scaling, 64 KiB are all.
        let mut facts = sound_host();
        facts.tcp.window_scaling = Ok(false);
        let ceilings = Ceilings::of(&facts, &target());
        assert_eq!(ceilings.receive.window_now, Some(UNSCALED_WINDOW));
        assert!(ceilings.receive.after >= target().rate);
    }

    #[test]
    fn sound_host_says_one_rate_and_an_unread_one_none() {
        let said = |facts| Ceilings::of(&facts, &target()).send.sentence("sends", &target());
        assert!(!said(sound_host()).contains("after the fix"));
        let unread = said(unread_host("x"));
        assert!(unread.contains("sends now is unknown; about 10.0 Gbit/s after the fix"), "{unread}");
    }
}
