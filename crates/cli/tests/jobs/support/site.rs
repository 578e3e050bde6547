//! A scripted server of files that are made as they are asked for, and what it sees of its clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{File, Server, content};

/// What a server has seen.
#[derive(Default)]
pub(crate) struct Load {
    pub(crate) connections: AtomicUsize,
    now: AtomicUsize,
    /// The most requests that were answered at once.
    pub(crate) at_once: AtomicUsize,
}

impl Load {
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn at_once(&self) -> usize {
        self.at_once.load(Ordering::SeqCst)
    }
}

/// Returns the content of `/SIZE/NUMBER`: so many bytes, different for each number.
pub(crate) fn of_size(size: usize, number: u64) -> Vec<u8> {
    content(size, number)
}

fn of_target(target: &str) -> Option<Vec<u8>> {
    let (size, number) = target.strip_prefix('/')?.split_once('/')?;
    Some(of_size(size.parse().ok()?, number.parse().ok()?))
}

/// Serves `/SIZE/NUMBER`; every answer begins after `delay`. Other targets are not found.
pub(crate) fn site(delay: Duration) -> (Server, Arc<Load>) {
    slow_site(delay, usize::MAX)
}

/// Serves `/SIZE/NUMBER` at so many bytes a second for each connection.
pub(crate) fn slow_site(delay: Duration, rate: usize) -> (Server, Arc<Load>) {
    let load = Arc::new(Load::default());
    let seen = Arc::clone(&load);
    let server = Server::new(move |peer| {
        seen.connections.fetch_add(1, Ordering::SeqCst);
        while let Some(ask) = peer.ask() {
            let Some(bytes) = of_target(&ask.target) else {
                peer.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
                continue;
            };
            let file = File::new(bytes);
            let (head, body) = file.answer(&ask);
            let now = seen.now.fetch_add(1, Ordering::SeqCst) + 1;
            seen.at_once.fetch_max(now, Ordering::SeqCst);
            std::thread::sleep(delay);
            // Before the last bytes: the client may ask for the next file as soon as it has them.
            let (first, last) = body.split_at(body.len().saturating_sub(1));
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
