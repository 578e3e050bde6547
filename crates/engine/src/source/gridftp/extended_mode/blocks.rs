//! Receives blocks from a data connection into segments.

use std::time::Instant;

use longhaul_core::proto::gridftp::BlockHeader;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;

use super::ChunkFetch;
use super::channel::ChannelEvent;
use crate::connect::Received;
use crate::source::gridftp::error::{FtpError, unusable_data};
use crate::transfer::Intake;

/// The maximum receive calls on one connection before the next is served.
const CALLS_EACH: usize = 8;
/// The bytes read at once of a range that another stream has stolen.
const DISCARD: usize = 64 << 10;

impl ChunkFetch<'_, '_, '_, '_> {
    /// Receives from one connection.
    pub(super) fn serve_channel(&mut self, index: usize) -> Result<(), FtpError> {
        for _ in 0..CALLS_EACH {
            let Some(channel) = self.session.data.as_mut().and_then(|data| data.channels.get_mut(index))
            else {
                return Ok(());
            };
            let received = if channel.payload().is_empty() {
                match channel.receive_header() {
                    Ok(Ok(ChannelEvent::Header(header))) => self.take_header(index, header),
                    Ok(Ok(ChannelEvent::Idle)) => Ok(false),
                    Ok(Ok(ChannelEvent::Closed { between })) => self.closed(index, between).map(|()| false),
                    Ok(Err(error)) => Err(FtpError::WrongData(unusable_data(&self.at(), &error))),
                    Err(source) => Err(FtpError::Data { at: self.at(), source }),
                }
            } else {
                self.receive(index)
            };
            match received {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                // The server's reply may explain the error.
                Err(error @ (FtpError::Data { .. } | FtpError::ClosedEarly { .. })) => {
                    self.drop_channel(index);
                    self.broken.get_or_insert((error, Instant::now()));
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Handles a header; returns whether more may be received.
    fn take_header(&mut self, index: usize, header: BlockHeader) -> Result<bool, FtpError> {
        let Some(data) = &self.session.data else { return Ok(false) };
        let (number, of_chunk) = (data.channels[index].number, data.channels[index].chunk);
        let at = self.at();
        let Some(chunk) = of_chunk.and_then(|chunk| self.chunk_mut(chunk)) else {
            return Err(FtpError::unrequested(&at, "a block of data"));
        };
        chunk.ledger.announce(number, header).map_err(|error| FtpError::of_ledger(&at, &error))?;
        Ok(header.payload().is_some() || self.end_block(index))
    }

    /// Receives payload into a segment; returns whether more may be received.
    fn receive(&mut self, index: usize) -> Result<bool, FtpError> {
        let rate = self.rate();
        let at = self.at();
        let Some(data) = &mut self.session.data else { return Ok(false) };
        let (channel, intake) = (&mut data.channels[index], &mut self.intakes[index]);
        let Some(chunk) = self.chunks.iter_mut().find(|chunk| Some(chunk.number) == channel.chunk) else {
            return Err(FtpError::unrequested(&at, "a block of data"));
        };
        let (block, base) = (channel.payload(), chunk.range.start());
        let in_file = ByteRange::new(base + block.start(), base + block.end());
        let received = match self.stream.leased_at(in_file.start()) {
            Some(leased) => {
                let part = ByteRange::new(in_file.start(), in_file.end().min(leased.end()));
                let Some(buffer) = intake.try_buffer(part, rate)? else {
                    // Other connections hold the free segments; the wait is attributed to the disk.
                    self.intakes.iter_mut().for_each(Intake::flush);
                    self.stream.keep_alive();
                    self.progress = (Instant::now(), 0);
                    return Ok(false);
                };
                channel.receive_payload(buffer)
            }
            None => {
                let mut scratch = [0; DISCARD];
                let room = DISCARD.min(block.len().as_usize());
                channel.receive_payload(&mut scratch[..room])
            }
        };
        let n = match received {
            Ok(Received::Data(n)) => n as u64,
            Ok(Received::Idle) => return Ok(false),
            Ok(Received::End { .. }) => {
                let got = chunk.ledger.received();
                return Err(FtpError::ClosedEarly { at, got });
            }
            Err(source) => return Err(FtpError::Data { at, source }),
        };
        let arrived = ByteRange::with_len(in_file.start(), Bytes::new(n));
        chunk.ledger.receive(ByteRange::with_len(block.start(), Bytes::new(n)));
        self.progress.1 += n;
        let own = self.stream.delivered_over(intake, arrived, rate, channel.transport.socket());
        self.context.worker.unproved.deliver(ByteRange::with_len(arrived.start(), own));
        Ok(!channel.payload().is_empty() || self.end_block(index))
    }

    /// Ends a block after its payload; returns whether the connection stays open.
    fn end_block(&mut self, index: usize) -> bool {
        self.stream.drop_received();
        let Some(data) = &mut self.session.data else { return false };
        let channel = &mut data.channels[index];
        if !channel.end_block() {
            return true;
        }
        self.intakes[index].flush();
        let stays = !channel.closes;
        if !stays {
            self.drop_channel(index);
        }
        stays
    }
}
