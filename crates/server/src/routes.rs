//! What a request asks for. Nothing is looked at here: that waits for a disk, and comes later.

use longhaul_core::proto::http::{ReplyHead, RequestBody, RequestHead, TargetPath};

use crate::reply::Reply;

/// The methods that are served.
const ALLOWED: &str = "GET, HEAD, OPTIONS";

/// What is to be done about a request.
pub(crate) enum Action {
    /// Send this.
    Reply(Reply),
    /// Send what has this name.
    Read(TargetPath),
}

/// Decides about a request.
pub(crate) fn route(request: &RequestHead) -> Action {
    match request.method() {
        "GET" | "HEAD" if request.body() != RequestBody::None => {
            Action::Reply(Reply::text(400, "a request for a file carries no body"))
        }
        "GET" | "HEAD" => match TargetPath::parse(request.target()) {
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
