//! A connection that asks for a file, or parts of it, and reads the answers in order.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};

use longhaul_core::proto::http::{Framing, GetRequest, HeaderField, RangeRequest, ResponseHead};
use longhaul_core::units::Bytes;

use super::body::{Body, Read};
use super::config::Timeouts;
use super::error::HttpError;
use super::head_reader;
use super::inbox::Inbox;
use super::place::Place;
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

/// A connection to a server, over which one URL is asked for.
///
/// Requests may be sent while an earlier answer is still being read (pipelining); the answers come in
/// the order of the requests. The socket blocks for at most a tick at a time.
pub struct Connection {
    transport: Transport,
    inbox: Inbox,
    request: RequestLine,
    place: Place,
    timeouts: Timeouts,
    cancel: Cancel,
    unanswered: usize,
    body: Body,
    reusable: bool,
}

impl Connection {
    pub(super) fn new(
        transport: Transport,
        request: RequestLine,
        place: Place,
        timeouts: Timeouts,
        cancel: Cancel,
    ) -> Self {
        let (inbox, body) = (Inbox::default(), Body::Ended);
        Self { transport, inbox, request, place, timeouts, cancel, unanswered: 0, body, reusable: true }
    }

    /// Aims the following requests at another URL of the same origin.
    pub(super) fn aim(&mut self, request: RequestLine, place: Place) {
        self.request = request;
        self.place = place;
    }

    /// Sends a GET for the whole file or a range of it, without waiting for the answer.
    ///
    /// # Errors
    /// [`HttpError::ClosedBeforeHead`] where the server has said that it answers nothing more,
    /// [`HttpError::Send`], [`HttpError::Timeout`] and [`HttpError::Cancelled`].
    pub fn send_get(&mut self, range: Option<&RangeRequest>) -> Result<(), HttpError> {
        self.require_reusable()?;
        let RequestLine { target, host, headers } = &self.request;
        let request = GetRequest { target, host, headers, range }.encode();
        let wait = Wait::new(&self.cancel, self.timeouts.head);
        let sent = send_all(&mut self.transport, &request, &self.place, &wait);
        self.reusable = sent.is_ok();
        self.unanswered += 1;
        sent
    }

    /// Reads the head of the next answer; interim ones (1xx) are skipped.
    ///
    /// The body must be read to its end before the next head.
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
        if self.unanswered == 0 {
            return Err(out_of_order("a head was asked for without a request"));
        }
        let still_open = std::mem::replace(&mut self.reusable, false);
        let wait = Wait::new(&self.cancel, self.timeouts.head);
        let head = loop {
            let head = head_reader::read_head(&mut self.transport, &mut self.inbox, &self.place, &wait)?;
            // 101 would change the protocol, which nobody asked for; as a status it is then refused.
            if !matches!(head.status(), 100 | 102..=199) {
                break head;
            }
        };
        let bad = |source| HttpError::Head { place: self.place.clone(), source };
        let framing = head.framing().map_err(bad)?;
        if matches!(head.status(), 200..=299) {
            head.require_identity().map_err(bad)?;
        }
        self.unanswered -= 1;
        self.body = Body::new(framing);
        self.reusable = still_open && head.keeps_alive() && framing != Framing::UntilClose;
        Ok(head)
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
    pub(super) fn discard_body(&mut self, limit: Bytes) -> bool {
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

    fn require_reusable(&self) -> Result<(), HttpError> {
        if self.reusable {
            return Ok(());
        }
        Err(HttpError::ClosedBeforeHead { place: self.place.clone(), got: Bytes::ZERO })
    }

    /// Returns whether a further request may be sent: nothing has gone wrong, and the server has not
    /// announced that it will close. It may close an idle connection all the same.
    pub fn reusable(&self) -> bool {
        self.reusable
    }

    /// Returns how many requests have no answer yet.
    pub fn unanswered(&self) -> usize {
        self.unanswered
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
    pub fn place(&self) -> &Place {
        &self.place
    }
}

/// Sends all of `bytes`.
pub(super) fn send_all(
    transport: &mut Transport,
    bytes: &[u8],
    place: &Place,
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
