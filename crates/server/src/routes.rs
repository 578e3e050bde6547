//! What a request asks for. Nothing is looked at here: that waits for a disk, and comes later.

use longhaul_core::proto::http::{ReplyHead, RequestBody, RequestHead, TargetPath};

use crate::metrics;
use crate::reply::Reply;

/// The methods that are served.
const ALLOWED: &str = "GET, HEAD, OPTIONS";

/// What is to be done about a request.
pub(crate) enum Action {
    /// Send this.
    Reply(Reply),
    /// Send what has this name.
    Read(TargetPath),
    /// Send what was measured.
    Metrics,
}

/// What is served at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Served {
    Files,
    FilesAndMetrics,
    Metrics,
}

/// Decides about a request to an address where `served` is.
pub(crate) fn route(served: Served, request: &RequestHead) -> Action {
    match request.method() {
        "GET" | "HEAD" if request.body() != RequestBody::None => {
            Action::Reply(Reply::text(400, "a request for a file carries no body"))
        }
        "GET" | "HEAD" => match TargetPath::parse(request.target()) {
            Ok(path) if served != Served::Files && is_metrics(&path) => Action::Metrics,
            Ok(_) if served == Served::Metrics => {
                Action::Reply(Reply::text(404, "nothing but /metrics is served here"))
            }
            Ok(path) => Action::Read(path),
            Err(error) => Action::Reply(Reply::text(400, &error.to_string())),
        },
        "OPTIONS" => Action::Reply(Reply::empty(ReplyHead::new(204).with("Allow", ALLOWED))),
        _ => {
            let head = ReplyHead::new(405).with("Allow", ALLOWED);
            Action::Reply(Reply::explained(head, "files are only read here"))
        }
    }
}

fn is_metrics(path: &TargetPath) -> bool {
    path.names() == [metrics::NAME] && !path.has_trailing_slash()
}
