//! Finding a host's addresses.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use url::Host;

use super::error::HttpError;
use super::wait::Wait;

/// Finds the addresses of `host`, in the order of RFC 6724 that the system gives.
///
/// The system's resolver cannot be interrupted, so it runs in a thread of its own, which is left
/// behind when the wait is over.
pub(super) fn resolve(
    host: &Host<String>,
    port: u16,
    wait: &Wait<'_>,
    tick: Duration,
) -> Result<Vec<SocketAddr>, HttpError> {
    let name = match host {
        Host::Ipv4(address) => return Ok(vec![SocketAddr::new(IpAddr::V4(*address), port)]),
        Host::Ipv6(address) => return Ok(vec![SocketAddr::new(IpAddr::V6(*address), port)]),
        Host::Domain(name) => name.clone(),
    };
    let fail = |source| HttpError::Resolve { host: host.to_string(), source };
    let (sender, receiver) = channel();
    std::thread::Builder::new()
        .name("resolve".to_owned())
        .spawn(move || {
            let found = (name.as_str(), port).to_socket_addrs().map(|found| found.collect::<Vec<_>>());
            // Nobody listens any more once the wait is over.
            let _ = sender.send(found);
        })
        .map_err(|source| HttpError::Thread { host: host.to_string(), source })?;
    loop {
        wait.check_cancel()?;
        let left = wait.left();
        if left.is_zero() {
            return Err(HttpError::ResolveTimeout { host: host.to_string(), waited: wait.limit });
        }
        return match receiver.recv_timeout(left.min(tick)) {
            Ok(Ok(found)) if found.is_empty() => Err(fail(io::Error::other("it has no address"))),
            Ok(found) => found.map_err(fail),
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => Err(fail(io::Error::other("the resolver gave up"))),
        };
    }
}
