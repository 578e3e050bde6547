//! Receives one range of an upload on a thread of its own, beside other ranges.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use longhaul_core::proto::http::{ReplyHead, UPLOAD_COMPLETE, upload_bool};
use longhaul_core::units::Bytes;

use super::active::{ActiveUploads, UploadLiveness};
use super::body_receiver::{BodyConnection, BodyReceiver, BodyTarget, ReceiveError};
use super::ranged::RangeClaim;
use super::worker::UploadOutcome;
use crate::connection_limit::ConnectionWatch;
use crate::reply::Reply;

/// A range whose body can be received.
pub(super) struct InboundRange {
    claim: RangeClaim,
    active: Arc<ActiveUploads>,
}

impl InboundRange {
    pub(super) fn new(claim: RangeClaim, active: &Arc<ActiveUploads>) -> Self {
        Self { claim, active: Arc::clone(active) }
    }

    pub(super) fn add_connection(&self, connection: Option<ConnectionWatch>) {
        self.claim.upload.add_connection(connection);
    }

    pub(super) fn liveness(&self) -> &Arc<UploadLiveness> {
        &self.claim.liveness
    }

    /// Receives the body; the reply says that it is received, not that it is on the device.
    pub(super) fn run(self, mut connection: BodyConnection) -> UploadOutcome {
        let mut received = Bytes::ZERO;
        let body = self.write_body(&mut connection, &mut received);
        connection.body_received.store(body.is_ok(), Ordering::Relaxed);
        let reply = match (self.claim.upload.refusal(), body) {
            (Some(refused), _) => refused,
            (None, Err(error)) => error.reply(),
            (None, Ok(())) => Reply::empty(ReplyHead::new(202).with(UPLOAD_COMPLETE, upload_bool(false))),
        };
        let body_read = connection.body.is_done();
        UploadOutcome { reply, received, body_read, inbox: connection.body.into_inbox() }
    }

    fn write_body(&self, connection: &mut BodyConnection, received: &mut Bytes) -> Result<(), ReceiveError> {
        let RangeClaim { upload, range, liveness, .. } = &self.claim;
        let inlet = upload.pipeline().inlet_to(upload.queue().ok_or(ReceiveError::Cancelled)?);
        let target = BodyTarget { range: *range, active: &self.active, liveness, unknown_size: None };
        BodyReceiver::new(target, connection, inlet, &liveness.cancel).run(received)
    }
}
