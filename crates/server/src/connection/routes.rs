//! Routes a request by method and target; opens no file.

use longhaul_core::proto::http::{
    PARTIAL_UPLOAD, ReplyHead, RequestBody, RequestHead, TargetError, TargetPath, UPLOAD_LIMIT, UPLOAD_MTIME,
    upload_limit,
};

use crate::access::Grant;
use crate::admission::shares::Requester;
use crate::connection::targets::{is_measurement, lists_uploads, names_upload};
use crate::context::Services;
use crate::reply::Reply;
use crate::stats::metrics;
use crate::upload::{MAX_UPLOAD_RANGES, UploadCommand};

/// The methods of a read-only server.
const READ_METHODS: &str = "GET, HEAD, OPTIONS";
/// The methods of a writable server.
const WRITE_METHODS: &str = "GET, HEAD, OPTIONS, PUT, PATCH, DELETE, MKCOL";

/// How to answer a request.
pub(crate) enum Action {
    /// With this reply.
    Reply(Reply),
    /// With a file or directory.
    Read(ReadRequest),
    /// With the metrics.
    Metrics,
    /// By the measurement endpoint.
    Measure(RequestHead),
    /// By the upload handler.
    Upload(Box<UploadCommand>),
}

/// A GET or HEAD of a file or directory.
pub(crate) struct ReadRequest {
    pub(crate) path: TargetPath,
    pub(crate) head: RequestHead,
    pub(crate) requester: Requester,
}

/// What is served at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Served {
    Files,
    Metrics,
}

/// Routes an allowed request for `path`.
pub(crate) fn route(
    services: &Services,
    request: RequestHead,
    path: Result<TargetPath, TargetError>,
    grant: Grant,
) -> Action {
    let (served, writable, measures) =
        (services.served, services.uploads.is_some(), services.measurement.is_some());
    match request.method() {
        _ if measures && is_measurement(&request) => Action::Measure(request),
        "PUT" | "PATCH" | "DELETE" | "MKCOL" if writable => upload(request, path, grant),
        "HEAD" if writable && names_upload(request.target()) => upload(request, path, grant),
        "GET" if writable && lists_uploads(&request) => upload(request, path, grant),
        "GET" | "HEAD" if request.body() != RequestBody::None => {
            Action::Reply(Reply::text(400, "a request for a file carries no body"))
        }
        "GET" | "HEAD" => match path {
            Ok(path) if served == Served::Metrics && is_metrics(&path) => Action::Metrics,
            Ok(_) if served == Served::Metrics => {
                Action::Reply(Reply::text(404, "nothing but /metrics is served here"))
            }
            Ok(path) => Action::Read(ReadRequest { path, head: request, requester: grant.requester() }),
            Err(error) => Action::Reply(Reply::text(400, &error.to_string())),
        },
        "OPTIONS" if writable => {
            let head = ReplyHead::new(204).with("Allow", WRITE_METHODS).with("Accept-Patch", PARTIAL_UPLOAD);
            let head = head.with(UPLOAD_LIMIT, &upload_limit(MAX_UPLOAD_RANGES));
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

fn upload(request: RequestHead, path: Result<TargetPath, TargetError>, grant: Grant) -> Action {
    let path = path.map_err(|error| match error {
        TargetError::Climbs => Reply::text(403, "nothing is written outside the served directory"),
        error => Reply::text(400, &error.to_string()),
    });
    match path.and_then(|path| UploadCommand::parse(request, path, grant)) {
        Ok(command) => Action::Upload(Box::new(command)),
        Err(refused) => Action::Reply(refused),
    }
}

fn is_metrics(path: &TargetPath) -> bool {
    path.names() == [metrics::NAME] && !path.has_trailing_slash()
}
