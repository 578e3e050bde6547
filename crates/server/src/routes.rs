//! What a request asks for. Nothing is looked at here: that waits for a disk, and comes later.

use longhaul_core::proto::http::{PARTIAL_UPLOAD, ReplyHead, RequestBody, RequestHead, TargetPath};

use crate::metrics;
use crate::reply::Reply;

/// The methods that are served.
const ALLOWED: &str = "GET, HEAD, OPTIONS";
/// The same where files are taken too.
const ALLOWED_TO_WRITE: &str = "GET, HEAD, OPTIONS, PUT, PATCH, DELETE";

/// What is to be done about a request.
pub(crate) enum Action {
    /// Send this.
    Reply(Reply),
    /// Send what has this name.
    Read(TargetPath),
    /// Send what was measured.
    Metrics,
    /// Take what comes, or say how far that is.
    Upload,
}

/// What is served at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Served {
    Files,
    FilesAndMetrics,
    Metrics,
}

/// Decides about a request to an address where `served` is, and files are taken too where it is `writable`.
pub(crate) fn route(served: Served, writable: bool, request: &RequestHead) -> Action {
    match request.method() {
        "PUT" | "PATCH" | "DELETE" if writable => Action::Upload,
        "HEAD" if writable && names_upload(request.target()) => Action::Upload,
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
        "OPTIONS" if writable => {
            let head = ReplyHead::new(204).with("Allow", ALLOWED_TO_WRITE);
            Action::Reply(Reply::empty(head.with("Accept-Patch", PARTIAL_UPLOAD)))
        }
        "OPTIONS" => Action::Reply(Reply::empty(ReplyHead::new(204).with("Allow", ALLOWED))),
        _ => {
            let allowed = if writable { ALLOWED_TO_WRITE } else { ALLOWED };
            let head = ReplyHead::new(405).with("Allow", allowed);
            let why = if writable { "files are read and written here" } else { "files are only read here" };
            Action::Reply(Reply::explained(head, why))
        }
    }
}

/// Returns whether the query names an upload, well or badly.
fn names_upload(target: &str) -> bool {
    target.split_once('?').is_some_and(|(_, query)| query.split('&').any(|pair| pair.starts_with("upload=")))
}

fn is_metrics(path: &TargetPath) -> bool {
    path.names() == [metrics::NAME] && !path.has_trailing_slash()
}
