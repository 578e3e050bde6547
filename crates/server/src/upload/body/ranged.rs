//! Uploads whose ranges arrive over several connections at once: one pipeline, into which every
//! connection's thread receives.
//!
//! ```text
//!   PATCH, Content-Range --> RangeClaim (no other request may write there) --> BodyReceiver --.
//!   PATCH, Content-Range --> RangeClaim ------------------------------------> BodyReceiver --+--> Pipeline --> part file
//!                                                                                             (a thread of the upload)
//! ```
//!
//! The upload ends here once no range has arrived for a while, or as soon as another request of
//! this upload needs its file. What arrived is then on the device and in the journal.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::proto::http::{ReplyHead, UPLOAD_COMPLETE, UploadId, upload_bool};
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::tune::MAX_STREAMS;
use longhaul_core::units::Bytes;
use longhaul_engine::sink::output_error::OutputError;
use longhaul_engine::sink::pipeline::{Pipeline, SegmentQueue};
use longhaul_engine::sink::writer::Writer;
use parking_lot::{Condvar, Mutex};

use crate::access::Grant;
use crate::admission::connection_slots::ConnectionWatch;
use crate::reply::Reply;
use crate::upload::body::body_receiver::{BodyConnection, BodyReceiver, BodyTarget, UploadOutcome};
use crate::upload::body::opened::OpenedUpload;
use crate::upload::registry::active::{ActiveUploads, SILENT_AFTER, UploadLiveness};
use crate::upload::registry::upload_journal::holder_of;
use crate::upload::request::refusal;
use crate::upload::request::start::NotStarted;

/// The most ranges of one upload that are received at once: as many as a client has streams.
pub(crate) const MAX_UPLOAD_RANGES: usize = MAX_STREAMS;

/// An upload ends this long after its last connection has closed: two RTTs of 300 ms, in which its
/// client can connect anew with TLS 1.3, and the interval below.
const CLOSED_AFTER: Duration = Duration::from_millis(700);

/// How often an upload checks whether it is still used.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// An upload whose ranges arrive over several connections.
pub(crate) struct RangedUpload {
    id: UploadId,
    /// The token that began it.
    holder: Option<Arc<str>>,
    target: PathBuf,
    pipeline: Arc<Pipeline>,
    /// Cancels every connection of the upload.
    liveness: Arc<UploadLiveness>,
    state: Mutex<RangedState>,
    changed: Condvar,
}

struct RangedState {
    /// The way to the writers; `None` once the upload ends here.
    queue: Option<SegmentQueue>,
    /// Whether another request needs the file.
    retires: bool,
    claims: Vec<Claim>,
    /// The connections over which its ranges have arrived.
    connections: Vec<ConnectionWatch>,
    /// Whether the client opens one connection per range. A closed connection then does not end the
    /// upload.
    is_one_each: bool,
    /// When one of them was last seen open.
    last_open: Instant,
    /// When the last claim ended.
    unused_since: Instant,
    /// Every range claimed so far.
    claimed: RangeSet,
    next: u64,
    failure: Option<OutputError>,
}

impl RangedState {
    fn new(queue: SegmentQueue) -> Self {
        Self {
            queue: Some(queue),
            retires: false,
            claims: Vec::new(),
            connections: Vec::new(),
            is_one_each: false,
            last_open: Instant::now(),
            unused_since: Instant::now(),
            claimed: RangeSet::new(),
            next: 0,
            failure: None,
        }
    }
}

struct Claim {
    number: u64,
    range: ByteRange,
    liveness: Arc<UploadLiveness>,
}

/// A range that one request receives, and no other meanwhile.
pub(crate) struct RangeClaim {
    pub(crate) upload: Arc<RangedUpload>,
    pub(crate) range: ByteRange,
    pub(crate) liveness: Arc<UploadLiveness>,
    number: u64,
}

impl RangedUpload {
    /// Makes an upload, and what receives its ranges on a thread of its own until none is expected.
    pub(crate) fn new(
        id: UploadId,
        opened: &OpenedUpload,
    ) -> (Arc<Self>, impl FnOnce(&Arc<dyn Writer>) + Send + 'static) {
        let (pipeline, liveness) = (Arc::clone(&opened.pipeline), Arc::clone(&opened.liveness));
        let (inlet, segments) = pipeline.inlet();
        let state = RangedState::new(inlet.into_queue());
        let target = pipeline.part().target().to_owned();
        let holder = pipeline.journal().and_then(|journal| holder_of(&journal).map(Arc::from));
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let upload = Arc::new(Self { id, holder, target, pipeline, liveness, state, changed });
        let receiving = Arc::clone(&upload);
        let receive = move |writer: &Arc<dyn Writer>| {
            let fail = |error| receiving.fail(error);
            std::thread::scope(|threads| {
                let running = receiving.pipeline.start(threads, writer, &segments, &fail);
                receiving.wait_until_unused();
                running.end();
            });
        };
        (upload, receive)
    }

    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    pub(crate) fn id(&self) -> UploadId {
        self.id
    }

    pub(crate) fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Claims a range for one request. A range that was received before is forgotten first: it
    /// counts again once it is received again to its end.
    pub(crate) fn claim(self: &Arc<Self>, range: ByteRange) -> Result<RangeClaim, NotStarted> {
        let (claim, repeats) = self.enter(range)?;
        if repeats {
            // Else two writers could have bytes of the same place.
            let drained = self.pipeline.drain();
            let forgotten = self.pipeline.forget(range);
            if let Some(refused) = self.refusal() {
                return Err(refused.into());
            }
            if let Err(error) = forgotten {
                let refused = refusal::output(&error);
                self.fail(error);
                return Err(refused.into());
            }
            if !drained {
                return Err(refusal::ended().into());
            }
        }
        Ok(claim)
    }

    /// Enters a claim; returns whether bytes of the range were received before.
    fn enter(self: &Arc<Self>, range: ByteRange) -> Result<(RangeClaim, bool), NotStarted> {
        let mut state = self.state.lock();
        if state.queue.is_none() || state.retires {
            return Err(NotStarted::Superseding);
        }
        // It ends with its last claim, so that a retry can open it anew.
        if let Some(failure) = &state.failure {
            return Err(refusal::output(failure).into());
        }
        if let Some(other) = state.claims.iter().find(|claim| claim.range.overlaps(range)) {
            if other.liveness.cancel.is_cancelled() || other.liveness.is_silent(Instant::now()) {
                other.liveness.cancel.cancel();
                return Err(NotStarted::Superseding);
            }
            return Err(NotStarted::Busy);
        }
        if state.claims.len() >= MAX_UPLOAD_RANGES {
            return Err(refusal::too_many_ranges().into());
        }
        let held = |set: &RangeSet| set.iter().any(|part| part.overlaps(range));
        let repeats = held(&state.claimed) || held(&self.pipeline.written_ranges());
        let (number, liveness) = (state.next, Arc::new(UploadLiveness::below(&self.liveness.cancel)));
        state.next += 1;
        state.claims.push(Claim { number, range, liveness: Arc::clone(&liveness) });
        state.claimed.insert(range);
        let receivers = state.claims.len();
        drop(state);
        self.pipeline.pool().serve(receivers);
        Ok((RangeClaim { upload: Arc::clone(self), range, liveness, number }, repeats))
    }

    /// Adds a persistent connection over which a range arrives; `None` marks a client that opens
    /// one connection per range.
    pub(crate) fn add_connection(&self, connection: Option<ConnectionWatch>) {
        let mut state = self.state.lock();
        let Some(connection) = connection else {
            state.is_one_each = true;
            return;
        };
        state.connections.retain(|known| known.is_open() && !known.is_same(&connection));
        state.connections.push(connection);
    }

    /// Returns the way to the writers; `None` where the upload ends here.
    pub(crate) fn queue(&self) -> Option<SegmentQueue> {
        self.state.lock().queue.clone()
    }

    /// Returns the reply to requests of an upload that cannot be written.
    pub(crate) fn refusal(&self) -> Option<Reply> {
        self.state.lock().failure.as_ref().map(refusal::output)
    }

    fn fail(&self, error: OutputError) {
        self.state.lock().failure.get_or_insert(error);
        self.liveness.cancel.cancel();
        self.changed.notify_all();
    }

    /// Returns `BetweenRanges` to another upload to this target if its token may start over and
    /// this upload is ending or pauses; else `Busy`.
    pub(crate) fn occupied(&self, grant: &Grant) -> NotStarted {
        let may_start_over = grant.may_start_over(self.holder.as_deref());
        let state = self.state.lock();
        let ends = state.queue.is_none() || state.retires;
        if may_start_over && (ends || state.claims.is_empty()) {
            NotStarted::BetweenRanges
        } else {
            NotStarted::Busy
        }
    }

    /// Ends the upload as soon as the ranges that arrive now have ended.
    pub(crate) fn retire_later(&self) {
        self.state.lock().retires = true;
        self.changed.notify_all();
    }

    /// Ends the upload where no range is being received, or where all connections are silent;
    /// returns whether it is ending.
    pub(crate) fn retire(&self) -> bool {
        let mut state = self.state.lock();
        let now = Instant::now();
        let silent = |claim: &Claim| claim.liveness.cancel.is_cancelled() || claim.liveness.is_silent(now);
        if !state.claims.iter().all(silent) {
            return state.retires;
        }
        state.claims.iter().for_each(|claim| claim.liveness.cancel.cancel());
        state.retires = true;
        self.changed.notify_all();
        true
    }

    /// Waits until no range is received and none is expected; closes the way to the writers then.
    fn wait_until_unused(&self) {
        let mut state = self.state.lock();
        loop {
            if !state.claims.is_empty() || state.connections.iter().any(ConnectionWatch::is_open) {
                state.last_open = Instant::now();
            }
            let over = state.retires
                || state.unused_since.elapsed() >= SILENT_AFTER
                || (!state.is_one_each && state.last_open.elapsed() >= CLOSED_AFTER)
                || self.liveness.cancel.is_cancelled();
            if over && state.claims.is_empty() {
                state.queue = None;
                return;
            }
            self.changed.wait_for(&mut state, CHECK_INTERVAL);
        }
    }
}

impl RangeClaim {
    /// Receives the body; the reply says that it is received, not that it is on the device.
    pub(crate) fn receive(self, mut connection: BodyConnection, active: &ActiveUploads) -> UploadOutcome {
        let mut received = Bytes::ZERO;
        let body = self.write_body(&mut connection, active, &mut received);
        let reply = match (self.upload.refusal(), body) {
            (Some(refused), _) | (None, Err(refused)) => refused,
            (None, Ok(())) => Reply::empty(ReplyHead::new(202).with(UPLOAD_COMPLETE, upload_bool(false))),
        };
        connection.end(reply, received)
    }

    fn write_body(
        &self,
        connection: &mut BodyConnection,
        active: &ActiveUploads,
        received: &mut Bytes,
    ) -> Result<(), Reply> {
        let Self { upload, range, liveness, .. } = self;
        let inlet = upload.pipeline().inlet_to(upload.queue().ok_or_else(refusal::ended)?);
        let target = BodyTarget { range: *range, active, liveness, unknown_size: None };
        BodyReceiver::new(target, connection, inlet, &liveness.cancel).run(received)
    }
}

impl Drop for RangeClaim {
    fn drop(&mut self) {
        let mut state = self.upload.state.lock();
        state.claims.retain(|claim| claim.number != self.number);
        state.unused_since = Instant::now();
        drop(state);
        self.upload.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use longhaul_core::failure::Failure;
    use longhaul_core::units::Bytes;
    use longhaul_engine::sink::directory::Directory;
    use longhaul_engine::sink::memory_budget::{AppBuffer, MemoryBudget};
    use longhaul_engine::sink::part_file::PartFile;
    use longhaul_engine::sink::segment_pool::SegmentPool;
    use longhaul_engine::sink::writer::WriterChoice;

    use super::*;

    #[test]
    fn upload_that_has_failed_takes_no_range() {
        let dir = tempfile::tempdir().unwrap();
        let part = PartFile::open_in(Directory::open(dir.path()).unwrap(), OsStr::new("f")).unwrap();
        let pool = SegmentPool::new(&MemoryBudget::new(AppBuffer::Auto), None, 1);
        let size = Some(Bytes::new(100));
        let pipeline = Pipeline::new(part, None, size, RangeSet::new(), WriterChoice::Auto, pool);
        let (inlet, _segments) = pipeline.inlet();
        let state = RangedState::new(inlet.into_queue());
        let upload = Arc::new(RangedUpload {
            holder: None,
            id: UploadId::new([1; 16]),
            target: dir.path().join("f"),
            pipeline: Arc::new(pipeline),
            liveness: Arc::new(UploadLiveness::default()),
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let first = upload.claim(ByteRange::new(0, 10));
        assert!(first.is_ok());
        upload.fail(Failure::panicked("a writer").into());
        assert!(matches!(upload.claim(ByteRange::new(10, 20)), Err(NotStarted::Refused(_))));
        drop(first);
        // Without a claim it ends.
        upload.wait_until_unused();
        assert!(matches!(upload.claim(ByteRange::new(10, 20)), Err(NotStarted::Superseding)));
    }
}
