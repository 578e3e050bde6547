//! A server that takes ranges of one upload over several connections.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use longhaul_core::pace::Pace;
use longhaul_core::units::{Bytes, Rate};

use super::body::DropBehind;
use super::progress::UploadProgress;
use super::range_worker::RangeWorker;
use super::request::PutRequest;
use super::resumable::{UploadResource, hashes_in_passing};
use super::session::UploadSession;
use crate::pacing::{PacingHandle, PacingStart, PacingThread};
use crate::send::{Reader, SourceFile};
use crate::source::http::{Client, Connection, ResolvedUrl};
use crate::source::{StreamPeer, StreamWorker};
use crate::threads::lock;

/// What the streams of an upload have in common.
pub(super) struct RangePeer<'a> {
    pub(super) request: &'a PutRequest,
    pub(super) progress: &'a UploadProgress<'a>,
    pub(super) source: &'a Arc<SourceFile>,
    pub(super) reader: Reader,
    pub(super) client: &'a Client,
    /// The file's URL there, after redirects.
    pub(super) target: &'a ResolvedUrl,
    /// The query that makes it the upload's.
    pub(super) query: &'a str,
    /// Whether the server hashes what it receives.
    pub(super) hash: bool,
    congestion: Option<&'a str>,
    pacing: &'a PacingThread,
    /// Whether the server has a part of the upload. A range that is locked there is then locked by an earlier connection of this
    /// client.
    began: bool,
    /// Whether the server has taken a range.
    accepts: AtomicBool,
    behind: Option<Mutex<DropBehind>>,
    shown: String,
}

impl<'a> RangePeer<'a> {
    pub(super) fn new(session: &'a UploadSession<'a>, resource: &'a UploadResource, began: bool) -> Self {
        let (request, source, reader) = (session.request, session.source, session.reader);
        Self {
            request,
            progress: session.progress,
            source,
            reader,
            client: session.client,
            target: &session.target,
            query: &resource.query,
            hash: hashes_in_passing(session),
            congestion: session.congestion.as_deref(),
            pacing: &session.pacing,
            began,
            accepts: AtomicBool::new(false),
            behind: DropBehind::of(source, reader).map(Mutex::new),
            shown: session.target.safe_url().to_string(),
        }
    }

    /// Returns whether a locked range can only be locked by a connection of this client.
    pub(super) fn owns_locks(&self) -> bool {
        self.began || self.accepts.load(Ordering::Relaxed)
    }

    /// Notes that the server has taken a range, and has the file up to `present` without a gap.
    pub(super) fn accepted(&self, present: Bytes) {
        self.accepts.store(true, Ordering::Relaxed);
        if let Some(behind) = &self.behind {
            lock(behind).follow(present, self.progress);
        }
    }

    /// Paces one of `streams` connections: a rate is for all of them together.
    pub(super) fn pace(&self, connection: &Connection, streams: usize) -> Option<PacingHandle> {
        let pace = match self.request.pace {
            Pace::Rate(rate) => {
                let share = rate.as_bits_per_sec() / streams.max(1) as u64;
                Pace::Rate(Rate::bits_per_sec(share.max(8)))
            }
            pace => pace,
        };
        let paced = self.pacing.pace(connection.socket(), pace, self.congestion, PacingStart::default());
        let paced = paced.inspect_err(|error| tracing::warn!("not paced: {error}")).ok().flatten();
        if let Some(paced) = &paced {
            paced.pause();
        }
        paced
    }
}

impl StreamPeer for RangePeer<'_> {
    fn shown(&self) -> &str {
        &self.shown
    }

    fn worker(&self) -> Box<dyn StreamWorker + '_> {
        Box::new(RangeWorker::new(self))
    }

    fn receives(&self) -> bool {
        true
    }
}
