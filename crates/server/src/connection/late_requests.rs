//! Which requests are answered while the server finishes: those that complete a transfer under way.

use std::time::Duration;

use longhaul_core::proto::http::RequestHead;

use crate::connection::targets::names_upload;
use crate::reply::Reply;

/// How long a finishing server waits for the next request of a transfer: as long as an upload stays
/// active between its ranges.
pub(crate) const NEXT_REQUEST: Duration = Duration::from_secs(3);

/// Which requests of a connection are answered once the server finishes.
pub(crate) struct LateRequests {
    /// Whether the server was finishing before the request arrived.
    pub(crate) is_late: bool,
    continuation: Continuation,
}

impl LateRequests {
    /// Begins with a connection, which a finishing server has accepted for an upload in progress.
    pub(crate) fn new(is_late: bool) -> Self {
        Self { is_late, continuation: if is_late { Continuation::AnyUpload } else { Continuation::Nothing } }
    }

    /// Returns whether a request is answered; records what may follow it.
    pub(crate) fn admit(&mut self, request: &RequestHead) -> bool {
        let is_admitted = !self.is_late || self.continuation.admits(request);
        self.continuation = if is_admitted { Continuation::after(request) } else { Continuation::Nothing };
        is_admitted
    }

    /// Records that nothing follows: a request was refused.
    pub(crate) fn end(&mut self) {
        self.continuation = Continuation::Nothing;
    }

    /// Returns whether a request may follow once the server finishes.
    pub(crate) fn may_continue(&self) -> bool {
        self.continuation != Continuation::Nothing
    }
}

/// What the next request on a connection may continue once the server finishes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Continuation {
    /// Nothing: the connection closes.
    #[default]
    Nothing,
    /// The upload, or the file fetched in ranges, of this target.
    Target(String),
    /// Any upload that has begun: the connection was made while one was in progress.
    AnyUpload,
}

impl Continuation {
    /// Returns what may follow `request`: further ranges of a file, or of an upload that it does
    /// not complete.
    fn after(request: &RequestHead) -> Self {
        let is_partial = match request.method() {
            "GET" => request.header("range").is_some(),
            "HEAD" => names_upload(request.target()),
            "PATCH" => request.header("upload-complete").is_some_and(|complete| complete.trim() == "?0"),
            _ => false,
        };
        if is_partial { Self::Target(request.target().to_owned()) } else { Self::Nothing }
    }

    /// Returns whether a finishing server answers `request`.
    fn admits(&self, request: &RequestHead) -> bool {
        match self {
            Self::Nothing => false,
            Self::Target(target) => request.target() == target,
            Self::AnyUpload => match request.method() {
                "HEAD" => names_upload(request.target()),
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
    Reply::later(503, 5, "the server is ending; try again")
}
