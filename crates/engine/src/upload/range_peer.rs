//! A server that accepts ranges of one upload over several connections.

use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::proto::http::{Ask, FileRange, UploadRange};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;

use super::body::DropBehind;
use super::context::UploadContext;
use super::range_worker::RangeWorker;
use super::session::UploadSession;
use super::shared_pace::SharedPace;
use crate::source::http::{Client, ResolvedUrl};
use crate::source::{StreamPeer, StreamWorker};
use crate::transfer::Sending;

/// The destination of ranges.
pub(super) struct RangeTarget<'a> {
    /// The file's URL, after redirects.
    pub(super) url: ResolvedUrl,
    /// The query that names the upload to which ranges are added; `None` if they are stored in the file itself.
    pub(super) query: Option<&'a str>,
    /// Whether ranges of an upload are hashed on receipt.
    pub(super) hash: bool,
    /// Whether the server has a part of the upload. If so, a locked range is locked by an earlier
    /// connection of this client.
    pub(super) began: bool,
}

impl RangeTarget<'_> {
    /// Returns the URL for range requests, given the file's `url`.
    pub(super) fn requested(&self, url: &ResolvedUrl) -> ResolvedUrl {
        self.query.map_or_else(|| url.clone(), |query| url.with_query(query))
    }

    /// Returns the file's URL, given the `url` that range requests were redirected to.
    pub(super) fn redirected(&self, url: ResolvedUrl) -> ResolvedUrl {
        if let Some(query) = self.query { url.without_query(query) } else { url }
    }

    /// Creates the request for a range of a file of `whole` bytes.
    pub(super) fn ask(&self, range: ByteRange, whole: Bytes) -> Ask<'static> {
        match self.query {
            Some(_) => Ask::PatchRange(UploadRange { range, whole, hash: self.hash }),
            None => Ask::PutRange(FileRange { range, whole }),
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
