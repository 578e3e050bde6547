//! Manages the data connections of an exchange, from accept to close.

use std::time::Instant;

use longhaul_core::units::Bytes;

use super::ChunkFetch;
use crate::source::gridftp::error::FtpError;

impl ChunkFetch<'_, '_, '_, '_> {
    /// Accepts connections opened by the server.
    pub(super) fn accept(&mut self) -> Result<(), FtpError> {
        let Some(data) = &mut self.session.data else { return Ok(()) };
        if data.accept(self.context.access.at())? == 0 {
            return Ok(());
        }
        if data.opens_anew() {
            self.context.worker.requests_ahead = false;
        }
        self.take_in_channels();
        self.progress = (Instant::now(), 0);
        Ok(())
    }

    /// Assigns new connections to the outstanding chunk.
    ///
    /// A server that opens new connections for each chunk may have started the next requested chunk
    /// while data of the current one is still in the sockets. Therefore nothing is assigned while
    /// several chunks are outstanding.
    ///
    /// # Errors
    /// [`FtpError::OpenedAnew`] if the current chunk has no connection left, and the new ones may
    /// belong to several chunks.
    pub(super) fn assign_channels(&mut self) -> Result<(), FtpError> {
        let Some(data) = &mut self.session.data else { return Ok(()) };
        let Some(front) = self.chunks.front() else { return Ok(()) };
        if data.channels.iter().all(|channel| channel.chunk.is_some()) {
            return Ok(());
        }
        if self.chunks.len() == 1 {
            let new = data.channels.iter_mut().filter(|channel| channel.chunk.is_none());
            new.for_each(|channel| channel.chunk = Some(front.number));
            return Ok(());
        }
        let is_sending = data.channels.iter().any(|channel| channel.chunk == Some(front.number));
        if is_sending || front.ledger.all_ended() || self.broken.is_some() {
            return Ok(());
        }
        Err(FtpError::OpenedAnew { at: self.at() })
    }

    /// Creates intakes for connections that have none.
    pub(super) fn take_in_channels(&mut self) {
        let Some(data) = &self.session.data else { return };
        for channel in &data.channels[self.intakes.len()..] {
            let numbers = &mut self.context.worker.numbers;
            let index = self.intakes.len();
            // The first connection has the number of the stream.
            let known = if index == 0 { Some(self.stream.id()) } else { numbers.get(index).copied() };
            let (mut intake, number) = self.stream.new_intake(known);
            if index >= numbers.len() {
                numbers.push(number);
            }
            self.stream.connected_over(&mut intake, channel.transport.socket(), channel.peer);
            self.intakes.push(intake);
        }
    }

    /// Handles a connection closed by the server, which is permitted between two chunks.
    pub(super) fn closed(&mut self, index: usize, between_blocks: bool) -> Result<(), FtpError> {
        let at = self.at();
        let Some(data) = &self.session.data else { return Ok(()) };
        let channel = &data.channels[index];
        let chunk = self.chunks.iter().find(|chunk| Some(chunk.number) == channel.chunk);
        let got = chunk.map_or(Bytes::ZERO, |chunk| chunk.ledger.received());
        if !between_blocks || !channel.is_between_chunks() {
            return Err(FtpError::ClosedEarly { at, got });
        }
        self.drop_channel(index);
        Ok(())
    }

    /// Removes a connection; the last one takes its index.
    pub(super) fn drop_channel(&mut self, index: usize) {
        if let Some(data) = &mut self.session.data {
            data.channels.swap_remove(index);
            self.intakes.swap_remove(index);
        }
    }
}
