//! Handles the control connection: replies to requests, and the state of the file after each chunk.

use std::time::Instant;

use longhaul_core::proto::gridftp::Reply;

use super::ChunkFetch;
use crate::source::gridftp::error::FtpError;
use crate::source::gridftp::unproved::compare;

/// An expected reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DueReply {
    /// The reply to a command that prepares transfers.
    Setup(&'static str),
    /// The reply to the request of a chunk.
    Chunk(u64),
    /// The reply to a command that requests the state of the file after a chunk.
    State(u64),
}

impl ChunkFetch<'_, '_, '_, '_> {
    /// Handles every reply that has arrived.
    pub(super) fn take_replies(&mut self) -> Result<(), FtpError> {
        let mut reply = self.session.control.poll_reply()?;
        while let Some(one) = reply {
            self.take_reply(one)?;
            reply = self.session.control.buffered_reply()?;
        }
        Ok(())
    }

    fn take_reply(&mut self, reply: Reply) -> Result<(), FtpError> {
        let Some(&due) = self.due.front() else {
            return Err(self.session.control.unrequested(&format!("the reply {reply}")));
        };
        // 150 and markers, which do not count as progress: only bytes do.
        if reply.is_preliminary() {
            return Ok(());
        }
        self.due.pop_front();
        self.progress = (Instant::now(), 0);
        match due {
            // A server without parallel connections opens one; a server without SBUF keeps its own
            // buffers.
            DueReply::Setup("OPTS" | "SBUF") => Ok(()),
            DueReply::Setup(verb) => self.session.control.require_positive(reply, verb),
            DueReply::Chunk(number) => {
                self.session.control.require_positive(reply, "ERET")?;
                if let Some(chunk) = self.chunk_mut(number) {
                    chunk.replied = true;
                }
                Ok(())
            }
            DueReply::State(number) => {
                self.state_replies.push(reply);
                if self.due.front() == Some(&due) {
                    return Ok(());
                }
                self.compare_state(number)
            }
        }
    }

    /// Compares the state of the file after a chunk with the described state.
    fn compare_state(&mut self, number: u64) -> Result<(), FtpError> {
        let replies = std::mem::take(&mut self.state_replies);
        let now = self.session.state_commands.read(&replies, self.context.access.at())?;
        compare(&self.context.described.state, &now, self.context.access.at())?;
        if let Some(chunk) = self.chunk_mut(number) {
            chunk.proved = true;
        }
        Ok(())
    }
}
