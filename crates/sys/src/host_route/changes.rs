//! Changes of the routing table by other programs.

use std::net::IpAddr;

use libc::{RTM_DELROUTE, RTM_NEWROUTE};
use rustix::net::AddressFamily;

use super::route::Route;
use crate::rtnetlink::{messages, raw_address, sender};

/// The prefixes changed by other programs.
#[derive(Debug, Default)]
pub struct Changes {
    prefixes: Vec<(IpAddr, u8)>,
    /// Whether notifications were lost.
    unknown: bool,
}

impl Changes {
    /// Returns whether the route to this host may have changed.
    pub fn concern(&self, host: IpAddr) -> bool {
        self.unknown || self.prefixes.iter().any(|(net, bits)| contains(*net, *bits, host))
    }

    /// Records notifications, except those caused by the socket with the address `own`.
    pub(super) fn note(&mut self, notification: &[u8], own: u32) {
        messages(notification)
            .filter(|(kind, _)| matches!(*kind, RTM_NEWROUTE | RTM_DELROUTE))
            .filter(|(_, message)| sender(message) != Some(own))
            .for_each(|(_, message)| self.note_route(message));
    }

    /// Records that notifications were lost.
    pub(super) fn note_lost(&mut self) {
        self.unknown = true;
    }

    fn note_route(&mut self, message: &[u8]) {
        let Some(route) = Route::parse(message) else { return };
        let net = route.destination().or(match AddressFamily::from_raw(route.family.into()) {
            AddressFamily::INET => Some(IpAddr::from([0; 4])),
            AddressFamily::INET6 => Some(IpAddr::from([0; 16])),
            _ => None,
        });
        self.prefixes.extend(net.map(|net| (net, route.bits)));
    }
}

/// Returns whether the network given by the first `bits` bits of `net` contains `host`.
pub(super) fn contains(net: IpAddr, bits: u8, host: IpAddr) -> bool {
    let (net, host) = (raw_address(net).1, raw_address(host).1);
    let bits = usize::from(bits);
    net.len() == host.len()
        && (0..bits.min(8 * net.len())).all(|bit| (net[bit / 8] ^ host[bit / 8]) & (0x80 >> (bit % 8)) == 0)
}
