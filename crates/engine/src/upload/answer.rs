//! An answer to a request of an upload, with the server's reason.

use std::time::{Duration, Instant};

use longhaul_core::proto::http::ResponseHead;
use longhaul_core::proto::metalink::{MAX_DOCUMENT, MEDIA_TYPE};
use longhaul_core::units::Bytes;

use crate::source::http::{Connection, Read};

/// The most of an answer's body that is read so that the connection can be used again.
const WORTH_READING: Bytes = Bytes::kib(64);
/// The most of a server's reason that is shown.
const SHOWN: Bytes = Bytes::new(256);

/// How long a metalink, of at most 2 MB from `longhaul serve`, may take to arrive.
const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(60);

/// An answer to one request.
pub(super) struct UploadAnswer {
    pub(super) head: ResponseHead,
    /// The server's reason for a refusal, escaped, where the body is plain text.
    pub(super) reason: Option<String>,
    /// The metalink with the digests of what the server has, where it has refused the file's digest.
    pub(super) metalink: Option<Vec<u8>>,
    /// Whether it was received before all of the request's body was sent.
    pub(super) is_early: bool,
}

impl UploadAnswer {
    /// Reads the body that follows `head`.
    pub(super) fn read(head: ResponseHead, connection: &mut Connection) -> Self {
        let media_type = head.text("content-type").unwrap_or_default();
        let plain = media_type.get(..10).is_some_and(|start| start.eq_ignore_ascii_case("text/plain"));
        let front = match head.status() {
            400.. if plain => connection.read_front(SHOWN),
            _ => Vec::new(),
        };
        let has_metalink = head.status() == 422 && media_type.eq_ignore_ascii_case(MEDIA_TYPE);
        let metalink = if has_metalink { document(connection) } else { None };
        connection.discard_body(WORTH_READING);
        let reason = reason(&head, &String::from_utf8_lossy(&front));
        Self { head, reason, metalink, is_early: false }
    }
}

/// Reads the body to its end; `None` where it breaks off, is too long or takes too long.
fn document(connection: &mut Connection) -> Option<Vec<u8>> {
    let (began, mut text, mut buffer) = (Instant::now(), Vec::new(), vec![0; 64 << 10]);
    while text.len() <= MAX_DOCUMENT.as_usize() && began.elapsed() < DOCUMENT_TIMEOUT {
        match connection.read_body(&mut buffer).ok()? {
            Read::Data(n) => text.extend_from_slice(&buffer[..n]),
            Read::Idle => {}
            Read::End => return Some(text),
        }
    }
    None
}

/// Makes one line of a text, without the status where the text repeats it.
fn reason(head: &ResponseHead, text: &str) -> Option<String> {
    let text = text.trim();
    let status = format!("{} {}: ", head.status(), head.reason());
    let text = text.strip_prefix(&status).unwrap_or(text);
    let mut line = String::new();
    for c in text.chars() {
        match c {
            '\'' | '"' => line.push(c),
            _ => line.extend(c.escape_debug()),
        }
    }
    Some(line).filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_harmless_line() {
        let head = ResponseHead::parse(b"HTTP/1.1 507 Full\r\n\r\n").unwrap();
        for (text, shown) in [
            ("507 Full: the server's disk\n", Some("the server's disk")),
            ("no room\r\n\x1b[31mred\u{202e}", Some("no room\\r\\n\\u{1b}[31mred\\u{202e}")),
            (" \n", None),
        ] {
            assert_eq!(reason(&head, text).as_deref(), shown);
        }
    }
}
