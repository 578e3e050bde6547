//! A reply: its head and body before they are sent.

use std::time::SystemTime;

use longhaul_core::proto::http::{ReplyHead, reason};
use longhaul_core::units::Bytes;
use longhaul_engine::send::{Outgoing, Piece};

use crate::disks::Disk;

/// What a reply keeps until it is sent: a permit, a share of a rate.
pub(crate) type Held = Box<dyn Send>;

/// A reply's head and the pieces of its body.
pub(crate) struct Reply {
    head: ReplyHead,
    body: Vec<Piece>,
    held: Option<Held>,
    disk: Option<Disk>,
}

/// A reply ready to be sent.
pub(crate) struct QueuedReply {
    pub(crate) outgoing: Outgoing,
    /// The length of the head.
    pub(crate) head: Bytes,
    pub(crate) held: Option<Held>,
    /// The file system of the body's files.
    pub(crate) disk: Option<Disk>,
}

/// The framing of a reply by its connection.
#[derive(Clone, Copy)]
pub(crate) struct ReplyFraming {
    /// The request was HEAD: the head is that of GET, and no body is sent.
    pub(crate) head_only: bool,
    /// Another request may follow.
    pub(crate) keep_alive: bool,
}

impl Reply {
    /// Makes a reply of a head and a body; [`Reply::queue`] adds Content-Length.
    pub(crate) fn new(head: ReplyHead, body: Vec<Piece>) -> Self {
        Self { head, body, held: None, disk: None }
    }

    /// Makes a reply without a body.
    pub(crate) fn empty(head: ReplyHead) -> Self {
        Self::new(head, Vec::new())
    }

    /// Makes a reply with `why` as plain text.
    pub(crate) fn text(status: u16, why: &str) -> Self {
        Self::explained(ReplyHead::new(status), why)
    }

    /// Makes a reply with `why` as plain text, from a head with further fields.
    pub(crate) fn explained(head: ReplyHead, why: &str) -> Self {
        let text = format!("{} {}: {why}\n", head.status(), reason(head.status()));
        let head = head.with("Content-Type", "text/plain; charset=utf-8");
        Self::new(head, vec![Piece::Text(text.into_bytes())])
    }

    /// Keeps `held` until the reply is sent: what bounds the number of such replies, or their rate.
    pub(crate) fn holding(self, held: impl Send + 'static) -> Self {
        Self { held: Some(Box::new(held)), ..self }
    }

    /// Reads the body's files from this file system.
    pub(crate) fn on(self, disk: Disk) -> Self {
        Self { disk: Some(disk), ..self }
    }

    /// Returns the status code.
    pub(crate) fn status(&self) -> u16 {
        self.head.status()
    }

    /// Returns the length of the body.
    pub(crate) fn length(&self) -> Bytes {
        self.body.iter().fold(Bytes::ZERO, |sum, piece| sum + piece.length())
    }

    #[cfg(test)]
    pub(crate) fn into_body(self) -> Vec<Piece> {
        self.body
    }

    /// Adds a field to the head.
    pub(crate) fn add(&mut self, name: &str, value: &str) {
        self.head.add(name, value);
    }

    /// Completes the head and queues everything.
    pub(crate) fn queue(self, framing: ReplyFraming, now: SystemTime) -> QueuedReply {
        let length = self.length();
        let mut head = self.head;
        head.add("Date", &httpdate::fmt_http_date(now));
        head.add("Server", "longhaul");
        // 204 and 304 have no body (RFC 9110, section 8.6).
        if !matches!(head.status(), 204 | 304) {
            head.add("Content-Length", &length.get().to_string());
        }
        // HTTP/1.0 clients need the field; for HTTP/1.1 it repeats the default.
        head.add("Connection", if framing.keep_alive { "keep-alive" } else { "close" });
        let head = head.encode();
        let length = Bytes::new(head.len() as u64);
        let body = if framing.head_only { Vec::new() } else { self.body };
        let outgoing = Outgoing::new(std::iter::once(Piece::Text(head)).chain(body));
        QueuedReply { outgoing, head: length, held: self.held, disk: self.disk }
    }
}
