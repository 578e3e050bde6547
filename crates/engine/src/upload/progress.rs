//! The progress of an upload, as its threads share it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use longhaul_core::event::{Event, JobObserver};
use longhaul_core::limit::Limiter;
use longhaul_core::telemetry::{Segments, Snapshot, Sockets, StreamSample};
use longhaul_core::units::{Bytes, Rate};

use super::request::PutRequest;
use crate::cancel::Cancel;
use crate::open_sockets::OpenSockets;
use crate::send::{Reader, RingUsage, SourceFile};
use crate::threads::{add, lock};

/// State shared by the sender, the hasher, the monitor and the sampler.
pub(super) struct UploadProgress<'a> {
    pub(super) start: Instant,
    observer: JobObserver<'a>,
    pub(super) cancel: Cancel,
    pub(super) size: Bytes,
    pub(super) sockets: OpenSockets,
    limiter: Option<Mutex<Limiter>>,
    body: Mutex<SentPart>,
    /// How much of the file, from its start, has been read by the sender.
    read: AtomicU64,
    /// How much of the file has been hashed.
    pub(super) hashed: AtomicU64,
    pub(super) waits: Waits,
    resumable: OnceLock<bool>,
}

/// Times of the sending thread, in nanoseconds.
#[derive(Default)]
pub(super) struct Waits {
    pub(super) disk: AtomicU64,
    pub(super) limit: AtomicU64,
    /// Its CPU time.
    pub(super) cpu: AtomicU64,
}

/// The part of the file that the current connection sends.
#[derive(Default)]
struct SentPart {
    /// The first offset that the server has reported.
    resumed: Option<Bytes>,
    /// The part's offset in the file.
    start: Bytes,
    /// How much of the part the kernel has taken.
    sent: Bytes,
    /// How much the peer had acknowledged before the part.
    acked_before: Bytes,
    /// How much was acknowledged on earlier connections, whether or not the server has kept it.
    moved_before: Bytes,
    ring: Option<RingUsage>,
}

impl SentPart {
    fn acked(&self, sockets: &Sockets) -> Bytes {
        // TLS adds to the bytes of the file.
        (sockets.counters.acked - self.acked_before).min(self.sent)
    }
}

impl<'a> UploadProgress<'a> {
    pub(super) fn new(
        request: &PutRequest,
        start: Instant,
        observer: JobObserver<'a>,
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

    /// Sends an event to the observer.
    pub(super) fn emit(&self, event: &Event) {
        self.observer.on(self.start.elapsed(), event);
    }

    /// Remembers whether the server can resume.
    pub(super) fn set_resumable(&self, resumable: bool) {
        // It is set once.
        let _ = self.resumable.set(resumable);
    }

    /// Returns whether the server can resume; `None` before its answer.
    pub(super) fn resumable(&self) -> Option<bool> {
        self.resumable.get().copied()
    }

    /// Counts all as hashed, where no digest is computed.
    pub(super) fn skip_hashing(&self) {
        self.hashed.store(self.size.get(), Ordering::Relaxed);
    }

    /// Records how much the server has; the first time it emits [`Event::Opened`].
    pub(super) fn found(&self, offset: Bytes, source: &SourceFile, reader: Reader) {
        self.read.fetch_max(offset.get(), Ordering::Relaxed);
        let mut body = self.end_part(offset);
        if body.resumed.is_none() {
            body.resumed = Some(offset);
            drop(body);
            let path = source.path().clone();
            self.emit(&Event::Opened {
                path,
                size: Some(self.size),
                resumed: offset,
                writer: reader.name().into(),
            });
        }
    }

    /// Begins the part of the file that starts at `start`.
    pub(super) fn begin_part(&self, start: Bytes, ring: Option<RingUsage>) {
        self.end_part(start).ring = ring;
    }

    /// Adds up what the last part has moved; the next one starts at `start`.
    fn end_part(&self, start: Bytes) -> MutexGuard<'_, SentPart> {
        let sockets = self.sockets.read().1;
        let mut body = lock(&self.body);
        let moved = body.acked(&sockets);
        body.moved_before += moved;
        (body.start, body.sent, body.acked_before) = (start, Bytes::ZERO, sockets.counters.acked);
        body.ring = None;
        body
    }

    /// Records how much of the part the kernel has taken; waits as `--limit` requires.
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

    /// Returns how much to send at once: `most`, or less for an even rate under `--limit`.
    pub(super) fn share(&self, most: Bytes) -> Bytes {
        const SMALLEST: u64 = 4096;
        let even = |limiter: &Mutex<Limiter>| {
            Bytes::new((lock(limiter).rate().as_bytes_per_sec() / 20).max(SMALLEST))
        };
        self.limiter.as_ref().map_or(most, |limiter| most.min(even(limiter)))
    }

    /// Returns how much of the file has been read by the sender.
    pub(super) fn read_so_far(&self) -> Bytes {
        Bytes::new(self.read.load(Ordering::Relaxed))
    }

    /// Returns how much an earlier run had left on the server.
    pub(super) fn resumed(&self) -> Bytes {
        lock(&self.body).resumed.unwrap_or_default()
    }

    /// Reads the totals and each connection's counters.
    pub(super) fn snapshot(&self) -> (Snapshot, Vec<StreamSample>) {
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

    /// Returns the ring's use, where the file is read through one.
    pub(super) fn ring(&self) -> Option<Segments> {
        lock(&self.body).ring.as_ref().map(RingUsage::read)
    }

    /// Returns the goodput of this run over `time`.
    pub(super) fn goodput(&self, time: Duration) -> Rate {
        Rate::over(self.size - self.resumed(), time)
    }
}
