//! Scripted servers with files generated on request and counters of their load, and with listings
//! chosen by a test.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{File, HttpRequest, Server, content};

#[derive(Default)]
pub(crate) struct LoadCounters {
    connections: AtomicUsize,
    now: AtomicUsize,
    /// Maximum of concurrent requests.
    at_once: AtomicUsize,
    /// Bytes per second of each connection.
    rate: AtomicUsize,
}

impl LoadCounters {
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn at_once(&self) -> usize {
        self.at_once.load(Ordering::SeqCst)
    }

    pub(crate) fn set_rate(&self, rate: usize) {
        self.rate.store(rate, Ordering::SeqCst);
    }
}

/// Returns the content of `/SIZE/NUMBER`: `size` bytes, different for each number.
pub(crate) fn of_size(size: usize, number: u64) -> Vec<u8> {
    content(size, number)
}

fn of_target(target: &str) -> Option<Vec<u8>> {
    let (size, number) = target.strip_prefix('/')?.split_once('/')?;
    Some(of_size(size.parse().ok()?, number.parse().ok()?))
}

/// Serves `/SIZE/NUMBER` after `delay`; other targets are 404.
pub(crate) fn site(delay: Duration) -> (Server, Arc<LoadCounters>) {
    slow_site(delay, usize::MAX)
}

/// Serves `/SIZE/NUMBER` at `rate` bytes per second per connection.
pub(crate) fn slow_site(delay: Duration, rate: usize) -> (Server, Arc<LoadCounters>) {
    let load = Arc::new(LoadCounters { rate: rate.into(), ..LoadCounters::default() });
    let seen = Arc::clone(&load);
    let server = Server::new(move |peer| {
        seen.connections.fetch_add(1, Ordering::SeqCst);
        while let Some(request) = peer.read_request() {
            // Counted before the content is generated, which takes longest.
            let now = seen.now.fetch_add(1, Ordering::SeqCst) + 1;
            seen.at_once.fetch_max(now, Ordering::SeqCst);
            let Some(bytes) = of_target(&request.target) else {
                seen.now.fetch_sub(1, Ordering::SeqCst);
                peer.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
                continue;
            };
            let file = File::new(bytes);
            let (head, body) = file.answer(&request);
            std::thread::sleep(delay);
            // Counted before the last byte: the client may request the next file as soon as it has
            // the body.
            let (first, last) = body.split_at(body.len().saturating_sub(1));
            let rate = seen.rate.load(Ordering::SeqCst);
            let sent = peer.send(head)
                && if rate == usize::MAX { peer.send(first) } else { peer.trickle(first, rate) };
            seen.now.fetch_sub(1, Ordering::SeqCst);
            if !sent || !peer.send(last) {
                return;
            }
        }
    });
    (server, load)
}

/// The response to a target.
#[derive(Clone)]
pub(crate) enum ListedTarget {
    Json(String),
    /// A JSON listing with a field of the head.
    JsonWith(String, String),
    Html(String),
    File(Vec<u8>),
    Moved(&'static str),
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
        Server::replying(move |request| choose(&request.target).answer(request))
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
