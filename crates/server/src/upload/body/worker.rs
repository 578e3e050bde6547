//! Receives an upload on a thread of its own: socket to segments; `completion` gives the file its
//! name.

use std::sync::Arc;
use std::thread;
use std::time::SystemTime;

use longhaul_core::checksum::Checksum;
use longhaul_core::proto::http::UploadId;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;
use longhaul_engine::sink::output_error::OutputError;
use longhaul_engine::tree_digest::TreeDigest;
use parking_lot::Mutex;

use crate::upload::Uploads;
use crate::upload::body::body_receiver::{
    BodyConnection, BodyReceiver, BodyTarget, UnknownSize, UploadOutcome,
};
use crate::upload::body::opened::OpenedUpload;
use crate::upload::registry::active::UploadLiveness;
use crate::upload::request::refusal;

/// What to do when the body is received.
pub(crate) enum AfterBody {
    /// Keep the partial file for further parts.
    KeepPartial,
    /// The file is complete: verify its digest, and give it its final name. Where the digest is
    /// wrong, the upload is kept for a client that takes the digests of pieces, and deleted for any
    /// other.
    Finish { digest: Option<Checksum>, modified: Option<SystemTime>, replace: bool, takes_pieces: bool },
}

/// An upload that receives one body at a time; dropping it removes a partial file that cannot be
/// resumed.
pub(crate) struct InboundUpload {
    pub(crate) opened: OpenedUpload,
    pub(crate) after: AfterBody,
    /// Whether a file of this name existed before.
    pub(crate) exists: bool,
    pub(crate) uploads: Arc<Uploads>,
    /// The ID of a resumable upload, under which it is entered when it is complete.
    pub(crate) id: Option<UploadId>,
    /// The digest of a resumable upload, which its next request continues.
    pub(crate) digest: Option<Arc<TreeDigest>>,
}

impl InboundUpload {
    pub(crate) fn liveness(&self) -> &Arc<UploadLiveness> {
        &self.opened.liveness
    }

    /// Receives the body, then concludes the request.
    pub(crate) fn run(self, mut connection: BodyConnection) -> UploadOutcome {
        let OpenedUpload { pipeline, writer, liveness, .. } = &self.opened;
        let before = pipeline.resumed();
        let failure: Mutex<Option<OutputError>> = Mutex::default();
        let stop = liveness.cancel.child();
        let fail = |error: OutputError| {
            failure.lock().get_or_insert(error);
            stop.cancel();
        };
        let mut received = Bytes::ZERO;
        let body = thread::scope(|threads| {
            let (inlet, segments) = pipeline.inlet();
            let running = pipeline.start(threads, writer, &segments, &fail);
            let range = ByteRange::new(before.get(), pipeline.size().map_or(u64::MAX, Bytes::get));
            let partials = &*self.uploads.partials;
            let unknown_size = pipeline.size().is_none().then_some(UnknownSize { partials, pipeline });
            let target = BodyTarget { range, active: &self.uploads.active, liveness, unknown_size };
            let body = BodyReceiver::new(target, &mut connection, inlet, &stop).run(&mut received);
            liveness.set_last_data(None);
            running.end();
            body
        });
        let failure = failure.into_inner();
        let reply = match (failure, body) {
            (Some(error), _) => Err(refusal::output(&error)),
            (None, Err(refused)) => Err(refused),
            (None, Ok(())) => self.conclude(before + received, &liveness.cancel),
        };
        connection.end(reply.unwrap_or_else(|refused| refused), received)
    }
}

impl Drop for InboundUpload {
    /// Removes the partial file of a PUT, which cannot be resumed.
    fn drop(&mut self) {
        // After completion the part file has the target's name, and its former name may belong to
        // another upload.
        let pipeline = &self.opened.pipeline;
        if pipeline.journal().is_none() && pipeline.part().check_name().is_ok() {
            self.uploads.partials.discard(pipeline.part());
        }
    }
}
