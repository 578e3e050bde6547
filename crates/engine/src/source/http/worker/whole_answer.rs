//! Takes the missing ranges from an answer with the whole file, of a server that fails at ranges.

use longhaul_core::failure::Failure;
use longhaul_core::units::Bytes;

use super::Exchange;
use crate::source::StreamPeer;
use crate::source::http::Read;
use crate::source::http::connection::Connection;
use crate::source::http::error::closed_early;
use crate::source::http::http_source::first_answer::RangeFailure;

/// The bytes that are read at once and discarded.
const SKIPPED_AT_ONCE: Bytes = Bytes::kib(256);

impl Exchange<'_, '_, '_> {
    /// Returns whether requests are for the whole file.
    pub(super) fn asks_whole(&self) -> bool {
        let file = &self.described.file;
        file.is_recognised_whole() && (self.worker.asks_whole || file.refuses_ranges())
    }

    /// Begins to take leases, the first at `start`, from an answer with the whole file.
    pub(super) fn take_whole(&mut self, connection: &mut Connection, start: u64) -> Result<(), Failure> {
        self.in_whole = true;
        if self.described.file.refuse_ranges()
            && let Some(target) = self.worker.location.target()
        {
            self.described.client.note_range_failure(target, RangeFailure::Broken);
        }
        self.skip_to(connection, start)
    }

    /// Reads and discards the answer up to a lease that begins at `start`.
    pub(super) fn skip_to(&mut self, connection: &mut Connection, start: u64) -> Result<(), Failure> {
        let mut scrap = vec![0; SKIPPED_AT_ONCE.as_usize()];
        loop {
            let at = connection.body_position();
            let is_leased = self.stream.front().is_some_and(|front| front.start() == start);
            if !is_leased || at > start {
                return Err(Failure::stolen(self.shown()));
            }
            if at == start {
                return Ok(());
            }
            let part = Bytes::new(start - at).min(SKIPPED_AT_ONCE).as_usize();
            match connection.read_body(&mut scrap[..part])? {
                Read::Data(bytes) => self.stream.discarded(bytes, connection.socket()),
                Read::Idle => {}
                Read::End => {
                    let (got, expected) = (Bytes::new(at), self.described.file.size);
                    return Err(closed_early(connection.at(), got, expected));
                }
            }
            self.stream.check_alive(self.worker.source.shown())?;
        }
    }
}
