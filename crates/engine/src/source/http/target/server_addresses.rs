//! The addresses of a server or proxy, in the order in which they are tried.

use std::net::SocketAddr;

/// The addresses of a server or proxy.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerAddresses {
    /// Starts with the one that accepted the last connection; empty before the first connection.
    resolved: Vec<SocketAddr>,
    /// Addresses used only if there is no other, most recently avoided last.
    avoided: Vec<SocketAddr>,
}

impl ServerAddresses {
    /// Sets the addresses of the host; an empty list causes a new resolution.
    pub(crate) fn set(&mut self, resolved: Vec<SocketAddr>) {
        self.resolved = resolved;
    }

    /// Returns whether the host is resolved.
    pub(crate) fn is_resolved(&self) -> bool {
        !self.resolved.is_empty()
    }

    /// Avoids `peer` while the host has other addresses, for example because it serves another version of the file.
    pub(crate) fn avoid(&mut self, peer: SocketAddr) {
        self.avoided.retain(|address| *address != peer);
        self.avoided.push(peer);
    }

    /// Moves `peer`, which has accepted a connection, to the front.
    pub(crate) fn prefer(&mut self, peer: SocketAddr) {
        if let Some(at) = self.resolved.iter().position(|address| *address == peer) {
            self.resolved[..=at].rotate_right(1);
        }
    }

    /// Returns the number of known addresses that are not avoided; zero before the first connection.
    pub(crate) fn usable(&self) -> usize {
        self.resolved.iter().filter(|address| !self.avoided.contains(address)).count()
    }

    /// Returns the addresses to connect to, in order: those not avoided, else all, most recently avoided last.
    pub(crate) fn candidates(&self) -> Vec<SocketAddr> {
        let all = self.resolved.iter().copied();
        let avoided = |address: &SocketAddr| self.avoided.iter().position(|one| one == address);
        let mut left: Vec<_> = all.clone().filter(|address| avoided(address).is_none()).collect();
        if left.is_empty() {
            left = all.collect();
            left.sort_by_key(avoided);
        }
        left
    }

    /// Returns whether a connection to `peer` may be used.
    pub(crate) fn allows(&self, peer: SocketAddr) -> bool {
        !self.avoided.contains(&peer) || (self.is_resolved() && self.usable() == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn avoided_address_is_used_only_without_alternatives() {
        let [a, b] = ["192.0.2.1:80", "192.0.2.2:80"].map(|address| address.parse().unwrap());
        let mut server = ServerAddresses::default();
        server.avoid(b);
        assert!(server.allows(a) && !server.allows(b), "others may be found");
        server.avoided.clear();
        server.set(vec![a, b]);
        assert_eq!((server.usable(), server.candidates()), (2, vec![a, b]));
        server.avoid(a);
        assert_eq!((server.usable(), server.candidates()), (1, vec![b]));
        assert!(!server.allows(a) && server.allows(b));
        server.avoid(b);
        assert_eq!((server.usable(), server.candidates()), (0, vec![a, b]));
        server.avoid(a);
        assert_eq!(server.candidates(), [b, a]);
        assert!(server.allows(a));
    }
}
