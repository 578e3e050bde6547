//! Files behind one link: all connections share its rate, and the bytes that are sent are counted.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{File, Server, names, response, same};

/// The bytes that are sent at once.
const PIECE: usize = 16 << 10;

/// A server of files below `/t/`, with a listing.
pub(crate) struct RatedSite {
    server: Server,
    files: Arc<BTreeMap<String, File>>,
    sent: Arc<AtomicU64>,
}

impl RatedSite {
    /// The time of all files, and the field that states it.
    pub(crate) const MODIFIED: i64 = 784_111_777;
    const MODIFIED_FIELD: &str = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n";

    /// Serves the files at `rate` bytes per second.
    pub(crate) fn start(files: impl IntoIterator<Item = (String, Vec<u8>)>, rate: u64) -> Self {
        let file =
            |(name, bytes)| (name, File { fields: Self::MODIFIED_FIELD.to_owned(), ..File::new(bytes) });
        let files: Arc<BTreeMap<String, File>> = Arc::new(files.into_iter().map(file).collect());
        let links: String = files.keys().map(|name| format!("<a href='{name}'>{name}</a>")).collect();
        let listing = format!("<title>Index of /t/</title>{links}").into_bytes();
        let fields = "Content-Type: text/html\r\n".to_owned();
        let listing = File { etag: None, fields, ..File::new(listing) };
        let sent = Arc::<AtomicU64>::default();
        let (served, counted, link) = (files.clone(), sent.clone(), Mutex::new(Instant::now()));
        let server = Server::new(move |peer| {
            while let Some(request) = peer.read_request() {
                let file = match request.target.strip_prefix("/t/") {
                    Some("") => Some(&listing),
                    name => name.and_then(|name| served.get(name)),
                };
                let none = || (response("404 Not Found", ""), &[][..]);
                let (head, body) = file.map_or_else(none, |file| file.answer(&request));
                let mut pieces = body.chunks(PIECE).inspect(|piece| {
                    wait_for(&link, Duration::from_secs_f64(piece.len() as f64 / rate as f64));
                    counted.fetch_add(piece.len() as u64, Ordering::Relaxed);
                });
                if !peer.send(head) || !pieces.all(|piece| peer.send(piece)) {
                    return;
                }
            }
        });
        Self { server, files, sent }
    }

    /// Returns the URL of a file, or of the listing for an empty name.
    pub(crate) fn url(&self, name: &str) -> String {
        self.server.url(&format!("/t/{name}"))
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.files.keys().map(|name| self.url(name)).collect()
    }

    /// Returns the bytes of files that were sent, also those that nothing has received.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns the size of all files.
    pub(crate) fn size(&self) -> u64 {
        self.files.values().map(|file| file.bytes.len() as u64).sum()
    }

    /// Fails unless a directory has all files, and nothing else.
    #[track_caller]
    pub(crate) fn is_in(&self, directory: &Path) {
        assert_eq!(names(directory), self.files.keys().cloned().collect::<Vec<_>>());
        self.files.iter().for_each(|(name, file)| same(directory.join(name), &file.bytes));
    }
}

/// Waits until the link is free, and occupies it for `time`.
fn wait_for(link: &Mutex<Instant>, time: Duration) {
    let begin = {
        let mut free = link.lock();
        let begin = (*free).max(Instant::now());
        *free = begin + time;
        begin
    };
    std::thread::sleep(begin.saturating_duration_since(Instant::now()));
}
