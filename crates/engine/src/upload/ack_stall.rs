//! The rule by which a server that receives has stalled: it acknowledges less than [`MIN_DELIVERY`]
//! within the stall timeout.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use longhaul_core::units::Bytes;
use longhaul_sys::tcp_info;

use super::error::UploadError;
use crate::delivery_stall::MIN_DELIVERY;
use crate::source::http::UrlAndPeer;

/// Detects a stalled server by its acknowledgements.
pub(super) struct AckStall {
    limit: Duration,
    since: Instant,
    acked: Option<Bytes>,
    /// The URL and the peer, for errors.
    at: UrlAndPeer,
}

impl AckStall {
    pub(super) fn new(socket: &TcpStream, limit: Duration, at: UrlAndPeer) -> Self {
        let acked = tcp_info::read(socket).ok().and_then(|info| info.bytes_acked());
        Self { limit, since: Instant::now(), acked, at }
    }

    /// Restarts the timeout, after an interim answer.
    pub(super) fn restart(&mut self) {
        self.since = Instant::now();
    }

    /// Fails if less than [`MIN_DELIVERY`] was acknowledged within the limit; returns the number
    /// of unacknowledged bytes, if the kernel reports it.
    pub(super) fn check(&mut self, socket: &TcpStream) -> Result<Option<u64>, UploadError> {
        let Ok(info) = tcp_info::read(socket) else { return Ok(None) };
        let acked = info.bytes_acked();
        let outstanding = info.tcpi_unacked().zip(info.tcpi_notsent_bytes()).map(|(out, kept)| out + kept);
        let moves = acked.zip(self.acked).is_none_or(|(now, then)| now >= then + MIN_DELIVERY);
        // With nothing in flight, the server waits for this host's disk or for `--limit`.
        if moves || outstanding == Some(0) {
            (self.since, self.acked) = (Instant::now(), acked);
        }
        if self.since.elapsed() > self.limit {
            return Err(UploadError::stalled(&self.at, self.limit));
        }
        Ok(outstanding)
    }
}
