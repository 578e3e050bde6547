//! The file and the options of one upload, shared by all its connections.

use std::sync::Arc;

use longhaul_core::pace::Pace;
use longhaul_core::ranges::ByteRange;

use super::error::UploadError;
use super::known_path::UploadPath;
use super::progress::UploadProgress;
use super::request::PutRequest;
use super::shared_pace::SharedPace;
use crate::pacing::PacingThread;
use crate::send::{Reader, ReaderChoice, SourceFile, Supply};

/// The file and the options of an upload, whatever the protocol.
#[derive(Clone, Copy)]
pub(super) struct UploadContext<'a> {
    pub(super) request: &'a PutRequest,
    pub(super) progress: &'a UploadProgress<'a>,
    pub(super) source: &'a Arc<SourceFile>,
    pub(super) reader: Reader,
    /// The measurements of the path by earlier uploads.
    pub(super) path: &'a UploadPath,
    pub(super) pacing: &'a PacingThread,
    /// The congestion control after slow start.
    pub(super) congestion: Option<&'a str>,
}

impl<'a> UploadContext<'a> {
    /// Returns the pacing of the connections to one server.
    pub(super) fn shared_pace(&self, pace: Pace) -> SharedPace<'a> {
        SharedPace::new(self.pacing, pace, self.congestion)
    }

    /// Adapts the reader of one stream to several streams.
    pub(super) fn read_for_several(&mut self) {
        // A ring of blocks for each stream would need too much memory.
        if let (Reader::Direct { .. }, ReaderChoice::Auto) = (self.reader, self.request.reader) {
            self.reader = Reader::PageCache { drop_behind: true };
        }
    }

    /// Opens a range of the file for sending.
    pub(super) fn supply(&self, range: ByteRange) -> Result<Supply, UploadError> {
        Supply::open(self.source, self.reader, range, self.progress.tree.get())
            .map_err(|error| self.source.unreadable(&error).into())
    }

    /// Returns the pacing of each of several connections. [`Pace::Auto`] then paces none: they
    /// share the path by their windows.
    ///
    /// Each connection would take the queue of the others for the path's. At 1 Gbit/s, RTT 302 ms,
    /// a queue of 1 MB and stock hosts (docs/pacing.md), separately paced connections take 1.1
    /// times as long and lose as many packets.
    pub(super) fn pace_of_several(&self) -> Pace {
        if self.request.transfer.pace == Pace::Auto { Pace::Off } else { self.request.transfer.pace }
    }
}
