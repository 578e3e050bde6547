//! Connections for a file's further streams, begun while the answer to its first request is awaited: they save a round trip.

use longhaul_core::tune::MOST_STREAMS;
use longhaul_core::tune::streams::{StreamTuner, StreamTunerStart};
use longhaul_core::units::{Bytes, Rtt};

use super::ResolvedUrl;
use super::client::ClientAhead;
use super::clients::AheadClaim;
use super::connection::Connection;
use super::first_answer::{LONG_RTT, handshake_rtt};
use super::http_source::HttpSource;
use super::refit::SHARED_BY;
use crate::source::http::ClientConfig;
use crate::threads::lock;
use crate::transfer::{Streams, recv_buffer};

/// The streams that are prepared on a path that no earlier transfer has measured. Half of what a large file gets: most of the gain, and
/// fewer handshakes in vain where the file proves small.
const STREAMS_ON_UNKNOWN_PATH: usize = 16;
/// The most that are prepared in any case.
const MAX_STREAMS: usize = 32;

/// Connections that no stream has taken yet; the others are closed with it.
pub(super) struct Ahead {
    connections: Vec<ClientAhead>,
    _claim: AheadClaim,
}

impl Ahead {
    pub(super) fn take(&mut self) -> Option<ClientAhead> {
        self.connections.pop()
    }

    /// Closes those beyond `count`.
    pub(super) fn keep(&mut self, count: usize) {
        self.connections.truncate(count);
    }
}

impl HttpSource<'_> {
    /// Begins connections for the streams that the file will probably get, to where `connection` leads.
    pub(super) fn begin_ahead(&self, connection: &Connection, target: &ResolvedUrl) {
        let rtt = handshake_rtt(connection).unwrap_or_default();
        let further = self.probable_streams(target, rtt, connection.has_answered()).saturating_sub(1);
        if further == 0 || lock(&self.ahead).is_some() {
            return;
        }
        let Some(claim) = self.clients.claim_ahead() else { return };
        // As the streams will ask for it: the window's scale is fixed by the SYN.
        let config = &self.options.client;
        let recv_buffer = config.recv_buffer.or_else(|| recv_buffer::larger_than_kernels(rtt, SHARED_BY));
        let Ok(client) = self.clients.get(&ClientConfig { recv_buffer, ..config.clone() }) else { return };
        let connections = client.connect_ahead(target, connection.peer(), further);
        *lock(&self.ahead) = Some(Ahead { connections, _claim: claim });
    }

    /// Returns how many streams a large file gets at first; 1 where more than that is doubtful.
    fn probable_streams(&self, target: &ResolvedUrl, rtt: Rtt, kept: bool) -> usize {
        if rtt < LONG_RTT {
            return 1;
        }
        let known = self.recall(target.url());
        let most = match known {
            Some(path) if path.pace().is_some() => 1,
            Some(path) if path.still_holds(rtt).is_some() => MAX_STREAMS,
            // A kept connection is of a batch, and its files are mostly small.
            _ if kept => 1,
            _ => STREAMS_ON_UNKNOWN_PATH,
        };
        match self.options.streams {
            Streams::Fixed(streams) => streams.min(MAX_STREAMS),
            Streams::Auto => {
                let remembered = known.and_then(|path| path.still_holds(rtt));
                let start =
                    StreamTunerStart { rtt, left: Bytes::new(u64::MAX), most: MOST_STREAMS, remembered };
                StreamTuner::new(&start).streams().min(most)
            }
            Streams::Apt(_) => 1,
        }
    }
}
