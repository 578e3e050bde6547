//! A server that receives one file over several data connections, opened by this host (MODE E,
//! GFD.20).

use std::io;

use longhaul_core::units::Bytes;
use parking_lot::Mutex;

use super::block_worker::BlockWorker;
use super::data_sender::DataSender;
use crate::cancel::Cancel;
use crate::source::gridftp::BlockDialler;
use crate::source::http::UrlAndPeer;
use crate::source::{StreamPeer, StreamWorker};
use crate::transfer::Sending;
use crate::upload::body::DropBehind;
use crate::upload::context::UploadContext;
use crate::upload::error::UploadError;
use crate::upload::shared_pace::SharedPace;

/// The state shared by the data connections of one STOR or ESTO.
pub(super) struct BlockPeer<'a> {
    pub(super) context: UploadContext<'a>,
    pub(super) dialler: BlockDialler<'a>,
    pub(super) pace: SharedPace<'a>,
    /// The URL and the server's address, for errors.
    pub(super) at: UrlAndPeer,
    shown: String,
    behind: DropBehind,
    /// Connections that have sent all their blocks, but not yet EOD.
    sent: Mutex<Vec<DataSender>>,
    /// Raised once the store has failed.
    over: Cancel,
    failure: Mutex<Option<UploadError>>,
}

impl<'a> BlockPeer<'a> {
    /// Creates the peer of a store that ends with `stop`.
    pub(super) fn new(
        context: UploadContext<'a>,
        dialler: BlockDialler<'a>,
        (pace, at): (SharedPace<'a>, UrlAndPeer),
        stop: &Cancel,
    ) -> Self {
        Self {
            context,
            dialler,
            pace,
            shown: at.url.to_string(),
            at,
            behind: DropBehind::of(&context),
            sent: Mutex::default(),
            over: stop.child(),
            failure: Mutex::default(),
        }
    }

    /// Ends the store: the server discards a store that lacks one of its connections.
    pub(super) fn fail(&self, error: UploadError) {
        self.failure.lock().get_or_insert(error);
        self.over.cancel();
    }

    /// Creates the error of a broken connection.
    pub(super) fn broken(&self, source: io::Error) -> UploadError {
        UploadError::Send(self.at.clone(), source)
    }

    /// Returns whether the store has failed, or the upload is cancelled.
    pub(super) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Takes the error of the store.
    pub(super) fn take_failure(&self) -> Option<UploadError> {
        self.failure.lock().take()
    }

    /// Keeps a connection whose blocks are all sent; it is ended once the number of connections is
    /// final.
    pub(super) fn all_sent(&self, connection: DataSender) {
        self.sent.lock().push(connection);
    }

    /// Takes the connections that have sent all their blocks.
    pub(super) fn take_sent(&self) -> Vec<DataSender> {
        std::mem::take(&mut self.sent.lock())
    }

    /// Records that the server has the file up to `present` without a gap.
    pub(super) fn acknowledged(&self, present: Bytes) {
        self.behind.follow(self.context.progress, || present);
    }
}

impl StreamPeer<Sending> for BlockPeer<'_> {
    fn shown(&self) -> &str {
        &self.shown
    }

    fn worker(&self) -> Box<dyn StreamWorker<Sending> + '_> {
        Box::new(BlockWorker { peer: self })
    }
}
