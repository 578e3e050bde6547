//! A connection that sends requests, and reads the answers in order.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::proto::http::{Ask, Framing, HeaderField, RangeRequest, Request, ResponseHead};
use longhaul_core::units::Bytes;

use super::body::{Body, Read};
use super::config::Timeouts;
use super::error::HttpError;
use super::error_class;
use super::head_reader;
use super::idle::ConnectionKey;
use super::inbox::Inbox;
use super::safe_url::UrlAndPeer;
use super::transport::Transport;
use super::wait::Wait;
use crate::cancel::Cancel;

/// What every request on a connection has in common.
#[derive(Debug, Clone)]
pub(super) struct RequestLine {
    pub(super) target: String,
    pub(super) host: String,
    pub(super) headers: Vec<HeaderField>,
}

/// What a server said while a body was sent to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// Nothing.
    Nothing,
    /// Only that it is at work (1xx).
    Interim,
    /// The answer, which is kept for [`Connection::read_head`].
    Answer,
}

/// A connection to a server, over which one URL is asked for.
///
/// Requests may be sent while an earlier answer is still being read (pipelining); the answers come in
/// the order of the requests. The socket blocks for at most a tick at a time.
pub struct Connection {
    transport: Transport,
    key: Arc<ConnectionKey>,
    inbox: Inbox,
    request: RequestLine,
    place: UrlAndPeer,
    timeouts: Timeouts,
    cancel: Cancel,
    /// For each request without an answer: whether it was a HEAD, whose answer has no body.
    unanswered: VecDeque<bool>,
    /// The beginning of a request has been sent that carries the window, and not its end.
    begun: bool,
    /// A body was announced and has not been sent.
    body_owed: bool,
    /// An answer that came while it was being sent.
    early: Option<ResponseHead>,
    body: Body,
    reusable: bool,
    /// Whether a request has been answered on it.
    has_answered: bool,
    /// How long the server keeps it open without a request, where the last answer said so.
    keep_alive: Option<Duration>,
}

impl Connection {
    pub(super) fn new(
        transport: Transport,
        key: Arc<ConnectionKey>,
        request: RequestLine,
        place: UrlAndPeer,
        timeouts: Timeouts,
        cancel: Cancel,
    ) -> Self {
        let (inbox, unanswered, body) = (Inbox::default(), VecDeque::new(), Body::Ended);
        Self {
            transport,
            key,
            inbox,
            request,
            place,
            timeouts,
            cancel,
            unanswered,
            begun: false,
            body_owed: false,
            early: None,
            body,
            reusable: true,
            has_answered: false,
            keep_alive: None,
        }
    }

    /// Aims the following requests at another URL of the same origin.
    pub(super) fn aim(&mut self, request: RequestLine, place: UrlAndPeer) {
        self.request = request;
        self.place = place;
    }

    /// Sends a GET for the whole file or a range of it, without waiting for the answer.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_get(&mut self, range: Option<&RangeRequest>) -> Result<(), HttpError> {
        self.send(Ask::Get(range))
    }

    /// Sends a little of a request, the next GET or one that is never finished: whatever is sent carries the
    /// receive window.
    ///
    /// Servers read it when they have sent the answers to those before.
    ///
    /// # Errors
    /// [`HttpError::Send`], [`HttpError::Timeout`] and [`HttpError::Cancelled`].
    pub fn send_window_carrier(&mut self) -> Result<(), HttpError> {
        let text = match std::mem::replace(&mut self.begun, true) {
            false => format!("GET {} HTTP/1.1\r\nWindow-Carrier: ", self.request.target),
            true => "-".to_owned(),
        };
        let wait = Wait::new(&self.cancel, self.timeouts.head);
        send_all(&mut self.transport, text.as_bytes(), &self.place, &wait)
    }

    /// Lets `cancel` end this connection's waits from now on, and no longer the flag it was made with.
    pub fn set_cancel(&mut self, cancel: Cancel) {
        self.cancel = cancel;
    }

    pub(super) fn set_timeouts(&mut self, timeouts: Timeouts) {
        self.timeouts = timeouts;
    }

    /// Sends a request's head, without waiting for the answer.
    ///
    /// # Errors
    /// [`HttpError::ClosedBeforeHead`] where the server has said that it answers nothing more,
    /// [`HttpError::Send`], [`HttpError::Timeout`] and [`HttpError::Cancelled`].
    pub fn send(&mut self, ask: Ask<'_>) -> Result<(), HttpError> {
        self.require_reusable()?;
        let RequestLine { target, host, headers } = &self.request;
        let mut request = Request { target, host, headers, ask }.encode();
        if std::mem::take(&mut self.begun) {
            // Its first line is there, and a field that has no end yet.
            let line = request.windows(2).position(|two| two == b"\r\n").unwrap_or(0);
            request.drain(..line);
        }
        let wait = Wait::new(&self.cancel, self.timeouts.head);
        let sent = send_all(&mut self.transport, &request, &self.place, &wait);
        self.reusable = sent.is_ok();
        self.unanswered.push_back(ask.is_head());
        self.body_owed = ask.has_body();
        sent
    }

    /// Waits for the server to ask for the body of the request just sent (100-continue), for `limit` at most.
    ///
    /// Returns whether to send it: not where the answer has come already. A server that says nothing may not
    /// know the expectation (RFC 9110, section 10.1.1).
    ///
    /// # Errors
    /// Those of [`read_head`](Self::read_head).
    pub fn await_consent(&mut self, limit: Duration) -> Result<bool, HttpError> {
        let cancel = self.cancel.clone();
        let wait = Wait::new(&cancel, limit);
        while self.early.is_none() {
            wait.check_cancel()?;
            let left = wait.left();
            if left.is_zero() {
                return Ok(true);
            }
            if self.transport.is_readable(&mut self.inbox, left.min(self.timeouts.tick)) {
                let head = self.read_one_head()?;
                match head.status() {
                    100 => return Ok(true),
                    status if is_interim(status) => {}
                    _ => self.early = Some(head),
                }
            }
        }
        Ok(false)
    }

    /// Looks, without waiting, what the server says although it has not got all of the body.
    ///
    /// # Errors
    /// Those of [`read_head`](Self::read_head).
    pub fn listen(&mut self) -> Result<Heard, HttpError> {
        let mut heard = Heard::Nothing;
        while self.early.is_none() {
            if !self.transport.is_readable(&mut self.inbox, Duration::ZERO) {
                return Ok(heard);
            }
            heard = Heard::Interim;
            let head = self.read_one_head()?;
            self.early = Some(head).filter(|head| !is_interim(head.status()));
        }
        Ok(Heard::Answer)
    }

    /// Sends from the front of `pending`, a part of a request's body, which it shortens; returns whether everything
    /// is on its way.
    ///
    /// # Errors
    /// What the kernel or TLS says; of kind `WouldBlock` where a tick has passed.
    pub fn send_body(&mut self, pending: &mut &[u8]) -> io::Result<bool> {
        self.transport.send(pending)
    }

    /// Says that all of the request's body has been sent: after its answer the connection can be used again.
    pub fn body_sent(&mut self) {
        self.body_owed = false;
    }

    /// Reads the head of the next answer; interim ones (1xx) are skipped.
    ///
    /// The body must be read to its end before the next head. A server that says 102 (Processing, RFC 2518,
    /// section 10.1) is given more time.
    ///
    /// # Errors
    /// Those of reading and understanding a head: [`HttpError::Timeout`], [`HttpError::NotHttp`],
    /// [`HttpError::HeadTooLong`], [`HttpError::Head`], [`HttpError::ClosedBeforeHead`] and others. A
    /// status that is no success is not an error here: see [`check_status`](Self::check_status).
    pub fn read_head(&mut self) -> Result<ResponseHead, HttpError> {
        let out_of_order = |why| HttpError::OutOfOrder { place: self.place.clone(), why };
        if !self.body.has_ended() {
            return Err(out_of_order("a head was asked for before the end of the body"));
        }
        let Some(&is_head) = self.unanswered.front() else {
            return Err(out_of_order("a head was asked for without a request"));
        };
        let still_open = std::mem::replace(&mut self.reusable, false);
        // Without the body that was announced, the next request would be taken for it.
        let still_open = still_open && !self.body_owed;
        let head = match self.early.take() {
            Some(head) => head,
            None => self.read_final_head()?,
        };
        let bad = |source| HttpError::Head { place: self.place.clone(), source };
        let framing = if is_head { Framing::Length(Bytes::ZERO) } else { head.framing().map_err(bad)? };
        if matches!(head.status(), 200..=299) {
            head.require_identity().map_err(bad)?;
        }
        self.unanswered.pop_front();
        self.has_answered = true;
        self.keep_alive = head.text("keep-alive").and_then(timeout_of).or(self.keep_alive);
        self.body = Body::new(framing);
        self.reusable = still_open && head.keeps_alive() && framing != Framing::UntilClose;
        Ok(head)
    }

    fn read_final_head(&mut self) -> Result<ResponseHead, HttpError> {
        let mut wait = Wait::new(&self.cancel, self.timeouts.head);
        loop {
            let head = head_reader::read_head(&mut self.transport, &mut self.inbox, &self.place, &wait)?;
            if head.status() == 102 {
                wait = Wait::new(&self.cancel, self.timeouts.head);
            }
            if !is_interim(head.status()) {
                return Ok(head);
            }
        }
    }

    /// Reads the next head, interim or not.
    fn read_one_head(&mut self) -> Result<ResponseHead, HttpError> {
        let wait = Wait::new(&self.cancel, self.timeouts.head);
        head_reader::read_head(&mut self.transport, &mut self.inbox, &self.place, &wait)
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
        let read = self.body.read(&mut self.transport, &mut self.inbox, &self.place, buffer);
        self.reusable &= read.is_ok();
        read
    }

    /// Returns an error where `head` is no success (2xx), with what the server says about trying again.
    ///
    /// # Errors
    /// [`HttpError::RangeNotSatisfiable`] for 416, else [`HttpError::Status`].
    pub fn check_status(&self, head: &ResponseHead) -> Result<(), HttpError> {
        HttpError::of_status(&self.place, head)
    }

    /// Reads the rest of a short body so that the connection can be used again; returns whether that worked.
    ///
    /// Such a body comes with its head; where it does not, waiting would cost more than connecting anew.
    pub(crate) fn discard_body(&mut self, limit: Bytes) -> bool {
        let mut scrap = [0; 4096];
        let mut left = limit.as_usize();
        while self.reusable {
            match self.read_body(&mut scrap) {
                Ok(Read::End) => return true,
                Ok(Read::Data(n)) if n < left => left -= n,
                _ => return false,
            }
        }
        false
    }

    /// Reads the front of the current body, `limit` at most, as far as it came with its head.
    pub(crate) fn read_front(&mut self, limit: Bytes) -> Vec<u8> {
        let mut front = vec![0; limit.as_usize()];
        let mut length = 0;
        while let Ok(Read::Data(more @ 1..)) = self.read_body(&mut front[length..]) {
            length += more;
        }
        front.truncate(length);
        front
    }

    fn require_reusable(&self) -> Result<(), HttpError> {
        if self.reusable {
            return Ok(());
        }
        Err(HttpError::ClosedBeforeHead { place: self.place.clone(), got: Bytes::ZERO })
    }

    /// Allows no further request: what is still to be received is not wanted any more.
    pub fn retire(&mut self) {
        self.reusable = false;
    }

    /// Returns whether a further request may be sent: nothing has gone wrong, and the server has not
    /// announced that it will close. It may close an idle connection all the same.
    pub fn reusable(&self) -> bool {
        self.reusable
    }

    /// Returns whether `error`, of a single GET or HEAD, can mean that the server closed the connection while that was idle: no
    /// byte of an answer has come. The request is worth another try on a [fresh](super::Client::connect_fresh) connection.
    pub fn was_closed_while_idle(&self, error: &HttpError) -> bool {
        let is_first = self.unanswered.len() <= 1 && self.inbox.data().is_empty();
        self.has_answered && is_first && error.kind() == error_class::ErrorKind::Io
    }

    /// Returns whether nothing is under way: a request may be sent to any URL of the origin.
    pub(super) fn is_idle(&self) -> bool {
        let nothing_half_sent = !self.begun && !self.body_owed && self.early.is_none();
        let all_read = self.unanswered.is_empty() && self.body.has_ended() && self.inbox.data().is_empty();
        self.reusable && nothing_half_sent && all_read
    }

    /// Returns whether the server has neither closed the idle connection nor sent anything on it.
    pub(super) fn is_silent(&mut self) -> bool {
        !self.transport.is_readable(&mut self.inbox, Duration::ZERO)
    }

    /// Returns how long the server keeps the connection open without a request, where it has said so.
    pub(super) fn keep_alive(&self) -> Option<Duration> {
        self.keep_alive
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

    /// Returns whether the bytes are encrypted, and so pass through a buffer of the TLS library.
    pub fn is_tls(&self) -> bool {
        matches!(self.transport, Transport::Tls(_))
    }

    /// Returns the other end: the server's address, or the proxy's.
    pub fn peer(&self) -> SocketAddr {
        self.place.peer
    }

    /// Returns the URL and the peer, fit to be shown.
    pub fn place(&self) -> &UrlAndPeer {
        &self.place
    }
}

/// 101 would change the protocol, which nobody asked for; as a status it is then refused.
fn is_interim(status: u16) -> bool {
    matches!(status, 100 | 102..=199)
}

/// Reads the timeout out of a Keep-Alive field, "timeout=5, max=100" (RFC 2068, section 19.7.1.1).
fn timeout_of(field: &str) -> Option<Duration> {
    let timeout = field.split(',').find_map(|parameter| parameter.trim().strip_prefix("timeout="))?;
    timeout.trim().parse().ok().map(Duration::from_secs)
}

/// Sends all of `bytes`.
pub(super) fn send_all(
    transport: &mut Transport,
    bytes: &[u8],
    place: &UrlAndPeer,
    wait: &Wait<'_>,
) -> Result<(), HttpError> {
    let mut pending = bytes;
    loop {
        wait.check(place, "taking the request")?;
        match transport.send(&mut pending) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(source) => return Err(HttpError::Send { place: place.clone(), source }),
        }
    }
}
