//! What the target of a request addresses, before it is routed.

use longhaul_core::probe::message::{MEASURE_PATH, STREAM_PATH};
use longhaul_core::proto::http::RequestHead;

/// Returns whether the query has an `upload` parameter, valid or not.
pub(crate) fn names_upload(target: &str) -> bool {
    target.split_once('?').is_some_and(|(_, query)| query.split('&').any(|pair| pair.starts_with("upload=")))
}

/// Returns whether a request asks for the paused uploads of a directory.
pub(crate) fn lists_uploads(request: &RequestHead) -> bool {
    request.method() == "GET" && request.target().ends_with("/?uploads")
}

/// Returns whether a request is for the measurement endpoint.
pub(crate) fn is_measurement(request: &RequestHead) -> bool {
    let path = without_query(request);
    match request.method() {
        "GET" => path.strip_prefix(MEASURE_PATH).is_some_and(|rest| matches!(rest, "" | "/stream" | "/udp")),
        "PUT" => path == STREAM_PATH,
        _ => false,
    }
}

/// Returns the path of a target.
pub(crate) fn without_query(request: &RequestHead) -> &str {
    request.target().split('?').next().unwrap_or_default()
}

/// Leaves out of a request's target what may hold a key: a query, and a login before a host
/// (`http://ann:secret@host/f`, `ann:secret@host:80`).
pub(crate) fn without_secrets(target: &str) -> String {
    let (place, query) = match target.split_once('?') {
        Some((place, _)) => (place, "?..."),
        None => (target, ""),
    };
    let (scheme, rest) = place.find("://").map_or(("", place), |at| place.split_at(at + 3));
    let host = rest.find('/').unwrap_or(rest.len());
    let rest = rest[..host].rfind('@').map_or(rest, |login| &rest[login + 1..]);
    format!("{scheme}{rest}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_reported_without_its_secrets() {
        for (target, reported) in [
            ("/f", "/f"),
            ("/f?key=secret", "/f?..."),
            ("/a@b/c", "/a@b/c"),
            ("/f?to=http://ann:secret@h/", "/f?..."),
            ("http://h:80/f", "http://h:80/f"),
            ("http://ann:secret@h/f", "http://h/f"),
            ("HTTP://ann:sec@ret@h", "HTTP://h"),
            ("http://ann:secret@h?key=secret", "http://h?..."),
            ("http://h/a@b", "http://h/a@b"),
            ("ann:secret@h:80", "h:80"),
            ("", ""),
            ("-", "-"),
        ] {
            assert_eq!(without_secrets(target), reported, "{target}");
        }
    }
}
