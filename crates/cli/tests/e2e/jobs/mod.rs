//! End-to-end tests of several files and several sources of one file, against scripted and real servers.

mod many_files;
mod metalinks;
mod mirrors;
mod names;
mod progress_lines;
mod several_files;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{File, Server};

/// Larger than the first lease of a source with mirrors (16 MiB): a mirror has work too.
const SHARED: usize = 24 << 20;
/// The most bytes fetched from a mirror for comparison.
const SAMPLE: usize = 64 << 10;

/// An event that a server waits for.
type Signal = Arc<AtomicBool>;

/// Serves `file`, but sends no more than a MiB of a body before `event`.
fn held(file: &File, event: &Signal) -> Server {
    let (file, event) = (file.clone(), Arc::clone(event));
    Server::new(move |peer| {
        while let Some(request) = peer.read_request() {
            let (head, body) = file.answer(&request);
            let (first, rest) = body.split_at(body.len().min(1 << 20));
            if !peer.send(head) || !peer.send(first) {
                return;
            }
            let deadline = Instant::now() + Duration::from_secs(30);
            while !rest.is_empty() && !event.load(Ordering::SeqCst) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            if !peer.send(rest) {
                return;
            }
        }
    })
}

/// Starts two servers of one file: the first sends little before the second is asked for more than a sample.
fn sharing(first: &File, second: &File) -> [Server; 2] {
    let joined = Signal::default();
    let held = held(first, &joined);
    let second = second.clone();
    let mirror = Server::new(move |peer| {
        peer.serve_with(|request| {
            let range = request.range(second.bytes.len());
            if range.is_none_or(|(start, end)| end - start > SAMPLE) {
                joined.store(true, Ordering::SeqCst);
            }
            second.answer(&request)
        });
    });
    [held, mirror]
}

/// Returns the number of bytes requested of a file of `size`.
fn requested(server: &Server, size: usize) -> usize {
    server.requests().iter().filter_map(|request| request.range(size)).map(|(start, end)| end - start).sum()
}

/// Returns the URL of a file on a closed port.
fn nowhere() -> String {
    format!("http://{}/f", std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap())
}
