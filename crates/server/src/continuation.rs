//! Which requests are answered while the server finishes: those that complete a transfer under way.

use std::time::Duration;

use longhaul_core::proto::http::{ReplyHead, RequestHead};

use crate::reply::Reply;

/// How long a finishing server waits for the next request of a transfer: as long as an upload stays active between its ranges.
pub(crate) const NEXT_REQUEST: Duration = Duration::from_secs(3);

/// What the next request on a connection may continue once the server finishes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Continuation {
    /// Nothing: the connection closes.
    #[default]
    Nothing,
    /// The upload, or the file fetched in ranges, of this target.
    Target(String),
    /// Any upload that has begun: the connection was made while one was in progress.
    AnyUpload,
}

impl Continuation {
    /// Returns what may follow `request`: further ranges of a file, or of an upload that it does not complete.
    pub(crate) fn after(request: &RequestHead) -> Self {
        let is_partial = match request.method() {
            "GET" => request.header("range").is_some(),
            "HEAD" => names_upload(request),
            "PATCH" => request.header("upload-complete").is_some_and(|complete| complete.trim() == "?0"),
            _ => false,
        };
        if is_partial { Self::Target(request.target().to_owned()) } else { Self::Nothing }
    }

    /// Returns whether a finishing server answers `request`.
    pub(crate) fn admits(&self, request: &RequestHead) -> bool {
        match self {
            Self::Nothing => false,
            Self::Target(target) => request.target() == target,
            Self::AnyUpload => match request.method() {
                "HEAD" => names_upload(request),
                "PATCH" => {
                    let begins = request.header("upload-offset").is_some_and(|offset| offset.trim() == "0");
                    !begins || request.header("content-range").is_some()
                }
                _ => false,
            },
        }
    }
}

/// Returns the reply to a request that a finishing server does not answer.
pub(crate) fn refusal() -> Reply {
    let head = ReplyHead::new(503).with("Retry-After", "5");
    Reply::explained(head, "the server is ending; try again")
}

/// Returns whether a request is about a resumable upload.
fn names_upload(request: &RequestHead) -> bool {
    let query = request.target().split_once('?').map(|(_, query)| query);
    query.is_some_and(|query| query.split('&').any(|field| field.starts_with("upload=")))
}
