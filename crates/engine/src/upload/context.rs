//! The file and the options of one upload, shared by all its connections.

use std::sync::Arc;

use longhaul_core::event::{Event, Warning};
use longhaul_core::pace::Pace;
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;

use super::MAX_REPAIRS;
use super::error::UploadError;
use super::known_path::UploadPath;
use super::progress::UploadProgress;
use super::ranges;
use super::request::PutRequest;
use crate::send::{Reader, SourceFile, Supply};
use crate::source::http::UrlAndPeer;

/// The file and the options of an upload, whatever the protocol.
#[derive(Clone, Copy)]
pub(super) struct UploadContext<'a> {
    pub(super) request: &'a PutRequest,
    pub(super) progress: &'a UploadProgress<'a>,
    pub(super) source: &'a Arc<SourceFile>,
    pub(super) reader: Reader,
    /// The measurements of the path by earlier uploads.
    pub(super) path: &'a UploadPath,
    /// The congestion control after slow start.
    pub(super) congestion: Option<&'a str>,
}

impl UploadContext<'_> {
    /// Fails if the source has changed.
    pub(super) fn check_source(&self) -> Result<(), UploadError> {
        Ok(self.source.check()?)
    }

    /// Records the ranges that the server holds.
    pub(super) fn found(&self, held: &RangeSet) {
        self.progress.found(held, self.source, self.reader);
    }

    /// Adapts the reader of one stream to several streams.
    pub(super) fn read_for_several(&mut self) {
        self.reader = ranges::reader(self.reader, self.request.reader);
    }

    /// Counts a round in which `wrong` ranges are sent again to `at`, and warns of them. Fails after too many rounds, or if ranges
    /// cannot be sent.
    pub(super) fn begin_repair(
        &self,
        at: &UrlAndPeer,
        wrong: &RangeSet,
        rounds: &mut u32,
        is_repairable: bool,
    ) -> Result<(), UploadError> {
        if *rounds == MAX_REPAIRS || !is_repairable {
            return Err(UploadError::corrupted(at, wrong, *rounds));
        }
        *rounds += 1;
        if wrong.total() > Bytes::ZERO {
            let (ranges, server) = (wrong.clone(), at.to_string());
            self.progress.emit(&Event::Warning(Warning::WrongOnServer { ranges, server }));
        }
        Ok(())
    }

    /// Opens a range of the file for sending.
    pub(super) fn supply(&self, range: ByteRange) -> Result<Supply, UploadError> {
        Supply::open(self.source, self.reader, range, self.progress.tree())
            .map_err(|error| self.source.unreadable(&error).into())
    }

    /// Returns the pacing of each of several connections. [`Pace::Auto`] then paces none: they share the path by their windows.
    ///
    /// Each connection would take the queue of the others for the path's. At 1 Gbit/s, RTT 302 ms, a queue of 1 MB and stock hosts
    /// (docs/pacing.md), separately paced connections take 1.1 times as long and lose as many packets.
    pub(super) fn pace_of_several(&self) -> Pace {
        if self.request.transfer.pace == Pace::Auto { Pace::Off } else { self.request.transfer.pace }
    }
}
