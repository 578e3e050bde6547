//! A server equivalent to Apache's mod_dav_fs for `put`, which handles some requests as a test
//! requires.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::{answering, method, permit, read};
use crate::support::{HttpRequest, Server};

/// The handling of a request.
pub(super) enum DavAction {
    /// As mod_dav_fs does.
    Honest,
    /// Store the body as the whole file, whatever its range.
    StoreWhole,
    /// Discard the body, and answer with this status line and these fields.
    Answer(&'static str),
    /// Read half of the body, and close the connection.
    Cut,
}

/// The stored files by path.
pub(super) type Files = Arc<Mutex<HashMap<String, Vec<u8>>>>;

/// Starts a server with one file, `/f`, containing "old". `play` handles each request by its
/// method.
pub(super) fn scripted_dav(
    play: impl Fn(&str, &HttpRequest) -> DavAction + Send + Sync + 'static,
) -> (Server, Files) {
    let files: Files = Arc::default();
    files.lock().unwrap().insert("/f".to_owned(), b"old".to_vec());
    let kept = Arc::clone(&files);
    let server = answering(move |peer, request| {
        let action = play(method(request), request);
        let length = permit(peer, request);
        let wanted = if let DavAction::Cut = action { length / 2 } else { length };
        let body = read(peer, wanted);
        match action {
            _ if body.len() < length => String::new(),
            DavAction::Answer(answer) => answer.to_owned(),
            DavAction::StoreWhole => {
                kept.lock().unwrap().insert(request.target.clone(), body);
                "204 Stored".to_owned()
            }
            _ => honest(&kept, request, body),
        }
    });
    (server, files)
}

/// Executes a request; returns status line and fields.
fn honest(files: &Files, request: &HttpRequest, body: Vec<u8>) -> String {
    let mut files = files.lock().unwrap();
    let path = request.target.clone();
    let status = |status: &str| format!("{status}\r\nContent-Length: 0");
    match method(request) {
        "OPTIONS" => status(
            "200 OK\r\nServer: Apache/2.4.62 (Unix)\r\nDAV: 1,2\r\nDAV: <http://apache.org/dav/propset/fs/1>",
        ),
        "HEAD" => match files.get(&path).map(Vec::len) {
            Some(size) => format!("200 OK\r\nETag: \"{size:x}\"\r\nContent-Length: {size}"),
            None => status("404 No"),
        },
        "PUT" => {
            let start = request.field("content-range").map(|range| {
                let first = range.strip_prefix("bytes ").unwrap().split('-').next().unwrap();
                first.parse::<usize>().unwrap()
            });
            let Some(start) = start else {
                files.insert(path, body);
                return "204 Stored".to_owned();
            };
            let file = files.entry(path).or_default();
            let end = start + body.len();
            file.resize(file.len().max(end), 0);
            file[start..end].copy_from_slice(&body);
            "204 Stored".to_owned()
        }
        "MOVE" => {
            let url = request.field("destination").unwrap();
            let to = format!("/{}", url.splitn(4, '/').nth(3).unwrap());
            let there = files.get(&to).map(|bytes| format!("<{url}> ([\"{:x}\"])", bytes.len()));
            if there.is_some()
                && (request.field("overwrite") != Some("T") || request.field("if") != there.as_deref())
            {
                return status("412 No");
            }
            let Some(bytes) = files.remove(&path) else { return status("404 No") };
            files.insert(to, bytes);
            if there.is_some() { "204 Moved".to_owned() } else { status("201 Moved") }
        }
        "DELETE" if files.remove(&path).is_some() => "204 Gone".to_owned(),
        _ => status("404 No"),
    }
}
