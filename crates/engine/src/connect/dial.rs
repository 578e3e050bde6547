//! Connects to the first address that answers (Happy Eyeballs, RFC 8305).

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::happy_eyeballs::{ConnectionRace, RaceStep};
use longhaul_core::units::Bytes;
use longhaul_sys::sockopt::set_recv_buffer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Protocol, Socket, Type};

use super::deadline::Deadline;
use super::resolved_hosts::unreachable;
use super::transport::wait_readable;

/// The options of a new socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SocketSettings<'a> {
    pub(crate) recv_buffer: Option<Bytes>,
    pub(crate) congestion: Option<&'a str>,
    pub(crate) tick: Duration,
}

/// Connects to the first of `addresses` that answers, and returns the socket with its address;
/// reads and writes block for at most one tick.
pub(crate) fn dial(
    host: &str,
    addresses: &[SocketAddr],
    settings: SocketSettings<'_>,
    deadline: &Deadline<'_>,
) -> Result<(TcpStream, SocketAddr), Failure> {
    let mut race = ConnectionRace::new(addresses, Instant::now());
    let mut running: Vec<(SocketAddr, Socket)> = Vec::new();
    let mut failed = Attempts::default();
    loop {
        deadline.check_cancel()?;
        if deadline.left().is_zero() {
            failed.0.extend(running.into_iter().map(|(address, _)| (address, None)));
            return Err(failed.timeout(host, deadline.limit));
        }
        let pause = match race.step(Instant::now()) {
            RaceStep::Start(address) => {
                match start(address, settings) {
                    Ok(socket) => running.push((address, socket)),
                    Err(error) => {
                        failed.0.push((address, Some(error)));
                        race.attempt_failed(Instant::now());
                    }
                }
                continue;
            }
            RaceStep::WaitUntil(time) => time.saturating_duration_since(Instant::now()),
            RaceStep::AllStarted if running.is_empty() => {
                return Err(failed.refused(host));
            }
            RaceStep::AllStarted => Duration::MAX,
        };
        for index in finished(&running, pause.min(settings.tick).min(deadline.left())).into_iter().rev() {
            let (address, socket) = running.swap_remove(index);
            match finish(socket, settings) {
                Ok(stream) => {
                    tracing::debug!(%host, %address, "connected");
                    return Ok((stream, address));
                }
                Err(error) => {
                    failed.0.push((address, Some(error)));
                    race.attempt_failed(Instant::now());
                }
            }
        }
    }
}

/// Starts an attempt without waiting.
fn start(address: SocketAddr, settings: SocketSettings<'_>) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if let Some(size) = settings.recv_buffer {
        // The SYN fixes the window scale by the window that the kernel expects before the first
        // packet: half of the buffer. Packets with little overhead raise the window to nearly the
        // whole buffer, so the scale is chosen for twice the size.
        set_recv_buffer(&socket, (size * 2).min(LARGEST_BUFFER))?;
    }
    if let Some(name) = settings.congestion {
        // Set before connecting, because BBR changes a connection's pacing state permanently.
        socket.set_tcp_congestion(name.as_bytes())?;
    }
    socket.set_nonblocking(true)?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {
            Err(error)
        }
        _ => Ok(socket),
    }
}

/// The option's value is a C int.
const LARGEST_BUFFER: Bytes = Bytes::new(i32::MAX as u64);

/// Waits up to `pause`; returns the indices of completed or failed attempts in ascending order.
fn finished(running: &[(SocketAddr, Socket)], pause: Duration) -> Vec<usize> {
    let mut fds: Vec<PollFd<'_>> = running.iter().map(|(_, s)| PollFd::new(s, PollFlags::OUT)).collect();
    let timeout = Timespec::try_from(pause).ok();
    // An interrupted poll ends early; the caller checks the clock and polls again.
    let _ = poll(&mut fds, timeout.as_ref());
    (0..fds.len()).filter(|index| !fds[*index].revents().is_empty()).collect()
}

/// Completes an attempt.
fn finish(socket: Socket, settings: SocketSettings<'_>) -> io::Result<TcpStream> {
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    if let Some(size) = settings.recv_buffer {
        set_recv_buffer(&socket, size.min(LARGEST_BUFFER))?;
    }
    socket.set_nonblocking(false)?;
    // Requests are small and often pipelined; Nagle's algorithm would delay them by a round trip.
    socket.set_tcp_nodelay(true)?;
    socket.set_read_timeout(Some(settings.tick))?;
    socket.set_write_timeout(Some(settings.tick))?;
    Ok(socket.into())
}

/// A connection opened before its stream needs it, closed on drop: the handshake runs while the
/// answer on another connection is awaited.
pub(crate) struct AheadConnection {
    peer: SocketAddr,
    socket: Socket,
    begun: Instant,
}

/// The maximum age of an unused connection, and the timeout of its handshake: servers close
/// connections without a request (HAProxy's usual `timeout http-request` is 5 to 10 s).
pub(crate) const MAX_UNUSED_AGE: Duration = Duration::from_secs(3);

impl AheadConnection {
    /// Sends the SYN without waiting.
    ///
    /// # Errors
    /// The errors of socket(2) and connect(2).
    pub(crate) fn start(peer: SocketAddr, settings: SocketSettings<'_>) -> io::Result<Self> {
        Ok(Self { peer, socket: start(peer, settings)?, begun: Instant::now() })
    }

    /// Returns the peer's address.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Waits for the end of the handshake; `None` if the handshake fails or takes too long, or the
    /// server has closed or responded without a request.
    pub(crate) fn finish(self, settings: SocketSettings<'_>, deadline: &Deadline<'_>) -> Option<TcpStream> {
        let running = [(self.peer, self.socket)];
        while deadline.check_cancel().is_ok() {
            let left = MAX_UNUSED_AGE.saturating_sub(self.begun.elapsed()).min(deadline.left());
            if left.is_zero() {
                return None;
            }
            if !finished(&running, settings.tick.min(left)).is_empty() {
                let [(_, socket)] = running;
                let is_silent = !wait_readable(&socket, Duration::ZERO);
                return if is_silent { finish(socket, settings).ok() } else { None };
            }
        }
        None
    }
}

/// Addresses that were tried, and the outcome of each; no error means no answer yet.
#[derive(Debug, Default)]
struct Attempts(Vec<(SocketAddr, Option<io::Error>)>);

impl Attempts {
    /// Formats the outcomes; leaves out a single address that equals `host`.
    fn of(&self, host: &str) -> String {
        let outcome = |(address, error): &(SocketAddr, Option<io::Error>)| {
            let mut outcome = error.as_ref().map_or_else(|| "no answer".to_owned(), io::Error::to_string);
            if let SocketAddr::V6(v6) = address
                && v6.ip().is_unicast_link_local()
                && v6.scope_id() == 0
            {
                outcome += &format!("; name the interface of a link-local address, as [{}%25eth0]", v6.ip());
            }
            let is_named = self.0.len() == 1 && address.to_string() == host;
            if is_named { outcome } else { format!("{address}: {outcome}") }
        };
        self.0.iter().map(outcome).collect::<Vec<_>>().join(", ")
    }

    /// Creates the error of a host no address of which accepted a connection.
    fn refused(&self, host: &str) -> Failure {
        let outcomes = self.of(host);
        let message = format!(
            "cannot connect to {host}: {outcomes}; check that the server runs and that no firewall is in between"
        );
        unreachable(FailureKind::Unavailable, message)
    }

    /// Creates the error of a host no address of which answered in time.
    fn timeout(&self, host: &str, waited: Duration) -> Failure {
        let outcomes = self.of(host);
        let message = format!(
            "cannot connect to {host}: no answer within {waited:?} ({outcomes}); check that the server runs and the network"
        );
        unreachable(FailureKind::Temporary, message)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use longhaul_core::failure::Cause;

    use super::*;
    use crate::cancel::Cancel;

    const SETTINGS: SocketSettings<'_> =
        SocketSettings { recv_buffer: None, congestion: None, tick: Duration::from_millis(20) };

    fn listen() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    fn dialled(
        addresses: &[SocketAddr],
        settings: SocketSettings<'_>,
        limit: Duration,
    ) -> Result<TcpStream, Failure> {
        dial("h", addresses, settings, &Deadline::new(&Cancel::new(), limit)).map(|(stream, _)| stream)
    }

    /// A listener whose queue is full, so that the kernel drops every SYN.
    fn black_hole() -> (Socket, Vec<Socket>, SocketAddr) {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let fill: Vec<_> = (0..8).map(|_| start(address, SETTINGS).unwrap()).collect();
        poll(&mut [PollFd::new(&fill[0], PollFlags::OUT)], None).unwrap();
        (listener, fill, address)
    }

    #[test]
    fn refusing_addresses_cost_no_stagger() {
        let (_alive, alive) = listen();
        let refusing = (1..=200).map(|host| SocketAddr::from(([127, 0, 1, host], alive.port())));
        let addresses: Vec<_> =
            std::iter::once("[::1]:1".parse().unwrap()).chain(refusing).chain([alive]).collect();
        // The staggers of all would take 50 s.
        let stream = dialled(&addresses, SETTINGS, Duration::from_secs(30)).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), alive);
    }

    #[test]
    fn silent_first_address_costs_one_stagger() {
        let (_listener, _fill, silent) = black_hole();
        let (_alive, alive) = listen();
        let started = Instant::now();
        let stream = dialled(&[silent, alive], SETTINGS, Duration::from_secs(30)).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), alive);
        assert!(started.elapsed() >= Duration::from_millis(240), "{:?}", started.elapsed());
    }

    #[test]
    fn connecting_ends_by_a_timeout_that_names_every_address_or_when_cancelled() {
        let (_listener, _fill, silent) = black_hole();
        let dead: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let error = dialled(&[silent, dead], SETTINGS, Duration::from_millis(400)).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("cannot connect to h: no answer within 400ms"), "{text}");
        assert!(text.contains(&silent.to_string()) && text.contains(&dead.to_string()), "{text}");
        let cancel = Cancel::new().child_until(Instant::now() + Duration::from_millis(50));
        let deadline = Deadline::new(&cancel, Duration::from_secs(60));
        assert!(matches!(
            dial("h", &[silent], SETTINGS, &deadline),
            Err(Failure { cause: Cause::Interrupted, .. })
        ));
    }

    #[test]
    fn buffer_has_requested_size_and_sufficient_scale_or_is_clamped() {
        let (_listener, address) = listen();
        let settings = SocketSettings { recv_buffer: Some(Bytes::mib(20)), ..SETTINGS };
        let stream = dialled(&[address], settings, Duration::from_secs(30)).unwrap();
        let scale = longhaul_sys::tcp_info::read(&stream).unwrap().tcpi_rcv_wscale().unwrap();
        let size = Socket::from(stream).recv_buffer_size().unwrap();
        if longhaul_sys::sockopt::may_force_recv_buffer() {
            // The kernel doubles the value.
            assert_eq!(size, 40 << 20);
            assert!(65_535 << scale >= 39 << 20, "a scale of {scale} cannot announce nearly all of it");
        }
        for size in [Bytes::gib(1), Bytes::gib(2), Bytes::gib(4), Bytes::new(u64::MAX)] {
            let socket = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            let (own, limited) = (socket(), socket());
            let before = own.recv_buffer_size().unwrap();
            set_recv_buffer(&own, size * 2).unwrap();
            assert!(own.recv_buffer_size().unwrap() >= before, "{size} made it smaller");
            // Without permission to exceed the limit, no bit of the size may be lost.
            limited.set_recv_buffer_size((size * 2).min(LARGEST_BUFFER).as_usize()).unwrap();
            assert!(limited.recv_buffer_size().unwrap() >= before, "{size} made it smaller");
        }
    }

    #[test]
    fn only_an_open_and_silent_connection_is_used() {
        let (listener, cancel) = (TcpListener::bind("127.0.0.1:0").unwrap(), Cancel::new());
        let address = listener.local_addr().unwrap();
        let start = || AheadConnection::start(address, SETTINGS);
        let finish =
            |ahead: AheadConnection| ahead.finish(SETTINGS, &Deadline::new(&cancel, Duration::from_secs(30)));
        let mut stream = finish(start().unwrap()).unwrap();
        listener.accept().unwrap().0.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();

        let closed = start().unwrap();
        drop(listener.accept().unwrap());
        poll(&mut [PollFd::new(&closed.socket, PollFlags::RDHUP)], None).unwrap();
        assert!(finish(closed).is_none(), "closed");

        drop(listener);
        assert!(start().ok().and_then(finish).is_none(), "refused");
    }
}
