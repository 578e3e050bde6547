//! One data connection of MODE E: headers of 17 bytes, and payload straight into the caller's memory.

use std::io;
use std::net::SocketAddr;

use longhaul_core::proto::gridftp::{BLOCK_HEADER, BlockError, BlockHeader};
use longhaul_core::ranges::ByteRange;

use crate::connect::{Received, Transport};

/// A data connection; it may carry one chunk after the other.
pub(super) struct Channel {
    transport: Transport,
    pub(super) peer: SocketAddr,
    /// Its number on the control connection.
    pub(super) number: u64,
    /// The number of the chunk that its next block belongs to; `None` until that is known.
    pub(super) chunk: Option<u64>,
    /// Whether it has carried its whole part of a chunk before.
    has_served: bool,
    /// Whether it has sent a block of the present chunk.
    has_begun: bool,
    header: [u8; BLOCK_HEADER],
    filled: usize,
    /// What is still to come of the present block, in the offsets of its chunk.
    payload: ByteRange,
    /// The present block is the connection's last one of its chunk.
    ends_data: bool,
    /// The server has announced that it closes the connection.
    closes: bool,
}

/// What a channel has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChannelEvent {
    /// A header; its payload follows.
    Header(BlockHeader),
    /// Nothing more for now.
    Idle,
    /// The server has closed the connection; `between` two blocks or within one.
    Closed { between: bool },
}

impl Channel {
    pub(super) fn new(transport: Transport, peer: SocketAddr, number: u64) -> Self {
        Self {
            transport,
            peer,
            number,
            chunk: None,
            has_served: false,
            has_begun: false,
            header: [0; BLOCK_HEADER],
            filled: 0,
            payload: ByteRange::new(0, 0),
            ends_data: false,
            closes: false,
        }
    }

    /// Returns the transport, to be waited for.
    pub(super) fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Returns whether something is to be taken that is no longer in the socket: a header that was received with the payload before
    /// it, or bytes that were decrypted with others.
    pub(super) fn has_buffered(&mut self) -> bool {
        self.filled == BLOCK_HEADER || self.transport.has_decrypted()
    }

    /// Returns what is still to come of the present block; empty between two blocks.
    pub(super) fn payload(&self) -> ByteRange {
        self.payload
    }

    /// Returns whether the server may close it now: it has sent its part of a chunk, and nothing of the next.
    pub(super) fn is_between_chunks(&self) -> bool {
        self.has_served && !self.has_begun && !self.is_within_block()
    }

    /// Returns whether the server closes it behind its part of the present chunk.
    pub(super) fn closes(&self) -> bool {
        self.closes
    }

    /// Returns whether bytes of a block were read that is not complete.
    pub(super) fn is_within_block(&self) -> bool {
        self.filled > 0 || !self.payload.is_empty()
    }

    /// Reads the next header.
    ///
    /// # Errors
    /// What the system says of the socket, and [`BlockError`] within it.
    pub(super) fn receive_header(&mut self) -> io::Result<Result<ChannelEvent, BlockError>> {
        while self.filled < BLOCK_HEADER {
            match self.transport.receive(&mut self.header[self.filled..])? {
                Received::Data(n) => self.filled += n,
                Received::Idle => return Ok(Ok(ChannelEvent::Idle)),
                Received::End { .. } => return Ok(Ok(ChannelEvent::Closed { between: self.filled == 0 })),
            }
        }
        self.filled = 0;
        self.has_begun = true;
        let header = match BlockHeader::decode(&self.header) {
            Ok(header) => header,
            Err(error) => return Ok(Err(error)),
        };
        self.payload = header.payload().unwrap_or(ByteRange::new(0, 0));
        self.ends_data = header.ends_data();
        self.closes |= header.closes();
        Ok(Ok(ChannelEvent::Header(header)))
    }

    /// Receives the front of [`Self::payload`] into `buffer`, which is no longer; where it takes all of that, the next header is
    /// received by the same call.
    pub(super) fn receive_payload(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        let room = buffer.len();
        let received = if self.payload.len().get() == room as u64 {
            self.transport.receive_two(buffer, &mut self.header)?
        } else {
            self.transport.receive(buffer)?
        };
        let Received::Data(n) = received else { return Ok(received) };
        self.filled = n.saturating_sub(room);
        let n = n.min(room);
        self.payload = ByteRange::new(self.payload.start() + n as u64, self.payload.end());
        Ok(Received::Data(n))
    }

    /// Ends the present block, whose payload has arrived; returns whether the channel's part of the chunk has ended with it.
    pub(super) fn end_block(&mut self) -> bool {
        let ended = std::mem::take(&mut self.ends_data);
        if ended {
            self.chunk = self.chunk.map(|number| number + 1);
            (self.has_served, self.has_begun) = (true, false);
        }
        ended
    }
}
