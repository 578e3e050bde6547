//! A reply: its head and body before they are sent.

pub(crate) mod directory_entries;
pub(crate) mod directory_json;
pub(crate) mod directory_page;
pub(crate) mod etag;
pub(crate) mod file_reply;
pub(crate) mod piece_digests;
pub(crate) mod static_files;

use std::time::{Duration, SystemTime};

use longhaul_core::proto::http::{ReplyHead, reason};
use longhaul_core::units::Bytes;
use longhaul_engine::send::{Outgoing, Piece};
use serde::Serialize;

use crate::paths::disks::{Disk, DiskError};

/// What a reply keeps until it is sent: a permit, a share of a rate.
type ReplyGuard = Box<dyn Send>;

/// A reply's head and the pieces of its body.
pub(crate) struct Reply {
    head: ReplyHead,
    body: Vec<Piece>,
    guard: Option<ReplyGuard>,
    disk: Option<Disk>,
    /// The time after which a reply with this file has a strong entity tag; `None` if it has one
    /// already, or only later than [`etag::settles_in`] waits.
    settles_in: Option<Duration>,
}

/// A reply ready to be sent.
pub(crate) struct QueuedReply {
    pub(crate) outgoing: Outgoing,
    /// The length of the head.
    pub(crate) head: Bytes,
    /// The file system of the body's files.
    pub(crate) disk: Option<Disk>,
    /// The body that HEAD leaves out.
    unsent: Vec<Piece>,
    _guard: Option<ReplyGuard>,
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
        Self { head, body, guard: None, disk: None, settles_in: None }
    }

    /// Makes a reply with this text.
    pub(crate) fn document(head: ReplyHead, text: impl Into<Vec<u8>>) -> Self {
        Self::new(head, vec![Piece::Text(text.into())])
    }

    /// Makes a reply with a value as JSON, which no cache stores.
    pub(crate) fn json(value: &impl Serialize) -> Self {
        let head =
            ReplyHead::new(200).with("Content-Type", "application/json").with("Cache-Control", "no-store");
        // Strings and numbers can always be written.
        Self::document(head, serde_json::to_vec(value).unwrap_or_default())
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
        Self::document(head, text)
    }

    /// Makes a reply that asks the client to try again after so many seconds, with `why` as plain
    /// text.
    pub(crate) fn later(status: u16, seconds: u8, why: &str) -> Self {
        Self::explained(ReplyHead::new(status).with("Retry-After", &seconds.to_string()), why)
    }

    /// Makes a reply to a request whose file system does not answer: 503.
    pub(crate) fn disk_error(error: &DiskError) -> Self {
        Self::later(503, 30, &format!("{error}; try again"))
    }

    /// Keeps `guard` until the reply is sent: what bounds the number of such replies, or their
    /// rate.
    pub(crate) fn holding(self, guard: impl Send + 'static) -> Self {
        Self { guard: Some(Box::new(guard)), ..self }
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
        let (body, unsent) =
            if framing.head_only { (Vec::new(), self.body) } else { (self.body, Vec::new()) };
        let outgoing = Outgoing::new(std::iter::once(Piece::Text(head)).chain(body));
        QueuedReply { outgoing, head: length, disk: self.disk, unsent, _guard: self.guard }
    }
}

impl Drop for QueuedReply {
    /// Leaves files to a thread of their disk: to close one may wait for the file system too, as
    /// FUSE does.
    fn drop(&mut self) {
        let (outgoing, unsent) = (std::mem::take(&mut self.outgoing), std::mem::take(&mut self.unsent));
        if let Some(disk) = self.disk.take().filter(|_| outgoing.reads_files() || !unsent.is_empty()) {
            disk.close((outgoing, unsent));
        }
    }
}
