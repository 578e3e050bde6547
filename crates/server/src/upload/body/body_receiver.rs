//! Reads the body of an upload, or of one of its ranges, into segments.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::ranges::ByteRange;
use longhaul_core::units::{Bytes, Rate};
use longhaul_engine::cancel::Cancel;
use longhaul_engine::delivery_meter::DeliveryMeter;
use longhaul_engine::sink::pipeline::{Inlet, Pipeline, SegmentFiller};
use longhaul_engine::sink::segment_pool::Flow;
use longhaul_sys::tcp_info;

use crate::Timeouts;
use crate::connection::stall_detector::SETTLING_STALLS;
use crate::reply::Reply;
use crate::upload::body::body_reader::{BodyRead, BodyReader, UploadBodyError};
use crate::upload::registry::active::{ActiveUploads, UploadLiveness};
use crate::upload::registry::disk_reserve::leaves_reserve;
use crate::upload::registry::partials::PartialUploads;
use crate::upload::request::refusal;

/// The connection of an upload's body.
pub(crate) struct BodyConnection {
    pub(crate) body: BodyReader,
    /// The TCP socket, for its RTT and receive window.
    pub(crate) socket: OwnedFd,
    pub(crate) timeouts: Timeouts,
    /// Set once the body is received.
    pub(crate) body_received: Arc<AtomicBool>,
}

/// The outcome of a request with a body.
pub(crate) struct UploadOutcome {
    pub(crate) reply: Reply,
    pub(crate) received: Bytes,
    /// Whether the request was read completely, so that another one may follow.
    pub(crate) body_read: bool,
    /// Bytes received after the body.
    pub(crate) inbox: Vec<u8>,
}

impl UploadOutcome {
    /// Answers a request without receiving its body; `body_read` is whether it has none.
    pub(crate) fn unread(reply: Reply, body_read: bool) -> Self {
        Self { reply, received: Bytes::ZERO, body_read, inbox: Vec::new() }
    }
}

impl BodyConnection {
    /// Ends the request with its reply.
    pub(crate) fn end(self, reply: Reply, received: Bytes) -> UploadOutcome {
        UploadOutcome { reply, received, body_read: self.body.is_done(), inbox: self.body.into_inbox() }
    }
}

/// A partly filled segment is written after this time, so that a crash loses little of a slow
/// upload.
const SLOW_FLUSH: Duration = Duration::from_secs(5);

/// Where a body belongs.
pub(crate) struct BodyTarget<'a> {
    /// The bytes of the file that it may be; the body may end before.
    pub(crate) range: ByteRange,
    pub(crate) active: &'a ActiveUploads,
    pub(crate) liveness: &'a UploadLiveness,
    pub(crate) unknown_size: Option<UnknownSize<'a>>,
}

/// What bounds a file of unknown size, for which no space is reserved.
#[derive(Clone, Copy)]
pub(crate) struct UnknownSize<'a> {
    pub(crate) partials: &'a PartialUploads,
    pub(crate) pipeline: &'a Pipeline,
}

impl UnknownSize<'_> {
    /// Counts a file that has grown from `before` to `now` bytes.
    fn grow(self, before: u64, now: u64) -> Result<(), Reply> {
        let Self { partials, pipeline } = self;
        let part = pipeline.part();
        partials.grow(part.path(), Bytes::new(now)).map_err(refusal::over_quota)?;
        if before / SPACE_CHECK.get() == now / SPACE_CHECK.get() {
            return Ok(());
        }
        let unwritten = Bytes::new(now).saturating_sub(pipeline.written());
        if leaves_reserve(part.file(), unwritten) { Ok(()) } else { Err(refusal::reserve_reached()) }
    }
}

/// Bytes after which the free space is looked at again.
const SPACE_CHECK: Bytes = Bytes::mib(1);

/// Reads a body into segments.
pub(crate) struct BodyReceiver<'a> {
    target: BodyTarget<'a>,
    connection: &'a mut BodyConnection,
    filler: SegmentFiller<'a>,
    stop: &'a Cancel,
    delivery: DeliveryMeter,
    started: Instant,
    /// The file offset of the next byte.
    at: u64,
}

impl<'a> BodyReceiver<'a> {
    pub(crate) fn new(
        target: BodyTarget<'a>,
        connection: &'a mut BodyConnection,
        inlet: Inlet<'a>,
        stop: &'a Cancel,
    ) -> Self {
        let rtt = tcp_info::read(&connection.socket).ok().and_then(|tcp| tcp.rtt()).unwrap_or_default();
        let now = Instant::now();
        let at = target.range.start();
        let delivery = DeliveryMeter::new(rtt, true, now);
        target.liveness.set_last_data(Some(now));
        let filler = inlet.filler(SLOW_FLUSH);
        Self { target, connection, filler, stop, delivery, started: now, at }
    }

    /// Reads to the end of the body; bytes received before an error are written too.
    ///
    /// # Errors
    /// The reply: the body is incomplete or too long, its client has stalled, or the upload was
    /// cancelled by a failed writer, a newer connection, or the end of the server.
    pub(crate) fn run(mut self, received: &mut Bytes) -> Result<(), Reply> {
        let result = self.fill_segments();
        self.filler.flush_if(true);
        self.connection.body_received.store(result.is_ok(), Ordering::Relaxed);
        *received = self.delivery.total;
        result
    }

    fn fill_segments(&mut self) -> Result<(), Reply> {
        let end = self.target.range.end();
        while !self.stop.is_cancelled() {
            let read = if self.at == end {
                // The file is complete: only the end of chunked coding may follow.
                match self.connection.body.read(&mut [0]).map_err(unreadable)? {
                    BodyRead::Data(_) => return Err(Reply::text(400, "the body is longer than the file")),
                    other => other,
                }
            } else {
                if !self.filler.continues_at(self.at) {
                    self.take_segment(ByteRange::new(self.at, end))?;
                }
                let Some(spare) = self.filler.spare() else { continue };
                self.connection.body.read(spare).map_err(unreadable)?
            };
            match read {
                BodyRead::End => return Ok(()),
                BodyRead::Idle => {}
                BodyRead::Data(length) => {
                    self.filler.fill(length);
                    let before = self.at;
                    self.at += length as u64;
                    if let Some(unknown) = self.target.unknown_size {
                        unknown.grow(before, self.at)?;
                    }
                    let now = Instant::now();
                    self.target.active.add_received(length);
                    self.target.liveness.set_last_data(Some(now));
                    let length = Bytes::new(length as u64);
                    self.delivery.add(length, Bytes::ZERO, &self.connection.socket, now);
                }
            }
            self.filler.flush_if(false);
            self.check_progress()?;
        }
        Err(refusal::ended())
    }

    /// Takes a segment if one becomes free; the wait for it is no stall of the client.
    fn take_segment(&mut self, left: ByteRange) -> Result<(), Reply> {
        let flow = Flow { rate: self.delivery.rate, rtt: self.delivery.rtt };
        let waited = self.filler.take(left, flow).map_err(|error| refusal::exhausted(&error))?;
        self.delivery.exclude(waited);
        self.started += waited;
        self.target.liveness.set_last_data(self.filler.spare().map(|_| Instant::now()));
        Ok(())
    }

    /// Fails where the client has stalled, or sends too slowly on average.
    fn check_progress(&mut self) -> Result<(), Reply> {
        let (Timeouts { stall, slowest, .. }, now) = (self.connection.timeouts, Instant::now());
        let age = now.saturating_duration_since(self.started);
        let too_slow = age > stall * SETTLING_STALLS && Rate::over(self.delivery.total, age) < slowest;
        if self.delivery.stalled(stall, now) || too_slow {
            let why = format!("the body came too slowly, or not at all for {stall:?}");
            return Err(Reply::text(408, &why));
        }
        Ok(())
    }
}

/// 400: the body cannot be read.
fn unreadable(error: UploadBodyError) -> Reply {
    Reply::text(400, &error.to_string())
}
