//! A scripted server that lists what a test wants.

use std::collections::BTreeMap;

use super::{File, Server};

/// What a target is answered with.
#[derive(Clone)]
pub(crate) enum Listed {
    /// A JSON listing.
    Json(String),
    /// A page of HTML.
    Html(String),
    /// A file.
    File(Vec<u8>),
    /// A redirect.
    Moved(&'static str),
    /// A refusal.
    Refused(u16),
}

/// Writes the entry of a JSON listing; `name` is written as it is between quotes.
pub(crate) fn listing(entries: &[(&str, &str)]) -> Listed {
    let entry = |(name, kind): &(&str, &str)| format!("{{\"name\":\"{name}\",\"type\":\"{kind}\"}}");
    Listed::Json(format!("[{}]", entries.iter().map(entry).collect::<Vec<_>>().join(",")))
}

impl Listed {
    /// Serves each target as it is listed; any other is not found.
    pub(crate) fn serve(targets: impl IntoIterator<Item = (&'static str, Self)>) -> Server {
        let targets: BTreeMap<_, _> = targets.into_iter().collect();
        Server::new(move |peer| {
            while let Some(ask) = peer.ask() {
                let page = |media: &str, text: &str| {
                    let length = text.len();
                    format!(
                        "HTTP/1.1 200 OK\r\nContent-Type: {media}\r\nContent-Length: {length}\r\n\r\n{text}"
                    )
                    .into_bytes()
                };
                let answer = match targets.get(ask.target.as_str()) {
                    Some(Self::Json(text)) => page("application/json", text),
                    Some(Self::Html(text)) => page("text/html", text),
                    Some(Self::File(bytes)) => {
                        let file = File::new(bytes.clone());
                        let (head, body) = file.answer(&ask);
                        let body = if ask.head.starts_with("HEAD") { &[][..] } else { body };
                        [head.as_bytes(), body].concat()
                    }
                    Some(Self::Moved(to)) => {
                        format!("HTTP/1.1 302 Moved\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
                            .into_bytes()
                    }
                    Some(Self::Refused(status)) => {
                        format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n").into_bytes()
                    }
                    None => b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n".to_vec(),
                };
                if !peer.send(answer) {
                    return;
                }
            }
        })
    }
}
