//! Sends a request after the last range of a connection, so that the last packet before its answer
//! is not delayed.

use longhaul_core::failure::{Cause, Failure};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;

use super::Exchange;
use crate::connect::Received;
use crate::source::StreamPeer;
use crate::source::http::connection::Connection;

/// The length of a trailing request: on Ethernet its answer fills the packet with the last bytes,
/// and one more.
const TRAILING: Bytes = Bytes::kib(4);
/// With fewer bytes outstanding, a trailing answer would be a noticeable share of the traffic.
const WORTH_TRAILING: Bytes = Bytes::kib(256);

impl Exchange<'_, '_, '_> {
    /// Requests some bytes again after the last range of a connection, to accelerate the bytes
    /// before them.
    ///
    /// Nagle's algorithm (RFC 9293, section 3.7.4) delays the last, partly filled packet of an
    /// answer until all earlier packets are acknowledged: a round trip, with nginx and
    /// `tcp_nopush`. A following answer fills the packet. That answer is not awaited, and the
    /// connection is closed, because its window is clamped for this path.
    pub(super) fn request_trailing(
        &mut self,
        connection: &mut Connection,
        outstanding: Bytes,
    ) -> Result<(), Failure> {
        let file = &self.described.file;
        let pays = outstanding >= WORTH_TRAILING
            && file.identity.is_some()
            && file.pace.is_none()
            && !file.refuses_ranges();
        if !pays || !self.stream.holds_window() || !self.stream.is_all_leased() {
            return Ok(());
        }
        connection.send_get(file.request(ByteRange::with_len(0, TRAILING)).as_ref())?;
        self.trails = true;
        Ok(())
    }

    /// Reads the answer to a trailing request if further ranges are to be requested after all;
    /// returns whether the connection can be used. Failures of the answer are ignored, because its
    /// bytes are not needed.
    pub(super) fn skip_trailing_answer(&mut self, connection: &mut Connection) -> Result<bool, Failure> {
        if !std::mem::take(&mut self.trails) {
            return Ok(true);
        }
        match connection.read_head() {
            // Reading a whole file takes longer than a new connection.
            Ok(head) if head.status() != 206 => return Ok(false),
            Ok(_) => {}
            Err(error) if error.is_cancelled() => return Err(error.into()),
            Err(_) => return Ok(false),
        }
        let (mut buffer, mut left) = ([0; TRAILING.get() as usize], TRAILING);
        loop {
            match connection.read_body(&mut buffer) {
                Ok(Received::End { .. }) => return Ok(connection.reusable()),
                // More than was requested.
                Ok(Received::Data(_)) if left == Bytes::ZERO => return Ok(false),
                Ok(Received::Data(bytes)) => left = left - Bytes::new(bytes as u64),
                Ok(Received::Idle) => match self.stream.check_alive(self.worker.source.shown()) {
                    Err(error) if error.cause == Cause::Interrupted => return Err(error),
                    Err(_) => return Ok(false),
                    Ok(()) => {}
                },
                Err(error) if error.is_cancelled() => return Err(error.into()),
                Err(_) => return Ok(false),
            }
        }
    }
}
