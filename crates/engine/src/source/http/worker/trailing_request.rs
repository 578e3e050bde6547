//! A request behind the last range of a connection, so that the last packet before its answer is not held back.

use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;

use super::Exchange;
use crate::source::StreamPeer;
use crate::source::http::Read;
use crate::source::http::connection::Connection;
use crate::source::http::error::HttpError;
use crate::transfer::error::{Cause, SourceError};

/// What a trailing request asks for: its answer fills the packet with the last bytes before it, and one more, on Ethernet.
const TRAILING: Bytes = Bytes::kib(4);
/// With less than this outstanding a trailing answer would be a noticeable part of the traffic.
const WORTH_TRAILING: Bytes = Bytes::kib(256);

impl Exchange<'_, '_, '_> {
    /// Requests some bytes once more behind the last range of a connection, for the sake of what comes before them.
    ///
    /// Nagle's algorithm (RFC 9293, section 3.7.4) holds back the last packet of an answer, which is not full, until all before it is
    /// acknowledged: a round trip, with nginx and `tcp_nopush`. Behind it lies another answer here, which fills the packet. That is not
    /// waited for; the connection is of no further use, as its window is held for this path.
    pub(super) fn request_trailing(
        &mut self,
        connection: &mut Connection,
        outstanding: Bytes,
    ) -> Result<(), SourceError> {
        let file = &self.described.file;
        let pays = outstanding >= WORTH_TRAILING && file.identity.is_some() && !file.paced;
        if !pays || !self.stream.holds_window() || !self.stream.is_all_leased() {
            return Ok(());
        }
        connection.send_get(file.request(ByteRange::with_len(0, TRAILING)).as_ref())?;
        self.worker.trails = true;
        Ok(())
    }

    /// Reads the answer to a trailing request, where there is more to request after all; returns whether the connection can
    /// be used for that. No failure of the answer counts, for it was not needed.
    pub(super) fn skip_trailing_answer(&mut self, connection: &mut Connection) -> Result<bool, SourceError> {
        if !std::mem::take(&mut self.worker.trails) {
            return Ok(true);
        }
        match connection.read_head() {
            // A whole file takes longer than a new connection.
            Ok(head) if head.status() != 206 => return Ok(false),
            Ok(_) => {}
            Err(HttpError::Cancelled) => return Err(HttpError::Cancelled.into()),
            Err(_) => return Ok(false),
        }
        let (mut buffer, mut left) = ([0; TRAILING.get() as usize], TRAILING);
        loop {
            match connection.read_body(&mut buffer) {
                Ok(Read::End) => return Ok(connection.reusable()),
                // More than was requested.
                Ok(Read::Data(_)) if left == Bytes::ZERO => return Ok(false),
                Ok(Read::Data(bytes)) => left = left - Bytes::new(bytes as u64),
                Ok(Read::Idle) => match self.stream.check_alive(self.worker.source.shown()) {
                    Err(error) if error.cause == Cause::Interrupted => return Err(error),
                    Err(_) => return Ok(false),
                    Ok(()) => {}
                },
                Err(HttpError::Cancelled) => return Err(HttpError::Cancelled.into()),
                Err(_) => return Ok(false),
            }
        }
    }
}
