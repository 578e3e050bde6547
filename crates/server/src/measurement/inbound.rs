//! Bytes over TCP from a client, which are counted and discarded: how fast an upload would be.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::proto::http::{ReplyHead, RequestBody, RequestHead};
use longhaul_core::units::Bytes;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{Measurement, STREAM_BYTES, busy};
use crate::reply::Reply;
use crate::transport::ServerTransport;

/// How long a stream may take: a probe of one direction takes ten seconds, one with sweeps less than this.
const LONGEST: Duration = Duration::from_secs(30);
/// What is read at once.
const PIECE: Bytes = Bytes::kib(256);
/// What is read at once where a ceiling holds: 5 ms of 100 Mbit/s.
const PACED_PIECE: Bytes = Bytes::kib(64);

/// The reply to a stream of a client.
pub(crate) struct InboundReply {
    pub(crate) reply: Reply,
    /// Bytes of the body that were received.
    pub(crate) bytes: Bytes,
}

impl Measurement {
    /// Receives the body of a request from `client`; `ahead` bytes of it came with the head.
    pub(crate) async fn receive(
        &self,
        request: &RequestHead,
        transport: &mut ServerTransport,
        (client, ahead): (IpAddr, usize),
    ) -> InboundReply {
        let refused = |reply| InboundReply { reply, bytes: Bytes::ZERO };
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
        let share = self.ceiling.as_ref().map(|ceiling| ceiling.join_paced(client, None));
        let expects =
            request.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue"));
        if expects && ahead == 0 && transport.write_interim(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_err() {
            return refused(Reply::text(408, "the connection failed"));
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
                // A client that has measured enough closes the connection.
                Ok(_) => {
                    return InboundReply { reply: Reply::text(400, "the body was cut"), bytes: received };
                }
                Err(_) => {
                    return InboundReply {
                        reply: Reply::text(408, "the body took too long"),
                        bytes: received,
                    };
                }
            }
        }
        InboundReply { reply: Reply::empty(ReplyHead::new(204)), bytes: received }
    }
}
