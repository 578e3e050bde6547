//! A connection that sends requests and reads their answers in order.

mod answers;
pub(super) mod body;
pub(super) mod buffered_transport;
pub(super) mod explanation;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::proto::http::{HeaderField, RangeRequest, Request, RequestMethod, ResponseHead};
use longhaul_core::units::Bytes;
use url::Host;

use super::error::HttpError;
use crate::cancel::Cancel;
use crate::connect::{Deadline, Transport};
use crate::source::http::authentication::digest_login::DigestLogin;
use crate::source::http::client::config::{Timeouts, TlsConfig};
use crate::source::http::connection::body::Body;
use crate::source::http::connection::buffered_transport::BufferedTransport;
use crate::source::http::target::proxy::ProxyKind;
use crate::source::http::target::safe_url::{SafeUrl, UrlAndPeer};
pub use answers::EarlyAnswer;

/// The parts that every request for one URL has in common.
#[derive(Debug, Clone)]
pub(crate) struct RequestLine {
    pub(super) target: String,
    pub(super) host: String,
    pub(super) headers: Vec<HeaderField>,
    /// A login that is computed for each request.
    pub(super) digest: Option<Arc<DigestLogin>>,
    /// The URL, for errors.
    pub(super) url: SafeUrl,
}

/// A connection to a server, over which the URLs of one origin are requested.
///
/// Requests may be sent while an earlier answer is still being read (pipelining); the answers come
/// in the order of the requests. The socket blocks for at most a tick at a time.
pub struct Connection {
    transport: BufferedTransport,
    pub(super) key: Arc<ConnectionKey>,
    request: RequestLine,
    pub(crate) timeouts: Timeouts,
    /// The flag that ends waits.
    pub(super) cancel: Cancel,
    in_flight: InFlight,
    body: Body,
    pub(super) persistence: Persistence,
}

/// What two connections must have in common so that either can carry a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectionKey {
    pub(crate) https: bool,
    pub(crate) server: (Host<String>, u16),
    /// The zone of the server's or the proxy's address.
    pub(crate) zone: Option<u32>,
    pub(crate) proxy: Option<(ProxyKind, Host<String>, u16)>,
    pub(crate) tls: TlsConfig,
    pub(crate) recv_buffer: Option<Bytes>,
    pub(crate) congestion: Option<String>,
    pub(crate) tick: Duration,
}

impl ConnectionKey {
    /// Returns whether a connection of this key can serve in place of one of the `wanted`: a
    /// receive buffer may be smaller or larger by a tenth, as it is computed from an RTT that is
    /// measured again.
    pub(crate) fn nearly_fits(&self, wanted: &Self) -> bool {
        let near = match (self.recv_buffer, wanted.recv_buffer) {
            (Some(own), Some(wanted)) => own.get().abs_diff(wanted.get()) <= wanted.get() / 10,
            (own, wanted) => own == wanted,
        };
        near && *wanted == Self { recv_buffer: wanted.recv_buffer, ..self.clone() }
    }
}

/// The requests that are sent, or being sent, and have no final answer.
#[derive(Default)]
struct InFlight {
    unanswered: VecDeque<Unanswered>,
    /// Interim answers since the last final one.
    interim: u32,
    /// Whether a request's head was sent, and all of its body is not.
    has_unsent_body: bool,
    /// A final answer that was read while the request's body was being sent.
    early_head: Option<ResponseHead>,
}

/// A request without an answer.
#[derive(Debug, Clone, Copy)]
struct Unanswered {
    /// Whether it was a HEAD, whose answer has no body.
    is_head: bool,
    /// Whether it changes nothing on the server, and so takes no long processing.
    is_safe: bool,
}

/// Whether the connection serves further requests (RFC 9112, section 9.3).
#[derive(Default)]
pub(super) struct Persistence {
    reusable: bool,
    /// Whether the last answer contradicted HTTP, so that nothing after it is an answer.
    pub(super) has_ended: bool,
    /// Whether the server has answered a request.
    has_answered: bool,
    /// Whether the connection was idle before its first request.
    pub(super) has_waited: bool,
    /// How long the server keeps an idle connection open, where the last answer announced that.
    pub(super) timeout: Option<Duration>,
}

impl Connection {
    pub(super) fn new(
        transport: BufferedTransport,
        key: Arc<ConnectionKey>,
        request: RequestLine,
        timeouts: Timeouts,
        cancel: Cancel,
    ) -> Self {
        Self {
            transport,
            key,
            request,
            timeouts,
            cancel,
            in_flight: InFlight::default(),
            body: Body::Ended,
            persistence: Persistence { reusable: true, ..Persistence::default() },
        }
    }

    /// Sends a GET for the whole file or a range of it, without waiting for the answer.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_get(&mut self, range: Option<&RangeRequest>) -> Result<(), HttpError> {
        self.send(RequestMethod::Get(range))
    }

    /// Sends a request's head, without waiting for the answer.
    ///
    /// # Errors
    /// [`HttpError::ClosedBeforeHead`] where the server has announced that it closes the
    /// connection, [`HttpError::Send`], [`HttpError::Timeout`], and that of a cancellation.
    pub fn send(&mut self, method: RequestMethod<'_>) -> Result<(), HttpError> {
        if !self.reusable() {
            return Err(HttpError::ClosedBeforeHead(self.at().clone(), Bytes::ZERO));
        }
        let RequestLine { target, host, headers, digest, .. } = &self.request;
        let login = digest.as_ref().and_then(|digest| digest.field(method.name(), target));
        let headers = &headers.iter().cloned().chain(login).collect::<Vec<_>>();
        let request = Request { target, host, headers, method }.encode();
        let deadline = Deadline::new(&self.cancel, self.timeouts.head);
        let sent = self.transport.send_all(&request, "taking the request", &deadline);
        self.persistence.reusable = sent.is_ok();
        self.in_flight
            .unanswered
            .push_back(Unanswered { is_head: method.is_head(), is_safe: method.is_safe() });
        self.in_flight.has_unsent_body = method.has_body();
        sent
    }

    /// Sends from the front of `pending`, a part of a request's body, which it shortens; returns
    /// whether the kernel has all of it.
    ///
    /// # Errors
    /// Those of the kernel or TLS; of kind `WouldBlock` where a tick has passed.
    pub fn send_body(&mut self, pending: &mut &[u8]) -> io::Result<bool> {
        self.transport.stream.send(pending)
    }

    /// Marks the request's body as sent: after its answer the connection can be used again.
    pub fn finish_body(&mut self) {
        self.in_flight.has_unsent_body = false;
    }

    /// Makes the following requests for another URL of the same origin.
    pub(super) fn aim(&mut self, request: RequestLine) {
        self.transport.at.url = request.url.clone();
        self.request = request;
    }

    /// Allows no further request.
    pub fn retire(&mut self) {
        self.persistence.reusable = false;
    }

    /// Returns whether a further request may be sent: nothing has failed, and the server has not
    /// announced that it closes the connection. It may close an idle connection all the same.
    pub fn reusable(&self) -> bool {
        self.persistence.reusable
    }

    /// Returns whether `error`, of a single GET or HEAD, can mean that the server closed the
    /// connection while that was idle: no byte of an answer has come. The request is worth another
    /// try on a [fresh](super::Client::connect_fresh) connection.
    pub fn was_closed_while_idle(&self, error: &HttpError) -> bool {
        let is_single = self.in_flight.unanswered.len() <= 1 && !self.transport.has_buffered();
        let was_idle = self.persistence.has_answered || self.persistence.has_waited;
        was_idle && is_single && error.is_broken_connection()
    }

    /// Returns whether the server has answered a request on this connection.
    pub(crate) fn has_answered(&self) -> bool {
        self.persistence.has_answered
    }

    /// Returns whether nothing is in flight: a request may be sent for any URL of the origin.
    pub(super) fn is_idle(&self) -> bool {
        let all_sent = !self.in_flight.has_unsent_body && self.in_flight.early_head.is_none();
        let all_read =
            self.in_flight.unanswered.is_empty() && self.body.has_ended() && !self.transport.has_buffered();
        self.reusable() && all_sent && all_read
    }

    /// Returns whether the server has neither closed the idle connection nor sent anything on it.
    pub(crate) fn is_silent(&mut self) -> bool {
        !self.transport.is_readable(Duration::ZERO)
    }

    /// Returns the number of bytes read of the current body; the highest after its end.
    pub(super) fn body_position(&self) -> u64 {
        self.body.position()
    }

    /// Returns how many requests have no answer yet.
    pub fn unanswered(&self) -> usize {
        self.in_flight.unanswered.len()
    }

    /// Returns the socket, for its options and TCP_INFO; reading or writing it breaks the
    /// connection.
    pub fn socket(&self) -> &TcpStream {
        self.transport.stream.socket()
    }

    /// Returns whether the bytes are encrypted, and so are copied through a buffer of the TLS
    /// library.
    pub fn is_tls(&self) -> bool {
        matches!(self.transport.stream, Transport::Tls(_))
    }

    /// Returns the peer's address: the server's or the proxy's.
    pub fn peer(&self) -> SocketAddr {
        self.transport.at.peer
    }

    /// Returns the URL and the peer, without secrets.
    pub fn at(&self) -> &UrlAndPeer {
        &self.transport.at
    }
}
