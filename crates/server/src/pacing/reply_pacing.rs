//! Paces replies: by the server's `--pace`, the client's `Longhaul-Pace` below it, and the
//! remembered path to the client.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use longhaul_core::pace::{Pace, PaceRequest};
use longhaul_core::tcp_info::TcpInfo;
use longhaul_core::tune::pace::{HeldRate, Pacer};
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_engine::pacing::{PacingHandle, PacingStart, PacingThread, PathMeasurement, PathObserver};
use longhaul_sys::{host, tcp_info};
use parking_lot::Mutex;
use socket2::SockRef;

use crate::pacing::client_paths::ClientPaths;
use crate::pacing::initial_window_pacing::InitialWindowPacing;
use crate::pacing::initial_window_routes::RouteRequests;

/// Replies shorter than this are not paced: they end before the pacer has found a rate.
const MIN_PACED_REPLY: Bytes = Bytes::mib(1);
/// A path counts as holding a fixed pace from this share of it delivered.
const HELD_SHARE: f64 = 0.8;

/// The pacing of all connections of a server.
#[derive(Clone)]
pub(crate) struct PacePolicy {
    pace: Pace,
    congestion: Option<Arc<str>>,
    pacing: Arc<PacingThread>,
    paths: Arc<SharedPaths>,
}

/// The remembered paths, shared by connections and pacing thread, and the requests for initial
/// windows.
#[derive(Debug)]
struct SharedPaths {
    started: Instant,
    clients: Mutex<ClientPaths>,
    routes: Option<RouteRequests>,
}

/// The pacing of one connection.
#[derive(Default)]
pub(crate) struct PacedConnection {
    initial_window: Option<InitialWindowPacing>,
    in_force: Option<Pace>,
    paced: Option<PacingHandle>,
    sending: Option<SendingGuard>,
}

/// Counts a connection as sending to its client until dropped.
#[derive(Debug)]
struct SendingGuard {
    paths: Arc<SharedPaths>,
    client: IpAddr,
}

impl PacePolicy {
    /// Paces replies by `pace`, under `congestion` where given; requests initial windows for the
    /// measured paths from `routes`.
    pub(crate) fn new(pace: Pace, congestion: Option<&str>, routes: Option<RouteRequests>) -> Self {
        let paths = SharedPaths { started: Instant::now(), clients: Mutex::default(), routes };
        Self { pace, congestion: congestion.map(Arc::from), pacing: Arc::default(), paths: Arc::new(paths) }
    }

    /// Returns the pace of a reply of this length on `socket` to a client's request for one; `None`
    /// for a short reply.
    ///
    /// A client leaves all to one connection that is paced. Where the send buffer holds less than
    /// the path may, or the path is known to be too fast for pacing, that connection would be
    /// slower than several: [`Pace::Auto`] then paces none, unless initial windows are asked for,
    /// which follow from paced connections.
    pub(crate) fn of_reply(
        &self,
        length: Bytes,
        request: Option<PaceRequest>,
        client: IpAddr,
        socket: impl AsFd,
    ) -> Option<Pace> {
        if length < MIN_PACED_REPLY {
            return None;
        }
        let asked = request.map_or(self.pace, |request| request.pace);
        let suffices = || {
            let rtt = tcp_info::read(socket).ok().and_then(|tcp| tcp.min_rtt());
            let claimed = request.and_then(|request| request.known);
            let known = rtt.and_then(|rtt| self.paths.known(client, claimed, rtt)).map(|known| known.rate);
            self.paths.routes.is_some() || one_connection_suffices(host::tcp_wmem_max(), rtt, known)
        };
        match asked.within(self.pace) {
            Pace::Auto if !suffices() => Some(Pace::Off),
            pace => Some(pace),
        }
    }

    /// Paces a new connection whose initial window is larger than the kernel's default.
    ///
    /// Its route may have outlived the remembered path.
    pub(crate) fn pace_initial_window(&self, socket: impl AsFd) -> Option<InitialWindowPacing> {
        // With a fixed pace the listening socket paces connections from the handshake on.
        let applies = self.paths.routes.is_some() && self.pace == Pace::Auto;
        applies.then(|| InitialWindowPacing::start(socket)).flatten()
    }
}

impl SharedPaths {
    /// Returns the remembered path to a client, else the one that it claims.
    fn known(&self, client: IpAddr, claimed: Option<HeldRate>, rtt: Rtt) -> Option<HeldRate> {
        self.clients.lock().known(client, claimed, rtt, self.started.elapsed())
    }

    /// Returns the rate at which a connection may start.
    fn starting_rate(&self, client: IpAddr, claimed: Option<HeldRate>, socket: impl AsFd) -> Option<Rate> {
        let tcp = tcp_info::read(socket).ok()?;
        let (rtt, segment) = (tcp.min_rtt()?, Bytes::new(tcp.tcpi_snd_mss()?));
        self.clients.lock().starting_rate(client, claimed, rtt, segment, self.started.elapsed())
    }

    /// Requests the initial window that fits the remembered path of a client.
    fn request_window(&self, client: IpAddr, local: IpAddr, known: Option<HeldRate>, found: PathMeasurement) {
        if let Some((routes, known)) = self.routes.as_ref().zip(known) {
            routes.request(client, local, PathMeasurement { known, ..found });
        }
    }
}

/// Records what the pacing thread measures of the path to a client.
struct PathRecorder {
    paths: Arc<SharedPaths>,
    client: IpAddr,
    /// The server's address on the connection.
    local: IpAddr,
}

impl PathObserver for PathRecorder {
    fn connections(&self) -> u32 {
        self.paths.clients.lock().sending_connections(self.client)
    }

    fn measured(&self, found: PathMeasurement) {
        let Self { paths, client, local } = self;
        let known = paths.clients.lock().record(*client, found.known, paths.started.elapsed());
        paths.request_window(*client, *local, known, found);
    }
}

impl PacedConnection {
    /// Starts with the result of [`PacePolicy::pace_initial_window`].
    pub(crate) fn after_initial_window(initial_window: Option<InitialWindowPacing>) -> Self {
        Self { initial_window, ..Self::default() }
    }

    /// Paces a reply to `client`, which claims the rate and RTT `claimed` of the path.
    pub(crate) fn begin(
        &mut self,
        policy: &PacePolicy,
        socket: impl AsFd,
        pace: Pace,
        client: IpAddr,
        claimed: Option<HeldRate>,
    ) {
        let paths = &policy.paths;
        self.sending = Some(SendingGuard::new(paths, client));
        if self.in_force.replace(pace) == Some(pace) {
            if let Some(paced) = &self.paced {
                paced.resume();
            }
            return;
        }
        self.paced = None;
        let first_cap = self.initial_window.as_ref().and_then(InitialWindowPacing::rate);
        let pace = self.initial_window.as_ref().map_or(pace, |window| window.limit(pace));
        let start = match local_address(&socket) {
            Some(local) if pace == Pace::Auto => {
                let recorder = PathRecorder { paths: Arc::clone(paths), client, local };
                PacingStart {
                    known: paths.starting_rate(client, claimed, &socket),
                    first_cap,
                    observer: Some(Box::new(recorder)),
                }
            }
            _ => PacingStart::default(),
        };
        match policy.pacing.pace(socket, pace, policy.congestion.as_deref(), start) {
            Ok(paced) => self.paced = paced,
            Err(error) => tracing::warn!(%pace, "a reply is not paced: {error}"),
        }
    }

    /// Ends the pacing of a reply; records a fixed pace that the path has held.
    pub(crate) fn end(&mut self, policy: &PacePolicy, socket: impl AsFd) {
        if let Some(paced) = &self.paced {
            paced.pause();
        }
        let Some(sending) = self.sending.take() else { return };
        // No pacer measures a path whose pace the server fixes.
        if let (Pace::Rate(limit), Some(Pace::Rate(rate)), Some(local)) =
            (policy.pace, self.in_force, local_address(&socket))
            && limit == rate
            && let Some(found) = tcp_info::read(&socket).ok().and_then(|tcp| held_pace(rate, &tcp))
        {
            let (paths, client) = (&policy.paths, sending.client);
            let known = paths.clients.lock().record_lower_bound(client, found.known, paths.started.elapsed());
            paths.request_window(client, local, known, found);
        }
    }
}

impl SendingGuard {
    fn new(paths: &Arc<SharedPaths>, client: IpAddr) -> Self {
        paths.clients.lock().sending_started(client);
        Self { paths: Arc::clone(paths), client }
    }
}

impl Drop for SendingGuard {
    fn drop(&mut self) {
        self.paths.clients.lock().sending_ended(self.client);
    }
}

/// Returns whether one paced connection is as fast as several: the path is not known to be too fast
/// for pacing, and the send buffer holds its BDP at its `known` rate, or else at
/// [`Pacer::PACED_BELOW`].
fn one_connection_suffices(send_buffer: Option<Bytes>, rtt: Option<Rtt>, known: Option<Rate>) -> bool {
    let rate = known.unwrap_or(Pacer::PACED_BELOW);
    rate <= Pacer::PACED_BELOW && send_buffer.zip(rtt).is_none_or(|(buffer, rtt)| buffer >= rate.bdp(rtt))
}

/// Returns the local address of a connection.
fn local_address(socket: impl AsFd) -> Option<IpAddr> {
    Some(SockRef::from(&socket).local_addr().ok()?.as_socket()?.ip())
}

/// Returns the path of a connection that has delivered at the pace `rate`; `None` where it
/// delivered less.
fn held_pace(rate: Rate, tcp: &TcpInfo) -> Option<PathMeasurement> {
    let known = HeldRate { rate, rtt: tcp.min_rtt()? };
    let mtu = tcp.tcpi_pmtu().and_then(|mtu| u32::try_from(mtu).ok());
    let segment = Bytes::new(tcp.tcpi_snd_mss()?);
    (tcp.delivery_rate()? >= rate.scaled(HELD_SHARE)).then_some(PathMeasurement { known, segment, mtu })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_connection_suffices_where_its_send_buffer_holds_the_path() {
        let rtt = |ms| Rtt::new(Duration::from_millis(ms));
        let suffices = |buffer, rtt_ms, known| {
            one_connection_suffices(Some(Bytes::mib(buffer)), Some(rtt(rtt_ms)), known)
        };
        // Debian's tcp_wmem, and one for long paths.
        assert!(suffices(4, 10, None) && !suffices(4, 20, None) && !suffices(4, 300, None));
        assert!(suffices(256, 302, None));
        let known = |mbit: u64| Some(Rate::bits_per_sec(mbit * 1_000_000));
        assert!(suffices(4, 200, known(100)) && !suffices(4, 200, known(1000)));
        assert!(suffices(1024, 200, known(2900)) && !suffices(1024, 200, known(3100)), "too fast for pacing");
        assert!(one_connection_suffices(None, None, None));
    }
}
