//! One paced socket: what is read of it, and what is set on it.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use longhaul_core::tcp_info::TcpInfo;
use longhaul_core::tune::pace::{Known, Observation, Pacer, first_pace};
use longhaul_core::units::{Bytes, Rate};
use longhaul_sys::send_options::{set_max_pacing_rate, unset_max_pacing_rate};
use longhaul_sys::tcp_info;
use socket2::SockRef;

use super::whole::Whole;
use super::{Finding, Hears, Start};

/// Slow start is unpaced under this congestion control, and every kernel lets everybody use it.
///
/// BBR spreads its first windows, and the bottleneck's rate cannot be told from them.
pub(super) const AT_FIRST: &[u8] = b"reno";
pub(super) const BBR: &[u8] = b"bbr";
/// How often it is told what was found.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// A socket and its controller.
pub(super) struct Driven {
    socket: OwnedFd,
    pacer: Pacer,
    /// The pace in force.
    pace: Option<Rate>,
    due: Duration,
    rests: bool,
    /// The congestion control that it is to have once slow start is over.
    later: Option<Vec<u8>>,
    /// What was delivered in all; the kernel's count of segments wraps.
    delivered: Bytes,
    segments: Option<u32>,
    /// Who hears what was found, what that is now, and when he last did.
    hears: Option<Box<dyn Hears>>,
    whole: Whole,
    finding: Option<Finding>,
    told: Option<Duration>,
}

impl Driven {
    pub(super) fn new(socket: OwnedFd, congestion: Option<&str>, start: Start) -> Self {
        let later =
            congestion.filter(|name| name.as_bytes() != AT_FIRST).map(|name| name.as_bytes().to_vec());
        Self {
            socket,
            pacer: start.known.map_or_else(Pacer::default, Pacer::knowing),
            pace: start.known.map(first_pace),
            due: Duration::ZERO,
            rests: false,
            later,
            delivered: Bytes::ZERO,
            segments: None,
            hears: start.hears,
            whole: Whole::default(),
            finding: None,
            told: None,
        }
    }

    /// Returns whether nothing is being sent.
    pub(super) fn rests(&self) -> bool {
        self.rests
    }

    /// Returns when it is to be looked at.
    pub(super) fn due(&self) -> Duration {
        self.due
    }

    /// Stops: nothing is being sent.
    pub(super) fn rest(&mut self) {
        self.rests = true;
        self.tell();
    }

    /// Goes on.
    pub(super) fn resume(&mut self) {
        if std::mem::replace(&mut self.rests, false) {
            self.pacer.resume();
        }
    }

    /// Looks at the socket, and sets its pace where that has changed; `crowd` times as seldom as the controller asks.
    pub(super) fn look(&mut self, now: Duration, crowd: u32) {
        self.due = now + self.pacer.interval() * crowd;
        let tcp = tcp_info::read(&self.socket).ok();
        let Some((tcp, seen)) = tcp.and_then(|tcp| Some((tcp, self.observation(&tcp)?))) else {
            self.rests = true;
            return;
        };
        let pace = self.pacer.observe(&seen, now);
        tracing::trace!(target: "longhaul::pacing", ?now, ?pace, ?seen, pacer = ?self.pacer.phase());
        if pace != self.pace {
            // Where the kernel refuses, the connection goes on as it would have.
            let _ = match pace {
                Some(rate) => set_max_pacing_rate(&self.socket, rate),
                None => unset_max_pacing_rate(&self.socket),
            };
            self.pace = pace;
        }
        self.steer(&seen, now);
        self.find(&tcp, &seen, now);
    }

    /// Keeps what has been found, and tells of it now and then.
    fn find(&mut self, tcp: &TcpInfo, seen: &Observation, now: Duration) {
        let Some((share, segment)) = self.pacer.found().zip(tcp.tcpi_snd_mss()) else { return };
        let rate = self.whole.measure(share, || self.hears.as_ref().map_or(1, |hears| hears.sharing()));
        let mtu = tcp.tcpi_pmtu().and_then(|mtu| u32::try_from(mtu).ok());
        let known = Known { rate, rtt: seen.min_rtt };
        self.finding = Some(Finding { known, segment: Bytes::new(segment), mtu });
        if self.told.is_none_or(|told| now.saturating_sub(told) >= TOLD_EVERY) {
            self.told = Some(now);
            self.tell();
        }
    }

    fn tell(&self) {
        if let Some((hears, finding)) = self.hears.as_ref().zip(self.finding) {
            hears.hear(finding);
        }
    }

    /// Takes from TCP_INFO what the controller wants to know; `None` before the first RTT.
    ///
    /// Not `tcpi_bytes_acked`: that stands still while a gap is being filled.
    fn observation(&mut self, tcp: &TcpInfo) -> Option<Observation> {
        let delivered = tcp.tcpi_delivered()? as u32;
        let more = delivered.wrapping_sub(self.segments.replace(delivered).unwrap_or(0));
        self.delivered += Bytes::new(u64::from(more) * tcp.tcpi_snd_mss()?);
        Some(Observation {
            goodput: self.delivered,
            window: tcp.cwnd()?,
            rtt: tcp.rtt()?,
            min_rtt: tcp.min_rtt()?,
            sent: Bytes::new(tcp.tcpi_bytes_sent()?),
            retransmits: Bytes::new(tcp.tcpi_bytes_retrans()?),
        })
    }

    /// Lets the congestion control follow the pace.
    fn steer(&mut self, seen: &Observation, now: Duration) {
        if self.later.is_some() && self.pacer.has_settled(seen) {
            hand_over(&self.socket, self.later.take().as_deref());
        }
        if self.pacer.is_held_back(seen, now) {
            grow_again(&self.socket);
        }
    }
}

/// Gives the socket its congestion control for good.
pub(super) fn hand_over(socket: impl AsFd, congestion: Option<&[u8]>) {
    if let Some(name) = congestion {
        // Refused, it stays with the one that it has.
        let _ = SockRef::from(&socket).set_tcp_congestion(name);
    }
}

/// Lets the congestion control grow as at its start: the pace, not the window, is what keeps the path from overflowing.
///
/// After a loss CUBIC takes tens of seconds to grow back over such a path, and BBR sends faster only every eighth round trip,
/// though the controller has found the path free. The kernel forgets the threshold of slow start where a connection goes
/// over to BBR, and nowhere else.
fn grow_again(socket: impl AsFd) {
    let socket = SockRef::from(&socket);
    let Ok(name) = socket.tcp_congestion() else { return };
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let by_way_of = if name == BBR { AT_FIRST } else { BBR };
    if socket.set_tcp_congestion(by_way_of).is_ok() {
        let _ = socket.set_tcp_congestion(name);
    }
}
