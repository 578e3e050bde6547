//! The data connections of a session, which the server has opened to this host's listener.

use std::net::SocketAddr;
use std::num::NonZeroU32;

use longhaul_core::proto::gridftp::Command;

use super::channel::Channel;
use super::data_listener::DataListener;
use crate::source::gridftp::data_protection::DataProtection;
use crate::source::gridftp::error::FtpError;

/// Up to this many times the requested number of connections are accepted: a server may not support
/// the option.
const MORE_THAN_ASKED: usize = 4;
/// The number of connections accepted in any case.
const ALWAYS_ACCEPTED: usize = 64;

/// A listener and its connections, which most servers reuse for further chunks.
pub(in crate::source::gridftp) struct AcceptedConnections {
    pub(super) listener: DataListener,
    /// The requested number of connections.
    pub(super) parallelism: usize,
    pub(super) channels: Vec<Channel>,
    /// The number of connections accepted so far.
    accepted: u64,
    protection: DataProtection,
}

impl AcceptedConnections {
    pub(super) fn new(listener: DataListener, parallelism: usize, protection: DataProtection) -> Self {
        Self { listener, parallelism, channels: Vec::new(), accepted: 0, protection }
    }

    /// Returns the commands by which the server connects to this host.
    pub(super) fn commands(&self) -> [Command<'static>; 2] {
        let streams =
            u32::try_from(self.parallelism).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN);
        let port = match self.listener.address {
            SocketAddr::V4(address) => Command::Port(address),
            address @ SocketAddr::V6(_) => Command::Eprt(address),
        };
        [Command::Parallelism(streams), port]
    }

    /// Accepts all pending connections; returns their number.
    pub(super) fn accept(&mut self, at: &str) -> Result<usize, FtpError> {
        let before = self.channels.len();
        while let Some((socket, peer)) = self.listener.accept()? {
            if self.channels.len() >= ALWAYS_ACCEPTED.max(self.parallelism * MORE_THAN_ASKED) {
                let what = format!("more than {} data connections", self.channels.len());
                return Err(FtpError::unrequested(at, &what));
            }
            self.accepted += 1;
            let transport =
                self.protection.over(socket, true).map_err(|error| FtpError::of_tls(at, &error))?;
            self.channels.push(Channel::new(transport, peer, self.accepted));
        }
        Ok(self.channels.len() - before)
    }

    /// Returns whether the server has opened any connection.
    pub(super) fn is_reached(&self) -> bool {
        self.accepted > 0
    }

    /// Returns whether all requested connections are open, in use, and not about to be closed.
    pub(super) fn has_all_connections(&self) -> bool {
        let stays = |channel: &Channel| channel.chunk.is_some() && !channel.closes;
        self.channels.len() == self.parallelism && self.channels.iter().all(stays)
    }

    /// Returns whether the server has opened more connections than requested, for example new ones
    /// for each chunk.
    pub(super) fn opens_anew(&self) -> bool {
        self.accepted > self.parallelism as u64
    }

    /// Prepares for the chunks of another file, which are numbered from zero again.
    pub(super) fn begin_file(&mut self) {
        self.channels.iter_mut().for_each(|channel| channel.chunk = Some(0));
    }
}
