//! One paced socket: its TCP_INFO, its controller, and its pacing rate.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use longhaul_core::tcp_info::TcpInfo;
use longhaul_core::tune::pace::{HeldRate, Observation, Pacer};
use longhaul_core::units::{Bytes, Rate};
use longhaul_sys::send_options::{set_max_pacing_rate, unset_max_pacing_rate};
use longhaul_sys::tcp_info;
use socket2::{Domain, SockRef, Socket, Type};

use super::{PacingStart, PathMeasurement, PathObserver};

/// The congestion control until the bottleneck's rate is measured. Its slow start is unpaced, and
/// the kernel permits it to every process unless `net.ipv4.tcp_allowed_congestion_control` omits
/// it.
///
/// BBR paces its first windows, which would hide the bottleneck's rate. CUBIC's HyStart takes
/// jitter for a queue, and ends slow start.
pub(super) const STARTUP_CONTROL: &[u8] = b"reno";
const BBR: &[u8] = b"bbr";
/// The shortest interval between two reports to the observer.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// A socket and its pacing controller.
pub(super) struct PacedSocket {
    socket: OwnedFd,
    pacer: Pacer,
    /// The current pacing rate.
    pace: Option<Rate>,
    pub(super) due: Duration,
    pub(super) is_paused: bool,
    /// The congestion control to set once slow start is over.
    final_control: Option<Vec<u8>>,
    /// Bytes delivered so far; the kernel counts segments in 32 bits, which wrap.
    delivered: Bytes,
    segments: Option<u32>,
    report: PathReport,
}

impl PacedSocket {
    pub(super) fn new(socket: OwnedFd, congestion: Option<&str>, start: PacingStart) -> Self {
        let final_control =
            congestion.filter(|name| name.as_bytes() != STARTUP_CONTROL).map(|name| name.as_bytes().to_vec());
        Self {
            socket,
            pacer: match (start.first_cap, start.known) {
                (Some(first), _) => Pacer::with_first_cap(first),
                (None, Some(known)) => Pacer::with_known_rate(known),
                (None, None) => Pacer::default(),
            },
            pace: start.first_cap,
            due: Duration::ZERO,
            is_paused: false,
            final_control,
            delivered: Bytes::ZERO,
            segments: None,
            report: PathReport { observer: start.observer, ..PathReport::default() },
        }
    }

    /// Pauses the pacer while nothing is sent; reports the last measurement.
    pub(super) fn pause(&mut self) {
        self.is_paused = true;
        self.report.send();
    }

    /// Resumes the pacer.
    pub(super) fn resume(&mut self) {
        if std::mem::replace(&mut self.is_paused, false) {
            self.pacer.resume();
        }
    }

    /// Returns whether the socket is in slow start, in which it is observed most often.
    pub(super) fn is_starting(&self) -> bool {
        self.pacer.is_starting()
    }

    /// Returns the interval between observations that the controller asks for.
    pub(super) fn interval(&self) -> Duration {
        self.pacer.interval()
    }

    /// Observes the socket, and updates its pacing rate; the next observation is due after
    /// `slowdown` intervals of the controller.
    pub(super) fn update(&mut self, now: Duration, slowdown: f64) {
        self.due = now + self.interval().mul_f64(slowdown);
        let tcp = tcp_info::read(&self.socket).ok();
        let Some((tcp, seen)) = tcp.and_then(|tcp| Some((tcp, self.observation(&tcp)?))) else {
            // What cannot be observed is not paced.
            if self.pace.take().is_some() {
                let _ = unset_max_pacing_rate(&self.socket);
            }
            self.is_paused = true;
            return;
        };
        let pace = self.pacer.observe(&seen, now);
        tracing::trace!(target: "longhaul::pacing", ?now, ?pace, ?seen, pacer = ?self.pacer.phase());
        if pace != self.pace {
            // If the kernel refuses, the connection continues with its previous rate.
            let _ = match pace {
                Some(rate) => set_max_pacing_rate(&self.socket, rate),
                None => unset_max_pacing_rate(&self.socket),
            };
            self.pace = pace;
        }
        if self.final_control.is_some() && !self.pacer.is_starting() {
            set_final_control(&self.socket, self.final_control.take().as_deref());
        }
        if self.pacer.is_held_back(&seen, now) {
            restart_growth(&self.socket);
        }
        if let Some((share, segment)) = self.pacer.found().zip(tcp.tcpi_snd_mss()) {
            let mtu = tcp.tcpi_pmtu().and_then(|mtu| u32::try_from(mtu).ok());
            let known = HeldRate { rate: self.report.path_rate(share), rtt: seen.min_rtt };
            self.report.update(PathMeasurement { known, segment: Bytes::new(segment), mtu }, now);
        }
    }

    /// Derives the controller's observation from TCP_INFO; `None` before the first RTT.
    ///
    /// Uses `tcpi_delivered`: `tcpi_bytes_acked` does not advance while a gap is being filled.
    fn observation(&mut self, tcp: &TcpInfo) -> Option<Observation> {
        let delivered = tcp.tcpi_delivered()? as u32;
        let more = delivered.wrapping_sub(self.segments.replace(delivered).unwrap_or(0));
        let segment = tcp.tcpi_snd_mss()?;
        self.delivered += Bytes::new(u64::from(more) * segment);
        // Lost, and not yet sent again.
        let awaiting = tcp.tcpi_lost()?.saturating_sub(tcp.tcpi_retrans()?);
        Some(Observation {
            goodput: self.delivered,
            window: tcp.cwnd()?,
            rtt: tcp.rtt()?,
            min_rtt: tcp.min_rtt()?,
            sent: Bytes::new(tcp.tcpi_bytes_sent()?),
            lost: Bytes::new(tcp.tcpi_bytes_retrans()?) + Bytes::new(awaiting * segment),
        })
    }
}

/// Sets the congestion control for the rest of the connection.
pub(super) fn set_final_control(socket: impl AsFd, congestion: Option<&[u8]>) {
    if let Some(name) = congestion {
        // If the kernel refuses, the socket keeps its current control.
        let _ = SockRef::from(&socket).set_tcp_congestion(name);
    }
}

/// Restarts slow start in the socket's congestion control: the pace, not the window, protects the
/// path's queue.
///
/// After a loss CUBIC takes tens of seconds to grow back over a long path, and BBR probes only
/// every eighth RTT, although the pacer has found capacity. The kernel resets ssthresh only when a
/// connection changes to BBR. Therefore this changes to BBR and back, or from BBR to
/// [`STARTUP_CONTROL`] and back.
fn restart_growth(socket: impl AsFd) {
    let socket = SockRef::from(&socket);
    let Ok(name) = socket.tcp_congestion() else { return };
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let by_way_of = if name == BBR { STARTUP_CONTROL } else { BBR };
    if may_return(name, by_way_of) && socket.set_tcp_congestion(by_way_of).is_ok() {
        let _ = socket.set_tcp_congestion(name);
    }
}

/// Returns whether the kernel permits, on a temporary socket, to set `by_way_of` and then `name`
/// again: in a network namespace, setting the default control may need CAP_NET_ADMIN.
fn may_return(name: &[u8], by_way_of: &[u8]) -> bool {
    Socket::new(Domain::IPV4, Type::STREAM, None).is_ok_and(|socket| {
        [name, by_way_of, name].iter().all(|name| socket.set_tcp_congestion(name).is_ok())
    })
}

/// Reports the measurements of a socket's path.
#[derive(Default)]
struct PathReport {
    observer: Option<Box<dyn PathObserver>>,
    rate: PathRate,
    measurement: Option<PathMeasurement>,
    sent: Option<Duration>,
}

impl PathReport {
    /// Returns the rate of the path, of which this socket has `share`.
    fn path_rate(&mut self, share: Rate) -> Rate {
        self.rate.measure(share, || self.observer.as_ref().map_or(1, |observer| observer.connections()))
    }

    /// Updates the measurement, and sends it at most once per [`REPORT_INTERVAL`].
    fn update(&mut self, measurement: PathMeasurement, now: Duration) {
        self.measurement = Some(measurement);
        if self.sent.is_none_or(|sent| now.saturating_sub(sent) >= REPORT_INTERVAL) {
            self.sent = Some(now);
            self.send();
        }
    }

    /// Sends the latest measurement.
    fn send(&self) {
        if let Some((observer, measurement)) = self.observer.as_ref().zip(self.measurement) {
            observer.measured(measurement);
        }
    }
}

/// Derives the rate of a path that several connections share from the share of one.
///
/// Multiplies when a share is measured, not when it is reported: the other connections may have
/// ended by then.
#[derive(Debug, Default)]
struct PathRate {
    share: Option<Rate>,
    path: Rate,
}

impl PathRate {
    /// Returns the path's rate; recomputes it as `share` times `connections()` if the share has
    /// changed.
    fn measure(&mut self, share: Rate, connections: impl FnOnce() -> u32) -> Rate {
        if self.share.replace(share) != Some(share) {
            self.path =
                Rate::bits_per_sec(share.as_bits_per_sec().saturating_mul(connections().max(1).into()));
        }
        self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBIT: fn(u64) -> Rate = |mbit| Rate::bits_per_sec(mbit * 1_000_000);

    #[test]
    fn path_rate_changes_only_with_the_share() {
        let mut path = PathRate::default();
        assert_eq!(path.measure(MBIT(100), || 4), MBIT(400));
        // The number of connections has changed, but no new share was measured.
        assert_eq!(path.measure(MBIT(100), || 1), MBIT(400));
        assert_eq!(path.measure(MBIT(100), || 9), MBIT(400));
        assert_eq!(path.measure(MBIT(110), || 1), MBIT(110));
        assert_eq!(path.measure(MBIT(90), || 0), MBIT(90));
        assert_eq!(path.measure(MBIT(u64::MAX / 1_000_000), || 2), Rate::bits_per_sec(u64::MAX));
    }
}
