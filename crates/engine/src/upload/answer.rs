//! The answer to a request of an upload, with the server's reason.

use std::time::{Duration, Instant};

use longhaul_core::proto::http::ResponseHead;
use longhaul_core::proto::metalink::{MAX_DOCUMENT, MEDIA_TYPE};
use longhaul_core::units::Bytes;

use crate::source::http::{Connection, Read, read_explanation};

/// The longest body that is read so that the connection can be reused.
const WORTH_READING: Bytes = Bytes::kib(64);

/// The timeout for a metalink, of at most 2 MB from `longhaul serve`.
const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(60);

/// An answer to one request.
pub(super) struct UploadAnswer {
    pub(super) head: ResponseHead,
    /// The server's explanation of a refusal, as one line.
    pub(super) reason: Option<String>,
    /// The metalink with the digests of the server's bytes, if the file's digest was refused.
    pub(super) metalink: Option<Vec<u8>>,
    /// Whether the answer arrived before all of the request's body was sent.
    pub(super) is_early: bool,
}

impl UploadAnswer {
    /// Reads the body that follows `head`.
    pub(super) fn read(head: ResponseHead, connection: &mut Connection) -> Self {
        let media_type = head.text("content-type").unwrap_or_default();
        let reason = read_explanation(&head, connection);
        let has_metalink = head.status() == 422 && media_type.eq_ignore_ascii_case(MEDIA_TYPE);
        let metalink = if has_metalink { document(connection) } else { None };
        connection.discard_body(WORTH_READING);
        Self { head, reason, metalink, is_early: false }
    }
}

/// Reads the body to its end; `None` if the body is truncated, too long or too slow.
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
