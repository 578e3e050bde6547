//! Requests chunks: how far ahead of the data, and over which connections.

use longhaul_core::proto::gridftp::Command;
use longhaul_core::ranges::ByteRange;

use super::accepted_connections::AcceptedConnections;
use super::data_listener::DataListener;
use super::replies::DueReply;
use super::{ChunkFetch, RequestedChunk, sum};
use crate::connect::SocketSettings;
use crate::source::gridftp::error::FtpError;
use crate::transfer::{Intake, recv_buffer};

/// The maximum number of incomplete chunks: several if a chunk is smaller than the path's BDP.
const MAX_AHEAD: usize = 8;

impl ChunkFetch<'_, '_, '_, '_> {
    /// Requests chunks until enough bytes are outstanding. The number of connections changes only
    /// between two chunks, because the server ignores another number for open connections.
    pub(super) fn request_ahead(&mut self) -> Result<(), FtpError> {
        while self.broken.is_none() {
            let is_first = self.chunks.is_empty();
            // In this order: APT sets the number for a chunk, and then permits the chunk.
            let may_follow = || self.may_request_ahead() && self.has_connections(self.wanted_connections());
            if !(is_first || may_follow()) {
                return Ok(());
            }
            let rate = self.rate();
            let Some(range) = self.stream.lease_chunk(self.context.worker.pace.next(rate)) else {
                return Ok(());
            };
            let streams = self.wanted_connections();
            let keeps = !is_first || self.has_connections(streams);
            let listener = if keeps { None } else { Some(self.listen(streams)?) };
            self.request(
                range,
                listener.map(|listener| {
                    AcceptedConnections::new(listener, streams, self.session.protection.clone())
                }),
            )?;
        }
        Ok(())
    }

    fn wanted_connections(&self) -> usize {
        self.stream.wanted_streams().max(1)
    }

    /// Returns whether the connections of the previous chunk are of this number.
    fn has_connections(&self, number: usize) -> bool {
        self.session.data.as_ref().is_some_and(|data| data.parallelism == number)
    }

    /// Returns whether a chunk is requested while the previous one is being sent.
    ///
    /// Requires a server that reuses its connections and has opened all requested ones; otherwise a
    /// further connection could not be assigned to either the current chunk or the next.
    fn may_request_ahead(&self) -> bool {
        let is_complete = self.session.data.as_ref().is_some_and(AcceptedConnections::has_all_connections);
        if !is_complete || !self.context.worker.requests_ahead || self.chunks.len() >= MAX_AHEAD {
            return false;
        }
        let rtts = self.intakes.iter().map(Intake::data_rtt);
        let rtt = rtts.max().or_else(|| self.session.control.rtt()).unwrap_or_default();
        let expected = sum(self.intakes.iter().map(Intake::expected_rate));
        self.stream.outstanding().0 < self.stream.outstanding_target_over(expected, rtt)
    }

    /// Listens at the local address of the control connection, with the buffer that the path needs.
    fn listen(&mut self, streams: usize) -> Result<DataListener, FtpError> {
        self.context.worker.pace.restart();
        let control = &self.session.control;
        let settings = self.context.access.config.sockets();
        let needed = || recv_buffer::larger_than_kernels(control.rtt()?, streams);
        let recv_buffer = settings.recv_buffer.or_else(needed);
        DataListener::open(control.local, control.peer, SocketSettings { recv_buffer, ..settings })
    }

    /// Requests a chunk, and the state of the file after it; over new data connections if given.
    fn request(&mut self, range: ByteRange, data: Option<AcceptedConnections>) -> Result<(), FtpError> {
        let path = &self.context.access.address.path;
        let mut commands = Vec::new();
        if !self.session.is_extended {
            commands.push(Command::ModeExtended);
        }
        if let Some(data) = &data {
            // The user's window size helps only if the server's send buffer can fill it.
            commands.extend(self.context.access.config.sockets().recv_buffer.map(Command::Sbuf));
            commands.extend(data.commands());
        }
        self.due.extend(commands.iter().map(|command| DueReply::Setup(command.verb())));
        let number = self.next_number;
        commands.push(Command::EretPartial(range, path));
        let state = self.session.state_commands.commands(path);
        self.due.push_back(DueReply::Chunk(number));
        self.due.extend(std::iter::repeat_n(DueReply::State(number), state.len()));
        commands.extend(state);
        if let Some(data) = data {
            // The server also closes the connections of the previous path.
            self.intakes.clear();
            self.session.data = Some(data);
        }
        self.session.is_extended = true;
        self.next_number += 1;
        self.chunks.push_back(RequestedChunk::new(number, range));
        self.session.control.send(&commands, self.stream.stop())
    }
}
