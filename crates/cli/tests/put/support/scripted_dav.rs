//! A server that is Apache's mod_dav_fs as far as `put` sees it, and does what a test wants with some requests.

use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, Mutex};

use super::http::{Ask, Peer, Server};

/// What becomes of a request.
pub(crate) enum Scripted {
    /// It is done and answered as mod_dav_fs does.
    Honest,
    /// Its body is read and dropped, and this is the status line and the fields of the answer.
    Answer(&'static str),
    /// Half of its body is read, then the connection ends.
    Cut,
}

/// The files by their paths.
pub(crate) type Files = Arc<Mutex<HashMap<String, Vec<u8>>>>;

/// Starts a server with one file, `/f` of the bytes "old". `play` sees each request with its method.
pub(crate) fn scripted_dav(play: impl Fn(&str, &Ask) -> Scripted + Send + Sync + 'static) -> (Server, Files) {
    let files: Files = Arc::default();
    files.lock().unwrap().insert("/f".to_owned(), b"old".to_vec());
    let kept = Arc::clone(&files);
    let server = Server::new(move |peer| {
        while let Some(ask) = peer.ask() {
            let method = ask.head.split(' ').next().unwrap().to_owned();
            let scripted = play(&method, &ask);
            if ask.field("expect").is_some() {
                peer.send("HTTP/1.1 100 Continue\r\n\r\n");
            }
            let length = ask.field("content-length").map_or(0, |length| length.parse().unwrap());
            let wanted = if let Scripted::Cut = scripted { length / 2 } else { length };
            let body = read(peer, wanted);
            let answer = match scripted {
                Scripted::Cut => return,
                _ if body.len() < length => return,
                Scripted::Answer(answer) => answer.to_owned(),
                Scripted::Honest => honest(&kept, &method, &ask, body),
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

/// Does what the request asks for; returns the status line and the fields.
fn honest(files: &Files, method: &str, ask: &Ask, body: Vec<u8>) -> String {
    let mut files = files.lock().unwrap();
    let path = ask.target.clone();
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
            let start = ask.field("content-range").map(|range| {
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
            let to = ask.field("destination").unwrap();
            let to = format!("/{}", to.splitn(4, '/').nth(3).unwrap());
            let there = files
                .get(&to)
                .map(|bytes| format!("<{}> ([\"{:x}\"])", ask.field("destination").unwrap(), bytes.len()));
            if there.is_some() && (ask.field("overwrite") != Some("T") || ask.field("if") != there.as_deref())
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
