//! A server equivalent to Apache's mod_dav_fs for `put`, which handles some requests as a test requires.

use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, Mutex};

use super::http::{HttpRequest, Peer, Server};

/// The handling of a request.
pub(crate) enum DavAction {
    /// As mod_dav_fs does.
    Honest,
    /// Discard the body, and answer with this status line and these fields.
    Answer(&'static str),
    /// Read half of the body, and close the connection.
    Cut,
}

/// The stored files by path.
pub(crate) type Files = Arc<Mutex<HashMap<String, Vec<u8>>>>;

/// Starts a server with one file, `/f`, containing "old". `play` handles each request by its method.
pub(crate) fn scripted_dav(
    play: impl Fn(&str, &HttpRequest) -> DavAction + Send + Sync + 'static,
) -> (Server, Files) {
    let files: Files = Arc::default();
    files.lock().unwrap().insert("/f".to_owned(), b"old".to_vec());
    let kept = Arc::clone(&files);
    let server = Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            let method = request.head.split(' ').next().unwrap().to_owned();
            let scripted = play(&method, &request);
            if request.field("expect").is_some() {
                peer.send("HTTP/1.1 100 Continue\r\n\r\n");
            }
            let length = request.field("content-length").map_or(0, |length| length.parse().unwrap());
            let wanted = if let DavAction::Cut = scripted { length / 2 } else { length };
            let body = read(peer, wanted);
            let answer = match scripted {
                DavAction::Cut => return,
                _ if body.len() < length => return,
                DavAction::Answer(answer) => answer.to_owned(),
                DavAction::Honest => honest(&kept, &method, &request, body),
            };
            if !peer.send(format!("HTTP/1.1 {answer}\r\n\r\n")) {
                return;
            }
        }
    });
    (server, files)
}

fn read(peer: &Peer, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = (&peer.stream).take(length as u64).read_to_end(&mut bytes);
    bytes
}

/// Executes a request; returns status line and fields.
fn honest(files: &Files, method: &str, request: &HttpRequest, body: Vec<u8>) -> String {
    let mut files = files.lock().unwrap();
    let path = request.target.clone();
    let status = |status: &str| format!("{status}\r\nContent-Length: 0");
    match method {
        "OPTIONS" => status(
            "200 OK\r\nServer: Apache/2.4.62 (Unix)\r\nDAV: 1,2\r\nDAV: <http://apache.org/dav/propset/fs/1>",
        ),
        "HEAD" => match files.get(&path) {
            Some(bytes) => {
                format!("200 OK\r\nETag: \"{:x}\"\r\nContent-Length: {}", bytes.len(), bytes.len())
            }
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
            let to = request.field("destination").unwrap();
            let to = format!("/{}", to.splitn(4, '/').nth(3).unwrap());
            let there = files.get(&to).map(|bytes| {
                format!("<{}> ([\"{:x}\"])", request.field("destination").unwrap(), bytes.len())
            });
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
