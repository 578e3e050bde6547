//! Sends the ranges that the server lacks over several streams, with the schedule and stream
//! control of a fetch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crossbeam_channel::Receiver;
use longhaul_core::failure::Failure;
use longhaul_core::pace::Pace;
use longhaul_core::proto::http::{FileRange, RequestMethod, UploadRange};
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::schedule::{Blocks, RangeScheduler};
use longhaul_core::tune::streams::{StreamBound, StreamTunerStart};
use longhaul_core::tune::{INITIAL_SEGMENTS, MAX_STREAMS};
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_sys::host;

use super::body::DropBehind;
use super::context::UploadContext;
use super::error::UploadError;
use super::progress::prefix;
use super::range_worker::RangeWorker;
use super::session::UploadSession;
use super::shared_pace::SharedPace;
use crate::rate_limit::RateLimit;
use crate::source::http::{Client, ResolvedUrl};
use crate::source::{StreamPeer, StreamWorker};
use crate::streams::{CountControl, CountStart, Starter, StreamSet, chosen};
use crate::transfer::recv_buffer::PLANNED_RATE;
use crate::transfer::{Round, RoundEnd, Sending, SourceLiveness, Streams};

/// Ranges end on multiples of this size, the size of the blocks that the server hashes on receipt.
pub(super) const ALIGNMENT: Bytes = Bytes::kib(64);
/// A smaller remainder is sent in one request.
const WORTH_SEVERAL: Bytes = Bytes::mib(16);
/// The share of a full send buffer that is in flight: 3.8 MB of 4 MiB at 10 Gbit/s, 200 ms (25
/// November 2026). The kernel reports a socket as writable only once a third of it is free.
const IN_FLIGHT_PERCENT: u64 = 90;
/// The payload of a packet on Ethernet (MTU 1500, with TCP timestamps).
const SEGMENT: Bytes = Bytes::new(1448);

/// The destination of ranges.
pub(super) struct RangeTarget<'a> {
    /// The file's URL, after redirects.
    pub(super) url: ResolvedUrl,
    /// The query that names the upload to which ranges are added; `None` if they are stored in the
    /// file itself.
    pub(super) query: Option<&'a str>,
    /// Whether ranges of an upload are hashed on receipt.
    pub(super) hash: bool,
    /// Whether the server has a part of the upload. If so, a locked range is locked by an earlier
    /// connection of this client.
    pub(super) began: bool,
}

impl RangeTarget<'_> {
    /// Creates the request for a range of a file of `whole` bytes.
    pub(super) fn ask(&self, range: ByteRange, whole: Bytes) -> RequestMethod<'static> {
        match self.query {
            Some(_) => RequestMethod::PatchRange(UploadRange { range, whole, hash: self.hash }),
            None => RequestMethod::PutRange(FileRange { range, whole }),
        }
    }
}

/// The state shared by the streams of an upload.
pub(super) struct RangePeer<'a> {
    pub(super) context: UploadContext<'a>,
    pub(super) client: &'a Client,
    pub(super) target: &'a RangeTarget<'a>,
    pub(super) pace: SharedPace<'a>,
    /// Whether the server has accepted a range.
    accepts: AtomicBool,
    behind: DropBehind,
    shown: String,
}

impl<'a> RangePeer<'a> {
    pub(super) fn new(session: &'a UploadSession<'a>, target: &'a RangeTarget<'a>) -> Self {
        let context = session.context;
        Self {
            context,
            client: session.client,
            target,
            pace: context.shared_pace(context.pace_of_several()),
            accepts: AtomicBool::new(false),
            behind: DropBehind::of(&context),
            shown: target.url.safe_url().to_string(),
        }
    }

    /// Returns whether only a connection of this client can hold a lock on a range.
    pub(super) fn owns_locks(&self) -> bool {
        self.target.began || self.accepts.load(Ordering::Relaxed)
    }

    /// Records that the server has accepted a range, and has the file up to `present` without a
    /// gap.
    pub(super) fn accepted(&self, present: Bytes) {
        self.accepts.store(true, Ordering::Relaxed);
        self.behind.follow(self.context.progress, || present);
    }
}

impl StreamPeer<Sending> for RangePeer<'_> {
    fn shown(&self) -> &str {
        &self.shown
    }

    fn worker(&self) -> Box<dyn StreamWorker<Sending> + '_> {
        Box::new(RangeWorker::new(self))
    }
}

/// Runs a round that sends the ranges that the server lacks to `peer`. `await_end` returns once its
/// channel, which carries no messages, is disconnected: every stream has ended then.
///
/// # Errors
/// [`UploadError::Streams`] if no stream is left.
pub(super) fn run_round(
    context: &UploadContext<'_>,
    (peer, end): (&dyn StreamPeer<Sending>, &RoundEnd),
    held: &RangeSet,
    control: CountControl,
    await_end: impl FnOnce(&Receiver<()>, &StreamSet<'_, Sending>),
) -> Result<(), UploadError> {
    let (request, progress) = (context.request, context.progress);
    let gaps = held.gaps(ByteRange::with_len(0, progress.size));
    let mut scheduler =
        RangeScheduler::new(Blocks::new(gaps, control.streams(), control.is_controlled(), ALIGNMENT));
    if let Some(chunk) = control.first_chunk() {
        scheduler.allow(chunk);
    }
    let schedule = progress.transfer.schedule(scheduler, true);
    progress.begin_ranges(held, Arc::clone(&schedule));
    let round = Round::<Sending>::new(&progress.transfer, end, schedule, &request.transfer, ());
    let set = StreamSet::new(&round, peer, 0, control.is_controlled());
    thread::scope(|threads| {
        let (alive, ended) = crossbeam_channel::bounded(0);
        let starter = Starter { threads, alive };
        set.progress().set_liveness(SourceLiveness::Usable);
        let tuner = control.start(&set, starter.clone());
        drop(starter);
        await_end(&ended, &set);
        // A fixed pace is none of the path.
        if let Some(found) = tuner.and_then(|tuner| tuner.join().ok().flatten())
            && request.transfer.pace.rate().is_none()
        {
            context.path.found(found);
        }
    });
    let is_complete = round.schedule.is_done();
    match end.take_error(is_complete) {
        Some(error) => Err(error.into()),
        None if is_complete => Ok(()),
        None => Err(Failure::interrupted().into()),
    }
}

/// Chooses the number of streams to a server that accepts ranges over `most` connections at once;
/// `None` if one request sends all that the server lacks.
pub(super) fn control(
    session: &UploadSession<'_>,
    most: Option<usize>,
    held: &RangeSet,
) -> Option<CountControl> {
    let size = session.context.progress.size;
    let rtt = session.connection.rtt().unwrap_or_default();
    let left = size - held.total();
    let control = control_of(&session.context, rtt, left, most?);
    // A single request would resend ranges after the first gap.
    let has_prefix_only = held.total() == prefix(held, size);
    let one_request = !control.is_controlled() && control.streams() == 1 && has_prefix_only;
    (!one_request && left > Bytes::ZERO).then_some(control)
}

/// Chooses the number of streams for `left` bytes to a server that accepts at most `most`.
pub(super) fn control_of(context: &UploadContext<'_>, rtt: Rtt, left: Bytes, most: usize) -> CountControl {
    let (request, most) = (context.request, most.min(MAX_STREAMS));
    let bound = send_bound(request.transfer.pace, request.transfer.limit.as_ref().and_then(RateLimit::rate));
    let start = CountStart {
        divisible: true,
        alone: left < WORTH_SEVERAL || bound.is_none_or(|bound| bound.line.bdp(rtt) <= bound.window),
        first_window: SEGMENT * INITIAL_SEGMENTS,
        rest: left,
        tuner: StreamTunerStart { rtt, left, most, remembered: context.path.remembered(rtt), bound },
        multiplexed: false,
    };
    let streams = match request.transfer.streams {
        Streams::Fixed(streams) => Streams::Fixed(streams.min(most)),
        streams => streams,
    };
    chosen(streams, &request.transfer.stream_cap, &start)
}

/// Returns the bound of each connection, and the maximum rate; `None` if the kernel does not report
/// its send buffer.
fn send_bound(pace: Pace, limit: Option<Rate>) -> Option<StreamBound> {
    let window = Bytes::new(host::tcp_wmem_max()?.get() / 100 * IN_FLIGHT_PERCENT);
    let paced = if let Pace::Rate(rate) = pace { rate } else { PLANNED_RATE };
    let line = PLANNED_RATE.min(paced).min(limit.unwrap_or(PLANNED_RATE));
    Some(StreamBound { window, line })
}

/// Sends the ranges that the server lacks to `target`; returns once the server has confirmed every
/// range.
///
/// Confirmed ranges need not be on the server's device yet: the answer to the completing request
/// names missing ones.
///
/// # Errors
/// [`UploadError::Streams`] if no stream is left.
pub(super) fn send(
    session: &mut UploadSession<'_>,
    target: &RangeTarget<'_>,
    held: &RangeSet,
    control: CountControl,
) -> Result<(), UploadError> {
    session.close();
    let peer = RangePeer::new(session, target);
    let end = RoundEnd::new(session.context.progress.cancel.child());
    run_round(&session.context, (&peer, &end), held, control, |ended, _| {
        let _ = ended.recv();
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn several_streams_only_if_the_send_buffer_bounds_one() {
        let window = host::tcp_wmem_max().unwrap();
        let rtt = |rate: Rate| Rtt::new(rate.time_for(window));
        let suffices = |rtt: Rtt, pace, limit| {
            send_bound(pace, limit).is_some_and(|bound| bound.line.bdp(rtt) <= bound.window)
        };
        let (short, long) = (rtt(PLANNED_RATE), Rtt::new(rtt(PLANNED_RATE).get() * 4));
        assert!(suffices(Rtt::new(short.get() / 2), Pace::Auto, None) && !suffices(long, Pace::Auto, None));
        let tenth = Rate::bits_per_sec(PLANNED_RATE.as_bits_per_sec() / 10);
        assert!(suffices(long, Pace::Rate(tenth), None) && suffices(long, Pace::Off, Some(tenth)));
        assert!(suffices(Rtt::new(Duration::ZERO), Pace::Off, None));
    }
}
