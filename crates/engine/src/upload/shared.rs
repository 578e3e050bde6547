//! What the threads of one upload share: how far it is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use longhaul_core::event::{Event, Observer, Snapshot};
use longhaul_core::limit::Limiter;
use longhaul_core::telemetry::{Segments, Sockets, StreamSample};
use longhaul_core::units::{Bytes, Rate};

use super::request::PutRequest;
use crate::cancel::Cancel;
use crate::open_sockets::OpenSockets;
use crate::send::{Reader, RingUsage, SourceFile};
use crate::threads::{add, lock};

/// State shared by the sender, the hasher and those who measure.
pub(super) struct Shared<'a> {
    pub(super) start: Instant,
    observer: &'a dyn Observer,
    pub(super) cancel: Cancel,
    pub(super) size: Bytes,
    pub(super) sockets: OpenSockets,
    limiter: Option<Mutex<Limiter>>,
    body: Mutex<Body>,
    /// How much of the file, from its start, has been read to be sent.
    read: AtomicU64,
    /// How much of the file the hasher is done with.
    pub(super) hashed: AtomicU64,
    pub(super) waits: Waits,
    resumable: OnceLock<bool>,
}

/// For how long the sender stood still, in nanoseconds.
#[derive(Default)]
pub(super) struct Waits {
    pub(super) disk: AtomicU64,
    pub(super) limit: AtomicU64,
    /// CPU time of the sending thread.
    pub(super) cpu: AtomicU64,
}

/// The file's bytes on the current connection.
#[derive(Default)]
struct Body {
    /// What the server had at first.
    resumed: Option<Bytes>,
    /// The place in the file where this connection's part begins.
    start: Bytes,
    /// How much of the part the kernel has.
    sent: Bytes,
    /// What the kernel had counted as acknowledged before the part.
    acked_before: Bytes,
    /// What arrived by earlier connections, whether or not the server kept it.
    moved_before: Bytes,
    ring: Option<RingUsage>,
}

impl Body {
    fn acked(&self, sockets: &Sockets) -> Bytes {
        // Encrypted bytes are more than those of the file.
        (sockets.counters.acked - self.acked_before).min(self.sent)
    }
}

impl<'a> Shared<'a> {
    pub(super) fn new(
        request: &PutRequest,
        start: Instant,
        observer: &'a dyn Observer,
        cancel: &Cancel,
        size: Bytes,
    ) -> Self {
        Self {
            start,
            observer,
            cancel: cancel.child(),
            size,
            sockets: OpenSockets::default(),
            limiter: request.limit.map(Limiter::new).map(Mutex::new),
            body: Mutex::default(),
            read: AtomicU64::new(0),
            hashed: AtomicU64::new(0),
            waits: Waits::default(),
            resumable: OnceLock::new(),
        }
    }

    /// Tells the observer.
    pub(super) fn emit(&self, event: &Event) {
        self.observer.on(self.start.elapsed(), event);
    }

    /// Remembers whether the server can resume.
    pub(super) fn set_resumable(&self, resumable: bool) {
        // It is asked once.
        let _ = self.resumable.set(resumable);
    }

    /// Returns whether the server can resume; `None` before it has said so.
    pub(super) fn resumable(&self) -> Option<bool> {
        self.resumable.get().copied()
    }

    /// Says that nobody reads the file a second time.
    pub(super) fn hash_nothing(&self) {
        self.hashed.store(self.size.get(), Ordering::Relaxed);
    }

    /// Accounts for how much the server has; tells the observer the first time.
    pub(super) fn found(&self, offset: Bytes, source: &SourceFile, reader: Reader) {
        self.read.fetch_max(offset.get(), Ordering::Relaxed);
        let mut body = self.end_part(offset);
        if body.resumed.is_none() {
            body.resumed = Some(offset);
            drop(body);
            let path = source.path().clone();
            self.emit(&Event::Opened { path, size: Some(self.size), resumed: offset, writer: reader.name() });
        }
    }

    /// Begins to send the part of the file that starts at `start`.
    pub(super) fn begin_part(&self, start: Bytes, ring: Option<RingUsage>) {
        self.end_part(start).ring = ring;
    }

    /// Settles what the last part has moved; the next one starts at `start`.
    fn end_part(&self, start: Bytes) -> MutexGuard<'_, Body> {
        let sockets = self.sockets.read().1;
        let mut body = lock(&self.body);
        let moved = body.acked(&sockets);
        body.moved_before += moved;
        (body.start, body.sent, body.acked_before) = (start, Bytes::ZERO, sockets.counters.acked);
        body.ring = None;
        body
    }

    /// Accounts for what the kernel has taken of the part; waits as long as `--limit` asks for.
    pub(super) fn sent(&self, sent: Bytes) {
        let mut body = lock(&self.body);
        let more = sent - body.sent;
        body.sent = sent;
        self.read.fetch_max((body.start + sent).get(), Ordering::Relaxed);
        drop(body);
        if let Some(limiter) = &self.limiter {
            let wait = lock(limiter).read(more, self.start.elapsed());
            if !wait.is_zero() {
                self.cancel.sleep(wait);
                add(&self.waits.limit, wait);
            }
        }
    }

    /// Returns how much to send at once: `most`, or little enough for an even rate under `--limit`.
    pub(super) fn share(&self, most: Bytes) -> Bytes {
        const SMALLEST: u64 = 4096;
        let even = |limiter: &Mutex<Limiter>| {
            Bytes::new((lock(limiter).rate().as_bytes_per_sec() / 20).max(SMALLEST))
        };
        self.limiter.as_ref().map_or(most, |limiter| most.min(even(limiter)))
    }

    /// Returns how much of the file has been read to be sent.
    pub(super) fn read_so_far(&self) -> Bytes {
        Bytes::new(self.read.load(Ordering::Relaxed))
    }

    /// Returns what an earlier run had left.
    pub(super) fn resumed(&self) -> Bytes {
        lock(&self.body).resumed.unwrap_or_default()
    }

    /// Reads everything at once: what was acknowledged in this run, the snapshot, each connection.
    pub(super) fn look(&self) -> (Snapshot, Vec<StreamSample>) {
        let (streams, sockets) = self.sockets.read();
        let body = lock(&self.body);
        let acked = body.acked(&sockets);
        let snapshot = Snapshot {
            present: (body.start + acked).min(self.size),
            received: body.moved_before + acked,
            written: body.moved_before + body.sent,
            size: Some(self.size),
            sockets,
            segments: body.ring.as_ref().map(RingUsage::read).unwrap_or_default(),
            page_cache: None,
        };
        (snapshot, streams)
    }

    /// Returns the ring's use, where there is one.
    pub(super) fn ring(&self) -> Option<Segments> {
        lock(&self.body).ring.as_ref().map(RingUsage::read)
    }

    /// Returns the goodput of this run over `time`.
    pub(super) fn goodput(&self, time: Duration) -> Rate {
        Rate::over(self.size - self.resumed(), time)
    }
}
