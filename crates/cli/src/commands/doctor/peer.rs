//! The server of a transfer: its address, and the RTT to it.

use std::net::IpAddr;
use std::time::Duration;

use longhaul_core::host_check::Reading;
use longhaul_core::units::Rtt;
use longhaul_engine::probe::{handshake_rtt, reach};
use url::Url;

/// How long the name service may take, and the choice among several addresses; the whole command is to end within 3 s.
const REACH: Duration = Duration::from_millis(900);

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
        let found = reach(url, REACH).map_err(|error| error.to_string());
        let rtt = found.as_ref().ok().filter(|_| measure).map(|address| {
            handshake_rtt(*address).map_err(|error| format!("TCP handshake with {host} ({address}): {error}"))
        });
        Self { host, address: found.map(|address| address.ip()), rtt }
    }
}
