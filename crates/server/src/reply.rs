//! A reply before it is sent.

use std::time::SystemTime;

use longhaul_core::proto::http::{ReplyHead, reason};
use longhaul_core::units::Bytes;
use longhaul_engine::send::{Outgoing, Piece};
use tokio::sync::OwnedSemaphorePermit;

/// A head and the pieces of its body.
pub(crate) struct Reply {
    head: ReplyHead,
    body: Vec<Piece>,
    held: Option<OwnedSemaphorePermit>,
}

/// A reply ready to be sent.
pub(crate) struct Queued {
    pub(crate) outgoing: Outgoing,
    /// How much of it is the head.
    pub(crate) head: Bytes,
    /// What the reply occupies until it is sent.
    pub(crate) held: Option<OwnedSemaphorePermit>,
}

/// What the connection makes of a reply.
#[derive(Clone, Copy)]
pub(crate) struct Framing {
    /// The request was HEAD: the head goes as for GET, the body stays here.
    pub(crate) head_only: bool,
    /// Another request may follow.
    pub(crate) keep_alive: bool,
}

impl Reply {
    /// Makes a reply of a head and a body; its length is added when it is sent.
    pub(crate) fn new(head: ReplyHead, body: Vec<Piece>) -> Self {
        Self { head, body, held: None }
    }

    /// Makes a reply without a body.
    pub(crate) fn empty(head: ReplyHead) -> Self {
        Self::new(head, Vec::new())
    }

    /// Makes a reply that says in plain text what went wrong.
    pub(crate) fn text(status: u16, why: &str) -> Self {
        Self::explained(ReplyHead::new(status), why)
    }

    /// Makes the same from a head that already says more than its status.
    pub(crate) fn explained(head: ReplyHead, why: &str) -> Self {
        let text = format!("{} {}: {why}\n", head.status(), reason(head.status()));
        let head = head.with("Content-Type", "text/plain; charset=utf-8");
        Self::new(head, vec![Piece::Text(text.into_bytes())])
    }

    /// Keeps `permit` until the reply is sent, for its text takes much memory.
    pub(crate) fn holding(self, permit: OwnedSemaphorePermit) -> Self {
        Self { held: Some(permit), ..self }
    }

    /// Returns the status code.
    pub(crate) fn status(&self) -> u16 {
        self.head.status()
    }

    /// Returns how long the body is.
    pub(crate) fn length(&self) -> Bytes {
        self.body.iter().fold(Bytes::ZERO, |sum, piece| sum + piece.length())
    }

    /// Adds a line to the head.
    pub(crate) fn add(&mut self, name: &str, value: &str) {
        self.head.add(name, value);
    }

    /// Completes the head and queues everything.
    pub(crate) fn queue(self, framing: Framing, now: SystemTime) -> Queued {
        let length = self.length();
        let mut head = self.head;
        head.add("Date", &httpdate::fmt_http_date(now));
        head.add("Server", "longhaul");
        // 204 and 304 never have a body, and so no length (RFC 9110, section 8.6).
        if !matches!(head.status(), 204 | 304) {
            head.add("Content-Length", &length.get().to_string());
        }
        // Said to 1.1 clients too where it is their default: clients of 1.0 must be told.
        head.add("Connection", if framing.keep_alive { "keep-alive" } else { "close" });
        let head = head.encode();
        let length = Bytes::new(head.len() as u64);
        let body = if framing.head_only { Vec::new() } else { self.body };
        let outgoing = Outgoing::new(std::iter::once(Piece::Text(head)).chain(body));
        Queued { outgoing, head: length, held: self.held }
    }
}
