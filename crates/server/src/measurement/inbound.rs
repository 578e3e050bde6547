//! Bytes over TCP from a client, which are counted and discarded: how fast an upload would be.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::proto::http::{ReplyHead, RequestBody, RequestHead};
use longhaul_core::units::Bytes;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{Measurement, STREAM_BYTES, busy, probe_of};
use crate::connection::transport::ServerTransport;
use crate::reply::Reply;

/// How long a stream may take: a probe of one direction takes ten seconds, one with sweeps less
/// than this.
const LONGEST: Duration = Duration::from_secs(30);
/// What is read at once.
const PIECE: Bytes = Bytes::kib(256);
/// What is read at once where a ceiling holds: 5 ms of 100 Mbit/s.
const PACED_PIECE: Bytes = Bytes::kib(64);

impl Measurement {
    /// Receives the body of a request from `client`, of which `ahead` bytes came with the head;
    /// returns the reply, and how many bytes were received; `None` where the client has closed the
    /// connection, as it does once it has measured enough.
    pub(crate) async fn receive(
        &self,
        request: &RequestHead,
        transport: &mut ServerTransport,
        (client, ahead): (IpAddr, usize),
    ) -> Option<(Reply, Bytes)> {
        let refused = |reply| Some((reply, Bytes::ZERO));
        let length = match request.body() {
            RequestBody::Length(length) if length <= STREAM_BYTES => length,
            RequestBody::Length(_) => {
                return refused(Reply::text(413, "a stream has fewer bytes, as the offer says"));
            }
            RequestBody::None | RequestBody::Chunked => {
                return refused(Reply::text(411, "a stream names the number of its bytes"));
            }
        };
        let Ok(_permit) = Arc::clone(&self.streams).try_acquire_owned() else { return refused(busy()) };
        let share = self.ceiling.as_ref().map(|ceiling| ceiling.join_paced(probe_of(request, client), None));
        let expects =
            request.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue"));
        if expects && ahead == 0 && transport.write_interim(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_err() {
            return None;
        }
        let deadline = Instant::now() + LONGEST;
        let mut received = length.min(Bytes::new(ahead as u64));
        let mut due = Instant::now();
        while received < length {
            if share.is_some() {
                sleep_until(due).await;
            }
            let piece = if share.is_some() { PACED_PIECE } else { PIECE };
            let most = piece.min(length - received).as_usize();
            match timeout_at(deadline, transport.discard(most)).await {
                Ok(Ok(more @ 1..)) => {
                    let more = Bytes::new(more as u64);
                    received += more;
                    let pause = share.as_ref().map_or(Duration::ZERO, |share| share.rate().time_for(more));
                    due = due.max(Instant::now()) + pause.min(LONGEST);
                }
                Ok(_) => {
                    tracing::debug!(%client, bytes = received.get(), "the client has measured enough");
                    return None;
                }
                Err(_) => return Some((Reply::text(408, "the body took too long"), received)),
            }
        }
        Some((Reply::empty(ReplyHead::new(204)), received))
    }
}
