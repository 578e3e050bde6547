//! A scripted server with listings chosen by a test.

use std::collections::BTreeMap;

use super::{File, HttpRequest, Server};

/// The response to a target.
#[derive(Clone)]
pub(crate) enum ListedTarget {
    /// A JSON listing.
    Json(String),
    /// A JSON listing with a field of the head.
    JsonWith(String, String),
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
        Self::serve_by(move |target| targets.get(target).cloned().unwrap_or(Self::Refused(404)))
    }

    /// Answers each request as `choose` decides by its target.
    pub(crate) fn serve_by(choose: impl Fn(&str) -> Self + Send + Sync + 'static) -> Server {
        Server::new(move |peer| {
            while let Some(request) = peer.read_request() {
                if !peer.send(choose(&request.target).answer(&request)) {
                    return;
                }
            }
        })
    }

    fn answer(self, request: &HttpRequest) -> Vec<u8> {
        let page = |media: &str, field: &str, text: &str| {
            let length = text.len();
            format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {media}\r\n{field}Content-Length: {length}\r\n\r\n{text}"
            )
        };
        match self {
            Self::Json(text) => page("application/json", "", &text).into(),
            Self::JsonWith(text, field) => page("application/json", &format!("{field}\r\n"), &text).into(),
            Self::Html(text) => page("text/html", "", &text).into(),
            Self::File(bytes) => {
                let file = File::new(bytes);
                let (head, body) = file.answer(request);
                let body = if request.head.starts_with("HEAD") { &[][..] } else { body };
                [head.as_bytes(), body].concat()
            }
            Self::Moved(to) => {
                format!("HTTP/1.1 302 Moved\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").into()
            }
            Self::Refused(status) => format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n").into(),
        }
    }
}
