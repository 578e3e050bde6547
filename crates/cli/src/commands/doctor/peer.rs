//! The server of a transfer: its address, and the RTT to it.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::host_check::Reading;
use longhaul_core::units::Rtt;
use longhaul_engine::source::default_port;
use url::Url;

/// How long the name service may take; the whole command is to end within 3 s.
const RESOLVE: Duration = Duration::from_secs(1);
/// How long each handshake may take; longer than the RTT of a path by two satellites.
const HANDSHAKE: Duration = Duration::from_millis(1200);
/// Handshakes of which the fastest counts, and the time for all of them.
const HANDSHAKES: usize = 3;
const HANDSHAKES_TIME: Duration = HANDSHAKE;

/// What was found of the server.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) host: String,
    pub(super) address: Reading<IpAddr>,
    /// `None` where it was not asked for, or where there is no address.
    pub(super) rtt: Option<Reading<Rtt>>,
}

impl Peer {
    /// Resolves the host of `url`, and measures the RTT to it where that is asked for.
    pub(super) fn find(url: &Url, measure: bool) -> Self {
        let host = url.host_str().unwrap_or_default().to_owned();
        let addresses = match resolve(url) {
            Ok(addresses) => addresses,
            Err(reason) => return Self { address: Err(format!("{host}: {reason}")), host, rtt: None },
        };
        let first = addresses[0];
        let measured = measure.then(|| handshakes(&addresses));
        match measured {
            Some(Ok((address, rtt))) => Self { host, address: Ok(address.ip()), rtt: Some(Ok(rtt)) },
            Some(Err(error)) => {
                let reason = format!("TCP handshake with {host} ({first}): {error}");
                Self { host, address: Ok(first.ip()), rtt: Some(Err(reason)) }
            }
            None => Self { host, address: Ok(first.ip()), rtt: None },
        }
    }
}

/// Finds the host's addresses; the thread is detached when the time is over, for the resolver cannot be interrupted.
///
/// The result is not empty.
fn resolve(url: &Url) -> Result<Vec<SocketAddr>, String> {
    let (tell, found) = channel();
    let url = url.clone();
    let ask = move || drop(tell.send(url.socket_addrs(|| default_port(&url))));
    thread::Builder::new().name("resolve".to_owned()).spawn(ask).map_err(|error| error.to_string())?;
    match found.recv_timeout(RESOLVE) {
        Ok(Ok(addresses)) if addresses.is_empty() => Err("it has no address".to_owned()),
        Ok(found) => found.map_err(|error| error.to_string()),
        Err(_) => Err(format!("the name service has not answered within {} s", RESOLVE.as_secs())),
    }
}

/// Returns the address that answers first, in their order, and the fastest handshake with it.
fn handshakes(addresses: &[SocketAddr]) -> io::Result<(SocketAddr, Rtt)> {
    let start = Instant::now();
    let left = || HANDSHAKES_TIME.saturating_sub(start.elapsed());
    let mut failure = io::Error::from(io::ErrorKind::TimedOut);
    for (index, address) in addresses.iter().enumerate() {
        // An address that drops everything leaves time for those after it.
        let others = u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
        match handshake(address, left() / others) {
            Ok(mut fastest) => {
                for _ in 1..HANDSHAKES {
                    // One that fails now says nothing of the RTT.
                    fastest = handshake(address, left()).map_or(fastest, |time| time.min(fastest));
                }
                return Ok((*address, Rtt::new(fastest)));
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Connects and closes again; the kernel returns with the SYN-ACK.
fn handshake(address: &SocketAddr, within: Duration) -> io::Result<Duration> {
    if within.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let start = Instant::now();
    TcpStream::connect_timeout(address, within)?;
    Ok(start.elapsed())
}
