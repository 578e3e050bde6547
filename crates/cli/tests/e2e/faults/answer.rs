//! Responses of the scripted server: head, body, and injected faults.

use std::borrow::Cow;
use std::fmt::Display;

use crate::faults::content::{PAGE, content};
use crate::faults::fault::{Fault, Framing, Page, RangeFault};
use crate::faults::schedule::{Build, Labels, Traits};
use crate::support::http::HttpRequest;

pub(crate) struct Answer {
    pub(crate) head: String,
    pub(crate) body: Cow<'static, [u8]>,
    pub(crate) chunked: bool,
    pub(crate) closes: bool,
    pub(crate) breaks: Option<Fault>, // The fault of its body, if it has one
    pub(crate) build: Option<(usize, u64)>, // The build and its first byte, if the response truthfully is of a build
}

impl Answer {
    /// A response of these head lines, delimited by its length.
    fn new(head: &str, body: Cow<'static, [u8]>) -> Self {
        let head = format!("HTTP/1.1 {head}Content-Length: {}\r\n\r\n", body.len());
        Self { head, body, chunked: false, closes: false, breaks: None, build: None }
    }

    fn plain(status: &str, fields: &str) -> Self {
        Self::new(&format!("{status}\r\n{fields}"), Cow::Borrowed(&[]))
    }

    pub(crate) fn redirect(to: &str) -> Self {
        Self::plain("302 Found", &format!("Location: {to}\r\n"))
    }

    pub(crate) fn status(code: u16, retry_after: Option<u32>) -> Self {
        let wait = retry_after.map_or_else(String::new, |wait| format!("Retry-After: {wait}\r\n"));
        Self::plain(&format!("{code} No"), &wait)
    }

    /// A login page of `len` bytes with status 200.
    pub(crate) fn page(framing: Framing, len: usize) -> Self {
        let mut body = PAGE.to_vec();
        body.resize(len.max(1), b' ');
        Self::whole("Content-Type: text/html\r\n", Cow::Owned(body), framing)
    }

    fn whole(fields: &str, body: Cow<'static, [u8]>, framing: Framing) -> Self {
        let answer = Self::new(&format!("200 OK\r\n{fields}"), body);
        match framing {
            Framing::Length => answer,
            Framing::Chunked => answer.in_chunks(),
            Framing::UntilClose => {
                let head = format!("HTTP/1.1 200 OK\r\n{fields}Connection: close\r\n\r\n");
                Self { head, closes: true, ..answer }
            }
        }
    }

    fn in_chunks(mut self) -> Self {
        let length = format!("Content-Length: {}\r\n", self.body.len());
        self.head = self.head.replace(&length, "Transfer-Encoding: chunked\r\n");
        self.chunked = self.head.contains("chunked");
        self
    }
}

pub(crate) struct ServedFile {
    pub(crate) number: usize,
    pub(crate) build: Build,
    pub(crate) labels: Labels,
    pub(crate) traits: Traits,
}

impl ServedFile {
    fn label(&self) -> String {
        let own = self.number;
        match self.labels {
            Labels::OwnTags => format!("ETag: \"build-{own}\"\r\n"),
            Labels::OwnDates => format!(
                "Last-Modified: Mon, 05 Jan 2026 00:00:0{own} GMT\r\nDate: Tue, 06 Jan 2026 00:00:00 GMT\r\n"
            ),
            Labels::OwnWeakTags => format!("ETag: W/\"build-{own}\"\r\n"),
            Labels::SharedWeakTag => "ETag: W/\"some\"\r\n".to_owned(),
            Labels::SharedFreshDate => {
                let date = "Tue, 06 Jan 2026 00:00:00 GMT";
                format!("Last-Modified: {date}\r\nDate: {date}\r\n")
            }
            Labels::Nothing => String::new(),
            Labels::LyingTag => "ETag: \"always\"\r\n".to_owned(),
        }
    }

    /// Returns whether If-Range permits a partial response: a strong tag or a date of this build.
    fn is_named(&self, if_range: &str) -> bool {
        let names = |line: &str| line.ends_with(&format!(": {if_range}")) && !line.starts_with("Date");
        !if_range.starts_with("W/") && self.label().lines().any(names)
    }

    fn requested(&self, request: &HttpRequest) -> Option<(u64, u64)> {
        request.range(self.build.len).map(|(start, end)| (start as u64, end as u64))
    }

    /// Returns the response of a server with these traits and without faults.
    fn sound(&self, request: &HttpRequest) -> Answer {
        let len = self.build.len as u64;
        let named = request.field("if-range").is_none_or(|tag| !self.traits.if_range || self.is_named(tag));
        match self.requested(request).filter(|_| self.traits.ranges && named) {
            Some((start, _)) if start >= len => {
                Answer::plain("416 No", &format!("Content-Range: bytes */{len}\r\n{}", self.label()))
            }
            Some((start, end)) => self.part((start, end), &content_range(start, end, len)),
            None => self.all(),
        }
    }

    fn all(&self) -> Answer {
        let fields = format!("Content-Type: application/octet-stream\r\n{}", self.label());
        let answer = Answer::whole(&fields, Cow::Borrowed(self.build.bytes()), self.traits.framing);
        Answer { build: Some((self.number, 0)), ..answer }
    }

    fn part(&self, (start, end): (u64, u64), content_range: &str) -> Answer {
        let label = if self.traits.bare_206 { String::new() } else { self.label() };
        let body = &self.build.bytes()[start as usize..end as usize];
        let head = format!("206 Part\r\nContent-Type: application/octet-stream\r\n{content_range}{label}");
        Answer { build: Some((self.number, start)), ..Answer::new(&head, Cow::Borrowed(body)) }
    }

    fn with_range(&self, request: &HttpRequest, fault: RangeFault) -> Answer {
        let len = self.build.len as u64;
        let (start, end) = self.requested(request).filter(|(start, _)| *start < len).unwrap_or((0, len));
        let truly = |start, end| self.part((start, end), &content_range(start, end, len));
        let labelled =
            |content_range: String| Answer { build: None, ..self.part((start, end), &content_range) };
        match fault {
            RangeFault::Later(by) => truly((start + by).min(end - 1), end),
            RangeFault::Earlier(by) => truly(start.saturating_sub(by), end),
            RangeFault::Longer(by) => truly(start, (end + by).min(len)),
            RangeFault::Shorter => truly(start, start + (end - start).div_ceil(2)),
            RangeFault::Total(by) => {
                let mut total = len.saturating_add_signed(by);
                // This part would be the whole of a file with that size.
                if total <= end {
                    total = len + 1;
                }
                labelled(content_range(start, end, total))
            }
            RangeFault::NoTotal => {
                let part = labelled(content_range(start, end, "*"));
                Answer { build: Some((self.number, start)), ..part }
            }
            RangeFault::Garbage => labelled("Content-Range: bytes 12-3/x\r\n".to_owned()),
            RangeFault::Missing => labelled(String::new()),
        }
    }

    pub(crate) fn answer(&self, request: &HttpRequest, fault: Option<Fault>) -> Answer {
        let mut answer = self.sound(request);
        answer.closes |= self.traits.closes_each;
        match fault {
            None | Some(Fault::HangUp | Fault::Stray(_)) => {}
            Some(Fault::Page(Page { framing, as_long_as_the_file, .. })) => {
                return Answer::page(framing, if as_long_as_the_file { self.build.len } else { PAGE.len() });
            }
            Some(Fault::Status(code, retry_after)) => return Answer::status(code, retry_after),
            Some(Fault::Range(RangeFault::Shorter | RangeFault::NoTotal))
                if self.requested(request).is_none() => {}
            Some(Fault::Range(fault)) => {
                // A 206 to a request without a range is also a response, although a wrong one.
                return self.with_range(request, fault);
            }
            Some(Fault::NotSatisfiable(difference)) => {
                let size = difference.map(|by| (self.build.len as u64).saturating_add_signed(by));
                let field =
                    size.map_or_else(String::new, |size| format!("Content-Range: bytes */{size}\r\n"));
                return Answer::plain("416 No", &field);
            }
            Some(Fault::Close(_) | Fault::Reset(_) | Fault::Stall(..) | Fault::Drip(..)) => {
                answer.breaks = fault
            }
            Some(Fault::Extra(more)) => {
                let mut body = answer.body.into_owned();
                // Chunked coding delimits the body: extra bytes follow the last chunk.
                if !answer.chunked {
                    body.extend(&content(2)[..more]);
                }
                answer.body = Cow::Owned(body);
            }
            Some(Fault::GarbageHead(variant)) => {
                answer.build = None;
                answer.head = match variant {
                    0 => "\0\x16\x03\x01garbage\r\n\r\n".to_owned(),
                    1 => "HTTP/1.1 2x6 Part\r\n\r\n".to_owned(),
                    2 => format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "y".repeat(300_000)),
                    3 => "HTTP/1.1 206 Part\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n".to_owned(),
                    _ => "SSH-2.0-server\r\n".to_owned(),
                };
                answer.closes = true;
            }
            Some(Fault::WholeFile) => answer = self.all(),
            Some(Fault::ChunkedPart) => answer = answer.in_chunks(),
        }
        answer
    }
}

fn content_range(start: u64, end: u64, total: impl Display) -> String {
    format!("Content-Range: bytes {start}-{}/{total}\r\n", end - 1)
}
