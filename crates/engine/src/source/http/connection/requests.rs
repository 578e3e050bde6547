//! Requests, and the bodies of uploads.

use std::io;

use longhaul_core::proto::http::{Ask, RangeRequest, Request};
use longhaul_core::units::Bytes;

use super::{Connection, RequestLine, Unanswered};
use crate::connect::Deadline;
use crate::source::http::error::HttpError;

impl Connection {
    /// Sends a GET for the whole file or a range of it, without waiting for the answer.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_get(&mut self, range: Option<&RangeRequest>) -> Result<(), HttpError> {
        self.send(Ask::Get(range))
    }

    /// Sends a request's head, without waiting for the answer.
    ///
    /// # Errors
    /// [`HttpError::ClosedBeforeHead`] where the server has announced that it closes the connection,
    /// [`HttpError::Send`], [`HttpError::Timeout`] and [`HttpError::Cancelled`].
    pub fn send(&mut self, ask: Ask<'_>) -> Result<(), HttpError> {
        if !self.reusable() {
            return Err(HttpError::ClosedBeforeHead(self.at().clone(), Bytes::ZERO));
        }
        let RequestLine { target, host, headers, digest, .. } = &self.request;
        let login = digest.as_ref().and_then(|digest| digest.field(ask.method(), target));
        let headers = &headers.iter().cloned().chain(login).collect::<Vec<_>>();
        let request = Request { target, host, headers, ask }.encode();
        let deadline = Deadline::new(&self.cancel, self.timeouts.head);
        let sent = self.transport.send_all(&request, &deadline);
        self.persistence.reusable = sent.is_ok();
        self.in_flight.unanswered.push_back(Unanswered { is_head: ask.is_head(), is_safe: ask.is_safe() });
        self.in_flight.has_unsent_body = ask.has_body();
        sent
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
        self.in_flight.has_unsent_body = false;
    }
}
