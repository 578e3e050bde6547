//! An upload under way, on a thread of its own: socket to segments, and what follows the last byte.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::checksum::Checksum;
use longhaul_core::proto::http::{ReplyHead, UPLOAD_COMPLETE, UPLOAD_OFFSET, upload_bool};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::{Bytes, Rate};
use longhaul_engine::cancel::Cancel;
use longhaul_engine::sink::arrivals::Arrivals;
use longhaul_engine::sink::pipeline::{Inlet, Pipeline, PipelineError};
use longhaul_engine::sink::segment_pool::{Flow, Segment};
use longhaul_engine::sink::writer::Writer;
use longhaul_sys::tcp_info;
use tokio::sync::OwnedSemaphorePermit;

use super::body::{Body, BodyError, Read, TICK};
use super::receiving::{Claim, Life, Place, Receiving};
use super::refusal;
use crate::Limits;
use crate::reply::Reply;

/// What follows the last byte of a request.
pub(super) enum Then {
    /// Another part, some day.
    GoOn,
    /// The file's end: it is verified, and gets its name.
    Finish { digest: Option<Checksum>, replace: bool },
}

/// A file that is being received; its space is reserved. What is of use to nobody goes when it is dropped.
pub(super) struct Upload {
    pipeline: Arc<Pipeline>,
    writer: Arc<dyn Writer>,
    then: Then,
    /// Whether a file stood under its name before.
    exists: bool,
    receiving: Arc<Receiving>,
    pub(super) life: Arc<Life>,
    /// Held to the end, the last sync included; given back before the file is free for whoever comes back.
    _slot: OwnedSemaphorePermit,
    /// Given back before the place, which closes the file: its inode's number may then be another's.
    _claim: Claim,
    _place: Place,
}

/// How a connection brings a body.
pub(super) struct Connection {
    pub(super) body: Body,
    /// The TCP socket, of which the window is held and the round trip is known.
    pub(super) socket: OwnedFd,
    pub(super) limits: Arc<Limits>,
    /// Set once the body is there.
    pub(super) whole: Arc<AtomicBool>,
}

/// What came of it.
pub(super) struct Outcome {
    pub(super) reply: Reply,
    pub(super) received: Bytes,
    /// Whether the body was read to its end, so that another request may follow.
    pub(super) body_read: bool,
    /// What came after it.
    pub(super) inbox: Vec<u8>,
}

/// Why a body was not taken whole.
enum Trouble {
    Body(BodyError),
    /// More came than was announced.
    TooLong,
    /// Next to nothing came for so long.
    Slow(Duration),
    Memory(std::io::Error),
    /// Told to stop: by a writer that failed, or from outside.
    Stopped,
}

/// A partly filled segment of a slow client is written after this time, so that a crash costs little.
const SLOW_FLUSH: Duration = Duration::from_secs(5);
/// After how many stall times a mean rate says something, as for replies.
const SETTLED: u32 = 3;

impl Upload {
    /// Reserves the file's space; a partial file that nobody can go on with goes again where that fails.
    pub(super) fn prepare(
        pipeline: Pipeline,
        then: Then,
        exists: bool,
        receiving: &Arc<Receiving>,
        (claim, slot): (Claim, OwnedSemaphorePermit),
    ) -> Result<Self, Reply> {
        let prepared = pipeline.prepare().and_then(|writer| pipeline.note().map(|()| writer));
        let writer = prepared.map_err(|error| {
            pipeline.part().abandon();
            refusal::output(&error)
        })?;
        let pipeline = Arc::new(pipeline);
        let life = Arc::new(Life::default());
        let place = receiving.enter(&pipeline, &life);
        let receiving = Arc::clone(receiving);
        Ok(Self {
            pipeline,
            writer,
            then,
            exists,
            receiving,
            life,
            _slot: slot,
            _place: place,
            _claim: claim,
        })
    }

    /// Receives the body and does what follows it.
    pub(super) fn run(self, mut connection: Connection) -> Outcome {
        let before = self.pipeline.resumed();
        let failure: Mutex<Option<PipelineError>> = Mutex::default();
        let stop = self.life.cancel.child();
        let fail = |error: PipelineError| {
            failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            stop.cancel();
        };
        let mut received = Bytes::ZERO;
        let taken = thread::scope(|threads| {
            let (inlet, segments) = self.pipeline.inlet();
            let running = self.pipeline.start(threads, &self.writer, &segments, &fail);
            let taken = Receiver::new(&self, &mut connection, inlet, &stop).run(&mut received);
            connection.whole.store(taken.is_ok(), Ordering::Relaxed);
            self.life.note(None);
            running.end();
            taken
        });
        let failure = failure.into_inner().unwrap_or_else(PoisonError::into_inner);
        let reply = match (failure, taken) {
            (Some(error), _) => Err(refusal::pipeline(&error)),
            (None, Err(trouble)) => Err(trouble.reply()),
            (None, Ok(())) => self.conclude(before + received, &self.life.cancel),
        };
        let reply = reply.unwrap_or_else(|refused| refused);
        let body_read = connection.body.is_done();
        Outcome { reply, received, body_read, inbox: connection.body.into_inbox() }
    }

    /// Answers for a body that is on the device, the file being there up to `end`.
    fn conclude(&self, end: Bytes, cancel: &Cancel) -> Result<Reply, Reply> {
        let pipeline = &self.pipeline;
        let Then::Finish { digest, replace } = &self.then else {
            pipeline.sync_names().map_err(|error| refusal::output(&error))?;
            let head = ReplyHead::new(204)
                .with(UPLOAD_OFFSET, &end.get().to_string())
                .with(UPLOAD_COMPLETE, upload_bool(false));
            return Ok(Reply::empty(head));
        };
        if pipeline.size().is_some() && !pipeline.is_complete() {
            return Err(refusal::elsewhere(end));
        }
        if let Some(wanted) = digest {
            let found =
                pipeline.read_back(wanted.algorithm, cancel).map_err(|error| refusal::output(&error))?;
            match found {
                None => return Err(Trouble::Stopped.reply()),
                Some(found) if found != *wanted => {
                    pipeline.part().discard();
                    return Err(Reply::text(422, &format!("the file has the digest {found}, not {wanted}")));
                }
                Some(_) => {}
            }
        }
        let finished = pipeline.finish(*replace).map_err(|error| refusal::pipeline(&error))?;
        finished.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        Ok(Reply::empty(ReplyHead::new(if self.exists { 204 } else { 201 })))
    }
}

impl Drop for Upload {
    /// Part of a whole file is of no use to anybody; part of an upload is.
    fn drop(&mut self) {
        if self.pipeline.journal().is_none() {
            self.pipeline.part().discard();
        }
    }
}

/// Moves a body into segments.
struct Receiver<'a> {
    upload: &'a Upload,
    connection: &'a mut Connection,
    inlet: Inlet<'a>,
    stop: &'a Cancel,
    arrivals: Arrivals,
    started: Instant,
    /// The next byte's place in the file.
    at: u64,
    segment: Option<Segment>,
    /// When the segment was taken.
    since: Instant,
}

impl<'a> Receiver<'a> {
    fn new(upload: &'a Upload, connection: &'a mut Connection, inlet: Inlet<'a>, stop: &'a Cancel) -> Self {
        let rtt = tcp_info::read(&connection.socket).ok().and_then(|tcp| tcp.rtt()).unwrap_or_default();
        let now = Instant::now();
        let at = upload.pipeline.resumed().get();
        let arrivals = Arrivals::new(rtt, true, now);
        upload.life.note(Some(now));
        Self { upload, connection, inlet, stop, arrivals, started: now, at, segment: None, since: now }
    }

    /// Reads to the end of the body; what came before a trouble is handed over too.
    fn run(mut self, received: &mut Bytes) -> Result<(), Trouble> {
        let result = self.receive();
        self.flush();
        *received = self.arrivals.total;
        result
    }

    fn receive(&mut self) -> Result<(), Trouble> {
        let end = self.upload.pipeline.size().map_or(u64::MAX, Bytes::get);
        while !self.stop.is_cancelled() {
            let read = if self.at == end {
                // Nothing more may come; only the end of chunked coding.
                match self.connection.body.read(&mut [0])? {
                    Read::Data(_) => return Err(Trouble::TooLong),
                    other => other,
                }
            } else {
                let mut segment = self.segment(ByteRange::new(self.at, end))?;
                let read = self.connection.body.read(segment.spare());
                if let Ok(Read::Data(length)) = read {
                    segment.fill(length);
                }
                let full = segment.is_full();
                self.segment = Some(segment);
                if full || self.since.elapsed() > SLOW_FLUSH {
                    self.flush();
                }
                read?
            };
            match read {
                Read::End => return Ok(()),
                Read::Idle => {}
                Read::Data(length) => {
                    self.at += length as u64;
                    let now = Instant::now();
                    self.upload.receiving.received(length);
                    self.upload.life.note(Some(now));
                    let length = Bytes::new(length as u64);
                    self.arrivals.add(length, Bytes::ZERO, &self.connection.socket, now);
                }
            }
            self.check_pace()?;
        }
        Err(Trouble::Stopped)
    }

    /// Takes the segment that is being filled, or a fresh one; waiting for it is no fault of the peer's.
    fn segment(&mut self, left: ByteRange) -> Result<Segment, Trouble> {
        if let Some(segment) = self.segment.take() {
            return Ok(segment);
        }
        let flow = Flow { rate: self.arrivals.rate, rtt: self.arrivals.rtt };
        let waited = Instant::now();
        while !self.stop.is_cancelled() {
            if let Some(segment) = self.inlet.take(left, TICK, flow).map_err(Trouble::Memory)? {
                self.since = Instant::now();
                self.upload.life.note(Some(self.since));
                self.arrivals.paused(waited.elapsed());
                self.started += waited.elapsed();
                return Ok(segment);
            }
            self.upload.life.note(None);
        }
        Err(Trouble::Stopped)
    }

    fn flush(&mut self) {
        if let Some(segment) = self.segment.take() {
            self.inlet.hand_over(segment);
        }
    }

    /// Tells a slow peer from a dead one, as for replies.
    fn check_pace(&mut self) -> Result<(), Trouble> {
        let (limits, now) = (&self.connection.limits, Instant::now());
        let age = now.saturating_duration_since(self.started);
        let crawls = age > limits.stall * SETTLED && Rate::over(self.arrivals.total, age) < limits.slowest;
        if self.arrivals.stalled(limits.stall, now) || crawls {
            return Err(Trouble::Slow(limits.stall));
        }
        Ok(())
    }
}

impl From<BodyError> for Trouble {
    fn from(error: BodyError) -> Self {
        Self::Body(error)
    }
}

impl Trouble {
    fn reply(&self) -> Reply {
        match self {
            Self::Body(error) => Reply::text(400, &error.to_string()),
            Self::TooLong => Reply::text(400, "the body is longer than the file"),
            Self::Slow(stall) => {
                Reply::text(408, &format!("the body came too slowly, or not at all for {stall:?}"))
            }
            Self::Memory(error) => refusal::exhausted(error),
            Self::Stopped => Reply::text(503, "the upload was ended here; ask how far it is, and go on"),
        }
    }
}
