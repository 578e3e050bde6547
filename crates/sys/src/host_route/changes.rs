//! What others change in the routing table.

use std::net::IpAddr;

use rustix::net::AddressFamily;

use super::route::Route;
use super::{RTM_DELROUTE, RTM_NEWROUTE, octets};
use crate::rtnetlink::{messages, sender};

/// What others have changed.
#[derive(Debug, Default)]
pub struct Changes {
    prefixes: Vec<(IpAddr, u8)>,
    /// More than could be heard.
    unknown: bool,
}

impl Changes {
    /// Says whether the way to this host may be another.
    pub fn concern(&self, host: IpAddr) -> bool {
        self.unknown || self.prefixes.iter().any(|(net, bits)| contains(*net, *bits, host))
    }

    /// Takes in what was heard but for what the socket of this address has asked for.
    pub(super) fn note(&mut self, heard: &[u8], own: u32) {
        messages(heard)
            .filter(|(kind, _)| matches!(*kind, RTM_NEWROUTE | RTM_DELROUTE))
            .filter(|(_, message)| sender(message) != Some(own))
            .for_each(|(_, message)| self.note_route(message));
    }

    /// Notes that more has happened than could be heard.
    pub(super) fn lost_count(&mut self) {
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

/// Says whether the network that these first bits of `net` name holds `host`.
pub(super) fn contains(net: IpAddr, bits: u8, host: IpAddr) -> bool {
    let (net, host) = (octets(net), octets(host));
    let bits = usize::from(bits);
    net.len() == host.len()
        && (0..bits.min(8 * net.len())).all(|bit| (net[bit / 8] ^ host[bit / 8]) & (0x80 >> (bit % 8)) == 0)
}
