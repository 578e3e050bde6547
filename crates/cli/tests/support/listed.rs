//! A scripted server with listings chosen by a test.

use std::collections::BTreeMap;

use super::{File, Server};

/// The response to a target.
#[derive(Clone)]
pub(crate) enum ListedTarget {
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

/// Formats the entry of a JSON listing; `name` is inserted verbatim between quotes.
pub(crate) fn listing(entries: &[(&str, &str)]) -> ListedTarget {
    let entry = |(name, kind): &(&str, &str)| format!("{{\"name\":\"{name}\",\"type\":\"{kind}\"}}");
    ListedTarget::Json(format!("[{}]", entries.iter().map(entry).collect::<Vec<_>>().join(",")))
}

impl ListedTarget {
    /// Serves each listed target; others are 404.
    pub(crate) fn serve(targets: impl IntoIterator<Item = (&'static str, Self)>) -> Server {
        let targets: BTreeMap<_, _> = targets.into_iter().collect();
        Server::new(move |peer| {
            while let Some(request) = peer.read_request() {
                let page = |media: &str, text: &str| {
                    let length = text.len();
                    format!(
                        "HTTP/1.1 200 OK\r\nContent-Type: {media}\r\nContent-Length: {length}\r\n\r\n{text}"
                    )
                    .into_bytes()
                };
                let answer = match targets.get(request.target.as_str()) {
                    Some(Self::Json(text)) => page("application/json", text),
                    Some(Self::Html(text)) => page("text/html", text),
                    Some(Self::File(bytes)) => {
                        let file = File::new(bytes.clone());
                        let (head, body) = file.answer(&request);
                        let body = if request.head.starts_with("HEAD") { &[][..] } else { body };
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
