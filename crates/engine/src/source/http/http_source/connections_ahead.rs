//! Opens connections for a file's further streams while the answer to its first request is awaited,
//! which saves a round trip.

use longhaul_core::tune::streams::{CountTuner, MAX_INITIAL_STREAMS, StreamTuner, StreamTunerStart};
use longhaul_core::units::{Bytes, Rtt};
use url::Origin;

use crate::source::MIN_RTT_OF_SEVERAL;
use crate::source::http::ClientConfig;
use crate::source::http::ResolvedUrl;
use crate::source::http::client::ClientAhead;
use crate::source::http::client::clients::AheadClaim;
use crate::source::http::connection::Connection;
use crate::source::http::http_source::HttpSource;
use crate::source::http::http_source::first_answer::handshake_rtt;
use crate::source::http::http_source::refit::SHARED_BY;
use crate::transfer::{Streams, recv_buffer};

/// Connections for further streams, not yet taken by one; closed on drop.
pub(crate) struct ConnectionsAhead {
    origin: Origin,
    pub(crate) connections: Vec<ClientAhead>,
    _claim: AheadClaim,
}

impl HttpSource<'_> {
    /// Starts connections for the probable number of streams of `left` bytes, to the peer of
    /// `connection`.
    pub(crate) fn begin_ahead(&self, connection: &Connection, target: &ResolvedUrl, left: Option<Bytes>) {
        // A kept connection indicates a batch, whose files are mostly small.
        if connection.has_answered() {
            return;
        }
        let rtt = handshake_rtt(connection).unwrap_or_default();
        let further = self.probable_streams(target, rtt, left).saturating_sub(1);
        let ahead = &mut self.unused.lock().ahead;
        if further == 0 || ahead.as_ref().is_some_and(|ahead| ahead.origin == target.url().origin()) {
            return;
        }
        // After a redirect, connections to the previous server are useless.
        *ahead = None;
        let Some(claim) = self.clients.claim_ahead() else { return };
        // With the buffer that the streams will request: the SYN fixes the window scale.
        let config = &self.options.transfer.client;
        let recv_buffer = config.recv_buffer.or_else(|| recv_buffer::larger_than_kernels(rtt, SHARED_BY));
        let Ok(client) = self.clients.get(&ClientConfig { recv_buffer, ..config.clone() }) else { return };
        let connections = client.connect_ahead(target, connection.peer(), further);
        *ahead = Some(ConnectionsAhead { origin: target.url().origin(), connections, _claim: claim });
    }

    /// Returns the probable initial number of streams of a large file; 1 if more is doubtful.
    fn probable_streams(&self, target: &ResolvedUrl, rtt: Rtt, left: Option<Bytes>) -> usize {
        if rtt < MIN_RTT_OF_SEVERAL {
            return 1;
        }
        let known = self.recall(target.url()).filter(|path| path.pace().is_none());
        let remembered = known.and_then(|path| path.still_holds(rtt));
        let most = MAX_INITIAL_STREAMS.min(self.options.transfer.stream_cap.get());
        match self.options.transfer.streams {
            Streams::Fixed(streams) => streams.min(MAX_INITIAL_STREAMS),
            // An unknown file on an unknown server may be small, or be redirected.
            Streams::Auto if remembered.is_some() || left.is_some() => {
                let left = left.unwrap_or(Bytes::new(u64::MAX));
                StreamTuner::new(&StreamTunerStart { rtt, left, most, remembered, bound: None }).streams()
            }
            Streams::Auto | Streams::Apt(_) => 1,
        }
    }
}
