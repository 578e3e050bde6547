//! The answer to a request of an upload, with the server's reason.

use std::time::Duration;

use longhaul_core::proto::http::ResponseHead;
use longhaul_core::proto::metalink::{MAX_DOCUMENT, MEDIA_TYPE};

use crate::source::http::{Connection, read_explanation};

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
        let read = has_metalink.then(|| connection.read_all(MAX_DOCUMENT, DOCUMENT_TIMEOUT));
        let metalink = read.and_then(Result::ok).filter(|(_, is_whole)| *is_whole).map(|(text, _)| text);
        connection.discard_body();
        Self { head, reason, metalink, is_early: false }
    }
}
