//! Routes a request by method and target; opens no file.

use longhaul_core::proto::http::{
    PARTIAL_UPLOAD, ReplyHead, RequestBody, RequestHead, TargetPath, UPLOAD_LIMIT, UPLOAD_MTIME, upload_limit,
};

use crate::metrics;
use crate::reply::Reply;
use crate::upload::MOST_RANGES;

/// The methods of a read-only server.
const READ_METHODS: &str = "GET, HEAD, OPTIONS";
/// The methods of a writable server.
const WRITE_METHODS: &str = "GET, HEAD, OPTIONS, PUT, PATCH, DELETE, MKCOL";

/// How to answer a request.
pub(crate) enum Action {
    /// With this reply.
    Reply(Reply),
    /// With the file or directory at this path.
    Read(TargetPath),
    /// With the metrics.
    Metrics,
    /// By the measurement endpoint.
    Measure,
    /// By the upload handler.
    Upload,
}

/// What is served at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Served {
    Files,
    FilesAndMetrics,
    Metrics,
}

/// Routes a request to an address that serves `served`, and accepts uploads where it is `writable`.
pub(crate) fn route(served: Served, writable: bool, request: &RequestHead) -> Action {
    match request.method() {
        "PUT" | "PATCH" | "DELETE" | "MKCOL" if writable => Action::Upload,
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
            let head = ReplyHead::new(204).with("Allow", WRITE_METHODS).with("Accept-Patch", PARTIAL_UPLOAD);
            let head = head.with(UPLOAD_LIMIT, &upload_limit(MOST_RANGES));
            Action::Reply(Reply::empty(head.with(UPLOAD_MTIME, "accepted")))
        }
        "OPTIONS" => Action::Reply(Reply::empty(ReplyHead::new(204).with("Allow", READ_METHODS))),
        _ => {
            let allowed = if writable { WRITE_METHODS } else { READ_METHODS };
            let head = ReplyHead::new(405).with("Allow", allowed);
            let why = if writable { "files are read and written here" } else { "files are only read here" };
            Action::Reply(Reply::explained(head, why))
        }
    }
}

/// Returns whether the query has an `upload` parameter, valid or not.
fn names_upload(target: &str) -> bool {
    target.split_once('?').is_some_and(|(_, query)| query.split('&').any(|pair| pair.starts_with("upload=")))
}

fn is_metrics(path: &TargetPath) -> bool {
    path.names() == [metrics::NAME] && !path.has_trailing_slash()
}
