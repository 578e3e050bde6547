//! A connection that sends requests and reads their answers in order.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::proto::http::{Ask, Framing, HeaderField, RangeRequest, Request, ResponseHead};
use longhaul_core::units::Bytes;
use url::Host;

use super::body::{Body, Read};
use super::buffered_transport::BufferedTransport;
use super::config::{Timeouts, TlsConfig};
use super::error::HttpError;
use super::error_class::ErrorKind;
use super::explanation::read_explanation;
use super::proxy::ProxyKind;
use super::safe_url::{SafeUrl, UrlAndPeer};
use crate::cancel::Cancel;
use crate::connect::Deadline;

/// How long to read the body of a refusal: a short one comes with its head.
const FRONT_TIMEOUT: Duration = Duration::from_secs(1);

/// The parts that every request for one URL has in common.
#[derive(Debug, Clone)]
pub(super) struct RequestLine {
    pub(super) target: String,
    pub(super) host: String,
    pub(super) headers: Vec<HeaderField>,
    /// The URL, for errors.
    pub(super) url: SafeUrl,
}

/// What two connections must have in common so that either can carry a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConnectionKey {
    pub(super) https: bool,
    pub(super) server: (Host<String>, u16),
    pub(super) proxy: Option<(ProxyKind, Host<String>, u16)>,
    pub(super) tls: TlsConfig,
    pub(super) recv_buffer: Option<Bytes>,
    pub(super) congestion: Option<String>,
    pub(super) tick: Duration,
}

impl ConnectionKey {
    /// Returns whether a connection of this key can serve in place of one of the `wanted`: a receive buffer may be smaller or larger by
    /// a tenth, as it is computed from an RTT that is measured again.
    pub(super) fn nearly_fits(&self, wanted: &Self) -> bool {
        let near = match (self.recv_buffer, wanted.recv_buffer) {
            (Some(own), Some(wanted)) => own.get().abs_diff(wanted.get()) <= wanted.get() / 10,
            (own, wanted) => own == wanted,
        };
        near && *wanted == Self { recv_buffer: wanted.recv_buffer, ..self.clone() }
    }
}

/// What a server has answered while the request's body was being sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyAnswer {
    /// Nothing.
    None,
    /// An interim answer (1xx): it is at work.
    Interim,
    /// The final answer, which [`Connection::read_head`] returns.
    Final,
}

/// A connection to a server, over which the URLs of one origin are requested.
///
/// Requests may be sent while an earlier answer is still being read (pipelining); the answers come in
/// the order of the requests. The socket blocks for at most a tick at a time.
pub struct Connection {
    transport: BufferedTransport,
    key: Arc<ConnectionKey>,
    request: RequestLine,
    timeouts: Timeouts,
    cancel: Cancel,
    /// For each request without an answer: whether it was a HEAD, whose answer has no body.
    unanswered: VecDeque<bool>,
    unfinished: Unfinished,
    /// A final answer that was read while the request's body was being sent.
    early: Option<ResponseHead>,
    body: Body,
    persistence: Persistence,
}

/// What has been sent in part.
#[derive(Default)]
struct Unfinished {
    /// The beginning of a request, as a carrier of the receive window.
    window_carrier: bool,
    /// A request whose body was announced.
    body: bool,
}

/// Whether the connection serves further requests (RFC 9112, section 9.3).
struct Persistence {
    reusable: bool,
    has_answered: bool,
    /// It has been idle before its first request.
    has_waited: bool,
    /// How long the server keeps an idle connection open, where the last answer said so.
    timeout: Option<Duration>,
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
            unanswered: VecDeque::new(),
            unfinished: Unfinished::default(),
            early: None,
            body: Body::Ended,
            persistence: Persistence {
                reusable: true,
                has_answered: false,
                has_waited: false,
                timeout: None,
            },
        }
    }

    /// Makes the following requests for another URL of the same origin.
    pub(super) fn aim(&mut self, request: RequestLine) {
        self.transport.set_url(request.url.clone());
        self.request = request;
    }

    /// Sends a GET for the whole file or a range of it, without waiting for the answer.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_get(&mut self, range: Option<&RangeRequest>) -> Result<(), HttpError> {
        self.send(Ask::Get(range))
    }

    /// Sends a few bytes of the next request's head, which is never finished where no request follows: every packet sent
    /// carries the receive window.
    ///
    /// Servers read these bytes after they have sent the answers to the requests before.
    ///
    /// # Errors
    /// [`HttpError::Send`], [`HttpError::Timeout`] and [`HttpError::Cancelled`].
    pub fn send_window_carrier(&mut self) -> Result<(), HttpError> {
        let text = match std::mem::replace(&mut self.unfinished.window_carrier, true) {
            false => format!("GET {} HTTP/1.1\r\nWindow-Carrier: ", self.request.target),
            true => "-".to_owned(),
        };
        let deadline = Deadline::new(&self.cancel, self.timeouts.head);
        self.transport.send_all(text.as_bytes(), &deadline)
    }

    /// Replaces the flag that ends this connection's waits.
    pub fn set_cancel(&mut self, cancel: Cancel) {
        self.cancel = cancel;
    }

    pub(super) fn set_timeouts(&mut self, timeouts: Timeouts) {
        self.timeouts = timeouts;
    }

    /// Sends a request's head, without waiting for the answer.
    ///
    /// # Errors
    /// [`HttpError::ClosedBeforeHead`] where the server has announced that it closes the connection,
    /// [`HttpError::Send`], [`HttpError::Timeout`] and [`HttpError::Cancelled`].
    pub fn send(&mut self, ask: Ask<'_>) -> Result<(), HttpError> {
        if !self.reusable() {
            return Err(HttpError::ClosedBeforeHead { at: self.at().clone(), got: Bytes::ZERO });
        }
        let RequestLine { target, host, headers, .. } = &self.request;
        let mut request = Request { target, host, headers, ask }.encode();
        if std::mem::take(&mut self.unfinished.window_carrier) {
            // The request line has been sent, and a field without its end.
            let line = request.windows(2).position(|two| two == b"\r\n").unwrap_or(0);
            request.drain(..line);
        }
        let deadline = Deadline::new(&self.cancel, self.timeouts.head);
        let sent = self.transport.send_all(&request, &deadline);
        self.persistence.reusable = sent.is_ok();
        self.unanswered.push_back(ask.is_head());
        self.unfinished.body = ask.has_body();
        sent
    }

    /// Waits until the server asks for the body of the request just sent (100 Continue), for `limit` at most.
    ///
    /// Returns whether to send the body: not where the final answer has come already. A server that answers nothing may not
    /// know the expectation (RFC 9110, section 10.1.1).
    ///
    /// # Errors
    /// Those of [`read_head`](Self::read_head).
    pub fn await_continue(&mut self, limit: Duration) -> Result<bool, HttpError> {
        let cancel = self.cancel.clone();
        let deadline = Deadline::new(&cancel, limit);
        while self.early.is_none() {
            deadline.check_cancel()?;
            let left = deadline.left();
            if left.is_zero() {
                return Ok(true);
            }
            if self.transport.is_readable(left.min(self.timeouts.tick)) {
                let head = self.read_any_head()?;
                match head.status() {
                    100 => return Ok(true),
                    status if is_interim(status) => {}
                    _ => self.early = Some(head),
                }
            }
        }
        Ok(false)
    }

    /// Returns, without waiting, what the server has answered since the last call, although it lacks a part of the body.
    ///
    /// # Errors
    /// Those of [`read_head`](Self::read_head).
    pub fn poll_answer(&mut self) -> Result<EarlyAnswer, HttpError> {
        let mut answer = EarlyAnswer::None;
        while self.early.is_none() {
            if !self.transport.is_readable(Duration::ZERO) {
                return Ok(answer);
            }
            answer = EarlyAnswer::Interim;
            let head = self.read_any_head()?;
            self.early = Some(head).filter(|head| !is_interim(head.status()));
        }
        Ok(EarlyAnswer::Final)
    }

    /// Sends from the front of `pending`, a part of a request's body, which it shortens; returns whether the kernel has all
    /// of it.
    ///
    /// # Errors
    /// Those of the kernel or TLS; of kind `WouldBlock` where a tick has passed.
    pub fn send_body(&mut self, pending: &mut &[u8]) -> io::Result<bool> {
        self.transport.send(pending)
    }

    /// Marks the request's body as sent: after its answer the connection can be used again.
    pub fn finish_body(&mut self) {
        self.unfinished.body = false;
    }

    /// Reads the head of the next answer; interim ones (1xx) are skipped.
    ///
    /// The body must be read to its end before the next head. A 102 (Processing, RFC 2518, section 10.1) restarts the timeout.
    ///
    /// # Errors
    /// Those of reading and understanding a head: [`HttpError::Timeout`], [`HttpError::NotHttp`],
    /// [`HttpError::HeadTooLong`], [`HttpError::Head`], [`HttpError::ClosedBeforeHead`] and others. A
    /// status that is no success is not an error here: see [`check_status`](Self::check_status).
    pub fn read_head(&mut self) -> Result<ResponseHead, HttpError> {
        let out_of_order = |why| HttpError::OutOfOrder { at: self.at().clone(), why };
        if !self.body.has_ended() {
            return Err(out_of_order("a head was asked for before the end of the body"));
        }
        let Some(&is_head) = self.unanswered.front() else {
            return Err(out_of_order("a head was asked for without a request"));
        };
        // Without the body that was announced, the server would take the next request for it.
        // A body of a later request may still be on its way.
        let lacks_body = self.unfinished.body && self.unanswered.len() == 1;
        let still_open = std::mem::replace(&mut self.persistence.reusable, false) && !lacks_body;
        let head = match self.early.take() {
            Some(head) => head,
            None => self.read_final_head()?,
        };
        let bad = |source| HttpError::Head { at: self.at().clone(), source };
        let framing = if is_head { Framing::Length(Bytes::ZERO) } else { head.framing().map_err(bad)? };
        if matches!(head.status(), 200..=299) {
            head.require_identity().map_err(bad)?;
        }
        self.unanswered.pop_front();
        self.body = Body::new(framing);
        self.persistence = Persistence {
            reusable: still_open && head.keeps_alive() && framing != Framing::UntilClose,
            has_answered: true,
            has_waited: false,
            timeout: head.text("keep-alive").and_then(timeout_of).or(self.persistence.timeout),
        };
        Ok(head)
    }

    fn read_final_head(&mut self) -> Result<ResponseHead, HttpError> {
        let mut deadline = Deadline::new(&self.cancel, self.timeouts.head);
        loop {
            let head = self.transport.read_head(&deadline)?;
            if head.status() == 102 {
                deadline = Deadline::new(&self.cancel, self.timeouts.head);
            }
            if !is_interim(head.status()) {
                return Ok(head);
            }
        }
    }

    /// Reads the next head, interim or final.
    fn read_any_head(&mut self) -> Result<ResponseHead, HttpError> {
        self.transport.read_head(&Deadline::new(&self.cancel, self.timeouts.head))
    }

    /// Reads some of the current body to the front of `buffer`.
    ///
    /// With a known length and without TLS this is one recv(2) straight into `buffer`, never past the body.
    ///
    /// # Errors
    /// [`HttpError::ClosedEarly`] where the body is cut off, [`HttpError::Chunked`],
    /// [`HttpError::Receive`] and [`HttpError::Cancelled`].
    pub fn read_body(&mut self, buffer: &mut [u8]) -> Result<Read, HttpError> {
        if self.cancel.is_cancelled() {
            return Err(HttpError::Cancelled);
        }
        if buffer.is_empty() {
            return Ok(Read::Data(0));
        }
        let read = self.body.read(&mut self.transport, buffer);
        self.persistence.reusable &= read.is_ok();
        read
    }

    /// Returns an error where `head` is no success (2xx), with the server's advice about another try.
    ///
    /// # Errors
    /// [`HttpError::RangeNotSatisfiable`] for 416, else [`HttpError::Status`].
    pub fn check_status(&self, head: &ResponseHead) -> Result<(), HttpError> {
        HttpError::of_status(self.at(), head)
    }

    /// Returns an error where `head` is no success, with the server's own words, which are read from its body.
    ///
    /// # Errors
    /// As of [`check_status`](Self::check_status).
    pub fn check_answer(&mut self, head: &ResponseHead) -> Result<(), HttpError> {
        self.check_status(head).map_err(|error| error.in_words(|| read_explanation(head, self)))
    }

    /// Reads the rest of a short body so that the connection can be used again; returns whether that worked.
    ///
    /// Such a body comes with its head; where it does not, a new connection costs less than the wait.
    pub(crate) fn discard_body(&mut self, limit: Bytes) -> bool {
        let mut scrap = [0; 4096];
        let (mut left, began) = (limit.as_usize(), Instant::now());
        while self.reusable() && began.elapsed() < FRONT_TIMEOUT {
            match self.read_body(&mut scrap) {
                Ok(Read::End) => return true,
                Ok(Read::Data(n)) if n < left => left -= n,
                _ => break,
            }
        }
        // Not read to its end, it would be taken for the next answer.
        self.retire();
        false
    }

    /// Reads the front of the current body, `limit` at most, as far as it came with its head.
    pub(crate) fn read_front(&mut self, limit: Bytes) -> Vec<u8> {
        let mut front = vec![0; limit.as_usize()];
        let (mut length, began) = (0, Instant::now());
        while began.elapsed() < FRONT_TIMEOUT
            && let Ok(Read::Data(more @ 1..)) = self.read_body(&mut front[length..])
        {
            length += more;
        }
        front.truncate(length);
        front
    }

    /// Allows no further request: what is still to be received is not wanted any more.
    pub fn retire(&mut self) {
        self.persistence.reusable = false;
    }

    /// Returns whether a further request may be sent: nothing has failed, and the server has not announced that it closes the
    /// connection. It may close an idle connection all the same.
    pub fn reusable(&self) -> bool {
        self.persistence.reusable
    }

    /// Returns whether `error`, of a single GET or HEAD, can mean that the server closed the connection while that was idle: no
    /// byte of an answer has come. The request is worth another try on a [fresh](super::Client::connect_fresh) connection.
    pub fn was_closed_while_idle(&self, error: &HttpError) -> bool {
        let is_single = self.unanswered.len() <= 1 && !self.transport.has_buffered();
        let was_idle = self.persistence.has_answered || self.persistence.has_waited;
        was_idle && is_single && error.kind() == ErrorKind::Io
    }

    /// Notes that the connection has been idle before its first request: the server may have closed it.
    pub(super) fn note_wait(&mut self) {
        self.persistence.has_waited = true;
    }

    /// Returns whether the server has answered on it before.
    pub(super) fn has_answered(&self) -> bool {
        self.persistence.has_answered
    }

    /// Returns whether nothing is in flight: a request may be sent for any URL of the origin.
    pub(super) fn is_idle(&self) -> bool {
        let all_sent = !self.unfinished.window_carrier && !self.unfinished.body && self.early.is_none();
        let all_read = self.unanswered.is_empty() && self.body.has_ended() && !self.transport.has_buffered();
        self.reusable() && all_sent && all_read
    }

    /// Returns whether the server has neither closed the idle connection nor sent anything on it.
    pub(super) fn is_silent(&mut self) -> bool {
        !self.transport.is_readable(Duration::ZERO)
    }

    /// Returns how long the server keeps the idle connection open, where it has announced that.
    pub(super) fn keep_alive(&self) -> Option<Duration> {
        self.persistence.timeout
    }

    pub(super) fn key(&self) -> &Arc<ConnectionKey> {
        &self.key
    }

    /// Returns how many requests have no answer yet.
    pub fn unanswered(&self) -> usize {
        self.unanswered.len()
    }

    /// Returns the socket, for its options and TCP_INFO; reading or writing it breaks the connection.
    pub fn socket(&self) -> &TcpStream {
        self.transport.socket()
    }

    /// Returns whether the bytes are encrypted, and so are copied through a buffer of the TLS library.
    pub fn is_tls(&self) -> bool {
        self.transport.is_tls()
    }

    /// Returns the peer's address: the server's or the proxy's.
    pub fn peer(&self) -> SocketAddr {
        self.transport.peer()
    }

    /// Returns the URL and the peer, without secrets.
    pub fn at(&self) -> &UrlAndPeer {
        self.transport.at()
    }
}

/// Returns whether a status is interim. 101 is not: it would change the protocol, which no request asks for.
fn is_interim(status: u16) -> bool {
    matches!(status, 100 | 102..=199)
}

/// Reads the timeout out of a Keep-Alive field, "timeout=5, max=100" (RFC 2068, section 19.7.1.1).
fn timeout_of(field: &str) -> Option<Duration> {
    let timeout = field.split(',').find_map(|parameter| parameter.trim().strip_prefix("timeout="))?;
    timeout.trim().parse().ok().map(Duration::from_secs)
}
