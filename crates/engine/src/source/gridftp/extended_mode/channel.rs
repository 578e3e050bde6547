//! One data connection of MODE E: headers of 17 bytes, and payload received directly into the
//! caller's memory.

use std::io;
use std::net::SocketAddr;

use longhaul_core::proto::Malformed;
use longhaul_core::proto::gridftp::{BLOCK_HEADER, BlockHeader};
use longhaul_core::ranges::ByteRange;

use crate::connect::{Received, Transport};

/// A data connection, which may carry several chunks in sequence.
pub(super) struct Channel {
    pub(super) transport: Transport,
    pub(super) peer: SocketAddr,
    /// The sequence number of the connection within the session.
    pub(super) number: u64,
    /// The number of the chunk that the next block belongs to; `None` until known.
    pub(super) chunk: Option<u64>,
    /// Whether the connection has completed its part of an earlier chunk.
    has_served: bool,
    /// Whether a block of the current chunk has arrived.
    has_begun: bool,
    block: PartialBlock,
    /// Whether the server has announced that it closes the connection after its part of the current
    /// chunk.
    pub(super) closes: bool,
}

/// The block that is being received.
struct PartialBlock {
    header: [u8; BLOCK_HEADER],
    /// The length of the received part of the header.
    filled: usize,
    /// The rest of the block, in offsets of its chunk.
    payload: ByteRange,
    /// Whether the block is the connection's last one of its chunk.
    ends_data: bool,
}

/// The outcome of a receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChannelEvent {
    /// A header; its payload follows.
    Header(BlockHeader),
    /// No complete header yet.
    Idle,
    /// The server has closed the connection, `between` two blocks or within one.
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
            block: PartialBlock {
                header: [0; BLOCK_HEADER],
                filled: 0,
                payload: ByteRange::new(0, 0),
                ends_data: false,
            },
            closes: false,
        }
    }

    /// Returns whether data is buffered outside the socket: a header received with the preceding
    /// payload, or decrypted bytes.
    pub(super) fn has_buffered(&mut self) -> bool {
        self.block.filled == BLOCK_HEADER || self.transport.has_decrypted()
    }

    /// Returns the rest of the current block; empty between two blocks.
    pub(super) fn payload(&self) -> ByteRange {
        self.block.payload
    }

    /// Returns whether the server may close the connection now: its part of a chunk is complete,
    /// and no block of the next has started.
    pub(super) fn is_between_chunks(&self) -> bool {
        self.has_served && !self.has_begun && !self.is_within_block()
    }

    /// Returns whether a block has been received partly.
    pub(super) fn is_within_block(&self) -> bool {
        self.block.filled > 0 || !self.block.payload.is_empty()
    }

    /// Reads the next header.
    ///
    /// # Errors
    /// The kernel's error on the socket; [`Malformed`] in the inner result.
    pub(super) fn receive_header(&mut self) -> io::Result<Result<ChannelEvent, Malformed>> {
        while self.block.filled < BLOCK_HEADER {
            match self.transport.receive(&mut self.block.header[self.block.filled..])? {
                Received::Data(n) => self.block.filled += n,
                Received::Idle => return Ok(Ok(ChannelEvent::Idle)),
                Received::End { .. } => {
                    return Ok(Ok(ChannelEvent::Closed { between: self.block.filled == 0 }));
                }
            }
        }
        self.block.filled = 0;
        self.has_begun = true;
        let header = match BlockHeader::decode(&self.block.header) {
            Ok(header) => header,
            Err(error) => return Ok(Err(error)),
        };
        self.block.payload = header.payload().unwrap_or(ByteRange::new(0, 0));
        self.block.ends_data = header.ends_data();
        self.closes |= header.closes();
        Ok(Ok(ChannelEvent::Header(header)))
    }

    /// Receives the front of [`Self::payload`] into `buffer`, which is at most as long; if the
    /// payload ends, the same call also receives the next header.
    pub(super) fn receive_payload(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        let room = buffer.len();
        let received = if self.block.payload.len().get() == room as u64 {
            self.transport.receive_two(buffer, &mut self.block.header)?
        } else {
            self.transport.receive(buffer)?
        };
        let Received::Data(n) = received else { return Ok(received) };
        self.block.filled = n.saturating_sub(room);
        let n = n.min(room);
        self.block.payload = ByteRange::new(self.block.payload.start() + n as u64, self.block.payload.end());
        Ok(Received::Data(n))
    }

    /// Ends the current block after its payload; returns whether this also ends the connection's
    /// part of the chunk.
    pub(super) fn end_block(&mut self) -> bool {
        let ended = std::mem::take(&mut self.block.ends_data);
        if ended {
            self.chunk = self.chunk.map(|number| number + 1);
            (self.has_served, self.has_begun) = (true, false);
        }
        ended
    }
}
