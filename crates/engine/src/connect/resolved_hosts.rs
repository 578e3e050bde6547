//! Resolves host names.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::retry::Retry;
use parking_lot::Mutex;
use url::Host;

use super::deadline::Deadline;
use super::zones::socket_address;

/// The lifetime of a cached result: TTLs of hosts behind load balancers are about a minute.
const FRESH: Duration = Duration::from_secs(60);
/// The maximum number of cached hosts, and of silent addresses.
const MAX_HOSTS: usize = 1024;
/// For how long an address that was silent is tried last: about the time in which a host is
/// repaired or taken out of its name.
const SILENT: Duration = Duration::from_secs(600);

/// The rules for choosing addresses; by default every resolved address is used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressRules {
    /// Fixed addresses of hosts, which are not resolved.
    pub fixed: Vec<FixedAddresses>,
    /// The only address family to use.
    pub family: Option<AddressFamily>,
    /// The zones of IPv6 addresses: the index of the interface that leads to each. They precede the
    /// process's.
    pub zones: BTreeMap<Ipv6Addr, u32>,
}

/// The fixed addresses of a host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedAddresses {
    /// The host's name as in a URL; `*` is every host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The addresses, in the order of attempts.
    pub addresses: Vec<IpAddr>,
}

/// A version of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl AddressRules {
    /// Returns the zone of a host that is an address.
    pub(crate) fn zone(&self, host: &Host<String>) -> Option<u32> {
        match host {
            Host::Ipv6(address) => self.zones.get(address).copied(),
            _ => None,
        }
    }

    fn fixed(&self, host: &Host<String>, port: u16) -> Option<Vec<SocketAddr>> {
        // A trailing dot only marks the name as absolute.
        let absolute = |name: &str| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let name = absolute(&host.to_string());
        let fits =
            |rule: &&FixedAddresses| rule.port == port && (rule.host == "*" || absolute(&rule.host) == name);
        if let Some(rule) = self.fixed.iter().find(fits) {
            return Some(rule.addresses.iter().map(|address| socket_address(*address, port)).collect());
        }
        match (host, self.zone(host)) {
            (Host::Ipv6(address), Some(zone)) => {
                Some(vec![SocketAddrV6::new(*address, port, 0, zone).into()])
            }
            _ => None,
        }
    }

    /// Removes addresses of the other family.
    fn of_family(&self, host: &Host<String>, found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, Failure> {
        let Some(family) = self.family else { return Ok(found) };
        let of = |address: &SocketAddr| address.is_ipv4() == (family == AddressFamily::V4);
        let found: Vec<_> = found.into_iter().filter(of).collect();
        if found.is_empty() {
            let why =
                if family == AddressFamily::V4 { "it has no IPv4 address" } else { "it has no IPv6 address" };
            return Err(unresolved(host, &io::Error::other(why)));
        }
        Ok(found)
    }
}

/// Cached results of name resolution, and what is known of their addresses.
#[derive(Default)]
pub(crate) struct ResolvedHosts {
    cached: Mutex<HashMap<(Host<String>, u16), CachedAddresses>>,
    /// The addresses whose last connection was accepted and not answered, and when.
    silent: Mutex<HashMap<SocketAddr, Instant>>,
}

struct CachedAddresses {
    addresses: Vec<SocketAddr>,
    at: Instant,
}

impl ResolvedHosts {
    /// Returns the addresses of `host`, from the cache or by resolving it; those that were silent
    /// last.
    pub(crate) fn resolve(
        &self,
        host: &Host<String>,
        port: u16,
        rules: &AddressRules,
        deadline: &Deadline<'_>,
        tick: Duration,
    ) -> Result<Vec<SocketAddr>, Failure> {
        let found = match rules.fixed(host, port) {
            Some(fixed) => fixed,
            None => self.find(host, port, deadline, tick)?,
        };
        let mut found = rules.of_family(host, found)?;
        self.sort(&mut found, Instant::now());
        Ok(found)
    }

    /// Moves the addresses that were silent lately behind the others.
    pub(crate) fn sort(&self, addresses: &mut [SocketAddr], now: Instant) {
        let silent = self.silent.lock();
        addresses.sort_by_key(|address| {
            silent.get(address).is_some_and(|at| now.saturating_duration_since(*at) < SILENT)
        });
    }

    /// Notes that an address has answered.
    pub(crate) fn has_answered(&self, address: SocketAddr) {
        self.silent.lock().remove(&address);
    }

    /// Notes that an address has accepted a connection and not answered.
    pub(crate) fn was_silent(&self, address: SocketAddr, now: Instant) {
        let mut silent = self.silent.lock();
        if silent.len() >= MAX_HOSTS {
            silent.retain(|_, at| now.saturating_duration_since(*at) < SILENT);
        }
        if silent.len() < MAX_HOSTS || silent.contains_key(&address) {
            silent.insert(address, now);
        }
    }

    fn find(
        &self,
        host: &Host<String>,
        port: u16,
        deadline: &Deadline<'_>,
        tick: Duration,
    ) -> Result<Vec<SocketAddr>, Failure> {
        let key = (host.clone(), port);
        if let Some(found) = self.cached.lock().get(&key).filter(|found| found.at.elapsed() < FRESH) {
            return Ok(found.addresses.clone());
        }
        let addresses = resolve(host, port, deadline, tick)?;
        let mut hosts = self.cached.lock();
        if hosts.len() >= MAX_HOSTS {
            hosts.clear();
        }
        hosts.insert(key, CachedAddresses { addresses: addresses.clone(), at: Instant::now() });
        Ok(addresses)
    }

    /// Removes an unreachable host from the cache, so that it is resolved again.
    pub(crate) fn forget(&self, host: &Host<String>, port: u16) {
        self.cached.lock().remove(&(host.clone(), port));
    }
}

/// Resolves `host`; returns the addresses in the system's order (RFC 6724).
///
/// The system's resolver cannot be interrupted: it runs on a separate thread, which is detached
/// when the wait ends.
fn resolve(
    host: &Host<String>,
    port: u16,
    deadline: &Deadline<'_>,
    tick: Duration,
) -> Result<Vec<SocketAddr>, Failure> {
    let name = match host {
        Host::Ipv4(address) => return Ok(vec![socket_address(IpAddr::V4(*address), port)]),
        Host::Ipv6(address) => return Ok(vec![socket_address(IpAddr::V6(*address), port)]),
        Host::Domain(name) => name.clone(),
    };
    let fail = |source| unresolved(host, &source);
    let (sender, receiver) = channel();
    std::thread::Builder::new()
        .name("resolve".to_owned())
        .spawn(move || {
            let found = (name.as_str(), port).to_socket_addrs().map(|found| found.collect::<Vec<_>>());
            // The receiver is dropped when the wait ends.
            let _ = sender.send(found);
        })
        .map_err(|error| {
            let message = format!("cannot start a thread to look up the host {host}: {error}");
            Failure::new(FailureKind::Internal, message)
        })?;
    loop {
        deadline.check_cancel()?;
        let left = deadline.left();
        if left.is_zero() {
            let waited = deadline.limit;
            let message = format!(
                "cannot find the host {host}: the name service did not answer within {waited:?}; check the network"
            );
            return Err(unreachable(FailureKind::Temporary, message));
        }
        return match receiver.recv_timeout(left.min(tick)) {
            Ok(Ok(found)) if found.is_empty() => Err(fail(io::Error::other("it has no address"))),
            Ok(found) => found.map_err(fail),
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => Err(fail(io::Error::other("the resolver gave up"))),
        };
    }
}

/// Creates the failure of a host that was not reached.
pub(super) fn unreachable(kind: FailureKind, message: String) -> Failure {
    Failure::new(kind, message).caused_by(Cause::Unreachable)
}

/// Creates the error of a host that does not resolve, or of an unreachable name service.
///
/// The standard library keeps only the text of getaddrinfo's error; without setlocale it is
/// English. "Temporary failure" is EAI_AGAIN.
fn unresolved(host: &impl std::fmt::Display, source: &io::Error) -> Failure {
    let text = source.to_string();
    let reason = text.strip_prefix("failed to lookup address information: ").unwrap_or(&text);
    let message = format!("cannot find the host {host}: {reason}; check its name and the network");
    let retry = if text.contains("Temporary failure") { Retry::Backoff } else { Retry::Never };
    unreachable(FailureKind::NoHost, message).with_retry(retry)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn silent_address_is_last_until_it_answers_or_for_a_time() {
        let hosts = ResolvedHosts::default();
        let addresses = [1, 2].map(|last| SocketAddr::from(([192, 0, 2, last], 80)));
        let [first, second] = addresses;
        let now = Instant::now();
        let sorted = |now| {
            let mut sorted = addresses;
            hosts.sort(&mut sorted, now);
            sorted
        };
        hosts.was_silent(first, now);
        assert_eq!(sorted(now), [second, first]);
        assert_eq!(sorted(now + SILENT), addresses);
        hosts.has_answered(first);
        assert_eq!(sorted(now), addresses);
        // More than are remembered, of which the old ones make room.
        let silent = |from: u16, now| {
            (0..MAX_HOSTS as u16)
                .for_each(|port| hosts.was_silent((Ipv4Addr::LOCALHOST, from + port).into(), now));
        };
        silent(1, now);
        hosts.was_silent(second, now);
        assert_eq!(sorted(now), addresses);
        hosts.was_silent(first, now + SILENT);
        assert_eq!(sorted(now + SILENT), [second, first]);
    }
}
