//! One data connection of a store in MODE E: leases ranges, and sends them as blocks of header and
//! payload.
//!
//! Bytes acknowledged by the peer's TCP count as moved. Bytes passed to the kernel cannot be taken
//! back: after another stream has stolen a lease, this one stops at the end of its block. Bytes
//! sent twice are equal at the same offset.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use longhaul_core::failure::Failure;
use longhaul_core::proto::gridftp::BlockHeader;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;
use parking_lot::Mutex;

use super::data_sender::DataSender;
use crate::cancel::Cancel;
use crate::send::{SendError, Supply, TURN};
use crate::source::gridftp::BlockDialler;
use crate::source::http::UrlAndPeer;
use crate::source::{StreamPeer, StreamWorker};
use crate::threads::add;
use crate::transfer::{Sending, Stream};
use crate::upload::ack_stall::AckStall;
use crate::upload::body::{DropBehind, SEND_CHECK_INTERVAL, wait_for};
use crate::upload::context::UploadContext;
use crate::upload::error::UploadError;
use crate::upload::range_worker::{ACK_TICK, in_flight};
use crate::upload::shared_pace::{PacedConnection, SharedPace};

/// The payload of a block: large enough that headers cost little, small enough that a stolen lease
/// ends soon. Globus reads it in pieces of its own block size (256 KiB).
const BLOCK: Bytes = Bytes::mib(2);

/// The state shared by the data connections of one STOR or ESTO.
pub(super) struct BlockPeer<'a> {
    pub(super) context: UploadContext<'a>,
    pub(super) dialler: BlockDialler<'a>,
    pub(super) pace: SharedPace<'a>,
    /// The URL and the server's address, for errors.
    pub(super) at: UrlAndPeer,
    shown: String,
    behind: DropBehind,
    /// Connections that have sent all their blocks, but not yet EOD: they are ended once their
    /// number is final.
    pub(super) sent: Mutex<Vec<DataSender>>,
    /// Raised once the store has failed.
    over: Cancel,
    pub(super) failure: Mutex<Option<UploadError>>,
}

impl<'a> BlockPeer<'a> {
    /// Creates the peer of a store that ends with `stop`.
    pub(super) fn new(
        context: UploadContext<'a>,
        dialler: BlockDialler<'a>,
        (pace, at): (SharedPace<'a>, UrlAndPeer),
        stop: &Cancel,
    ) -> Self {
        Self {
            context,
            dialler,
            pace,
            shown: at.url.to_string(),
            at,
            behind: DropBehind::of(&context),
            sent: Mutex::default(),
            over: stop.child(),
            failure: Mutex::default(),
        }
    }

    /// Ends the store: the server discards a store that lacks one of its connections.
    pub(super) fn fail(&self, error: UploadError) {
        self.failure.lock().get_or_insert(error);
        self.over.cancel();
    }

    /// Creates the error of a broken connection.
    pub(super) fn broken(&self, source: io::Error) -> UploadError {
        UploadError::Send(self.at.clone(), source)
    }

    /// Returns whether the store has failed, or the upload is cancelled.
    pub(super) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }
}

impl StreamPeer<Sending> for BlockPeer<'_> {
    fn shown(&self) -> &str {
        &self.shown
    }

    fn worker(&self) -> Box<dyn StreamWorker<Sending> + '_> {
        Box::new(self)
    }
}

/// The worker of a stream keeps nothing between its connections.
impl StreamWorker<Sending> for &BlockPeer<'_> {
    fn work(&mut self, stream: &mut Stream<'_, Sending>) -> Result<(), Failure> {
        let peer = *self;
        if peer.is_over() || stream.is_over() {
            return Ok(());
        }
        match BlockSender::connect(peer, stream)?.run() {
            Ok(connection) => peer.sent.lock().push(connection),
            Err(error) => peer.fail(error),
        }
        Ok(())
    }
}

/// A block that was passed to the connection, in whole or in part.
struct SentBlock {
    range: ByteRange,
    /// The bytes passed to the connection before the payload.
    before: u64,
    /// The offset up to which the block counts as acknowledged.
    counted: u64,
}

/// A data connection, and the stream whose leases it sends.
struct BlockSender<'e, 's> {
    peer: &'e BlockPeer<'e>,
    stream: &'e mut Stream<'s, Sending>,
    connection: DataSender,
    paced: PacedConnection<'e>,
    stall: AckStall,
    unacknowledged: VecDeque<SentBlock>,
    /// The bytes passed to the connection, headers included.
    given: u64,
}

impl<'e, 's> BlockSender<'e, 's> {
    fn connect(peer: &'e BlockPeer<'e>, stream: &'e mut Stream<'s, Sending>) -> Result<Self, Failure> {
        let cancel = stream.renew_cancel();
        let connection = DataSender::new(peer.dialler.dial(&cancel)?).map_err(|error| peer.broken(error))?;
        let paced = peer.pace.pace(connection.socket());
        let is_first = !stream.has_connected();
        stream.connected(connection.socket(), peer.dialler.address);
        // Nothing answers on a connection for data.
        stream.answered();
        if is_first {
            stream.await_turn(&cancel);
        }
        let stall = AckStall::new(connection.socket(), peer.context.request.transfer.stall, peer.at.clone());
        Ok(Self { peer, stream, connection, paced, stall, unacknowledged: VecDeque::new(), given: 0 })
    }

    /// Sends blocks until nothing is left to lease, or the store has failed; returns the
    /// connection.
    fn run(mut self) -> Result<DataSender, UploadError> {
        while !self.peer.is_over() {
            if let Some(range) = self.stream.lease() {
                self.paced.resume();
                self.send_range(range)?;
                continue;
            }
            if self.stream.is_all_leased() || self.stream.is_draining() {
                // These acknowledgements need no tracking, because the server's final reply covers
                // all bytes.
                self.count(u64::MAX);
            }
            if !self.unacknowledged.is_empty() {
                self.wait(false, ACK_TICK)?;
                self.account()?;
                continue;
            }
            self.paced.pause();
            if !self.stream.wait_for_work() {
                break;
            }
            self.stall.restart();
        }
        Ok(self.connection)
    }

    /// Sends a leased range in blocks, as long as it stays leased.
    fn send_range(&mut self, range: ByteRange) -> Result<(), UploadError> {
        let peer = self.peer;
        let mut supply = peer.context.supply(range)?;
        let mut at = range.start();
        let mut sent = Ok(());
        while at < range.end() && sent.is_ok() && !peer.is_over() && !self.stream.is_draining() {
            let Some(left) = self.stream.leased_at(at) else { break };
            let end = left.end().min(range.end()).min(at + BLOCK.get());
            sent = self.send_block(ByteRange::new(at, end), &mut supply);
            at = end;
        }
        sent?;
        // Bytes buffered by TLS are not yet sent.
        while !peer.is_over() && !self.connection.flush().map_err(|error| peer.broken(error))? {
            self.wait(true, SEND_CHECK_INTERVAL)?;
            self.account()?;
        }
        Ok(())
    }

    fn send_block(&mut self, range: ByteRange, supply: &mut Supply) -> Result<(), UploadError> {
        let header = BlockHeader::data(range).encode();
        let mut pending = header.as_slice();
        while !pending.is_empty() && !self.peer.is_over() {
            self.wait(true, SEND_CHECK_INTERVAL)?;
            // The header shares a segment with the payload.
            self.connection.send_header(&mut pending, true).map_err(|error| self.peer.broken(error))?;
            self.account()?;
        }
        self.given += header.len() as u64;
        self.unacknowledged.push_back(SentBlock { range, before: self.given, counted: range.start() });
        let mut at = range.start();
        while at < range.end() && !self.peer.is_over() {
            if self.wait(true, SEND_CHECK_INTERVAL)? {
                at = self.send_payload(ByteRange::new(at, range.end()), supply)?;
            }
            self.account()?;
        }
        Ok(())
    }

    /// Sends some of a payload without blocking; returns the offset of the rest.
    fn send_payload(&mut self, left: ByteRange, supply: &mut Supply) -> Result<u64, UploadError> {
        let before = supply.sent();
        let share = self.peer.context.progress.share(TURN).min(left.len());
        let turn = self.connection.turn(supply, share);
        let sent = supply.sent() - before;
        add(&self.peer.context.progress.transfer.waits.writer, supply.take_waited());
        self.given += sent.get();
        if sent > Bytes::ZERO {
            self.peer.context.progress.range_sent(ByteRange::with_len(left.start(), sent));
        }
        turn.map_err(|error| match error {
            SendError::Socket(error) => self.peer.broken(error),
            SendError::Source(failure) => failure.into(),
        })?;
        Ok(left.start() + sent.get())
    }

    /// Counts bytes acknowledged by the peer's TCP; fails if the connection has stalled.
    fn account(&mut self) -> Result<(), UploadError> {
        // Without the kernel's counters, all bytes count at the end.
        if let Some(in_flight) = in_flight(self.connection.socket()) {
            self.count(self.given.saturating_sub(in_flight));
        }
        if self.stall.check(self.connection.socket())? == Some(0) {
            self.stream.keep_alive();
        }
        Ok(())
    }

    /// Counts blocks as acknowledged, up to the position `acknowledged` in the connection's bytes.
    fn count(&mut self, acknowledged: u64) {
        let mut complete = false;
        while let Some(block) = self.unacknowledged.front_mut() {
            let range = block.range;
            let given = self.given.min(acknowledged).saturating_sub(block.before);
            let reached = range.start().saturating_add(given).min(range.end());
            if reached > block.counted {
                let part = ByteRange::new(block.counted, reached);
                block.counted = reached;
                self.stream.acknowledged(part, self.connection.socket());
            }
            if reached < range.end() {
                break;
            }
            self.unacknowledged.pop_front();
            complete = true;
            let progress = self.peer.context.progress;
            let present = progress.range_confirmed(range);
            self.peer.behind.follow(progress, || present);
        }
        if complete {
            self.stream.drop_received();
        }
    }

    /// Waits up to `limit` until the connection is readable, or with `writes` also writable;
    /// returns whether it is ready. Fails if the server has closed it.
    fn wait(&mut self, writes: bool, limit: Duration) -> Result<bool, UploadError> {
        let ready = wait_for(self.connection.socket(), writes, limit);
        self.connection.check_open(ready).map_err(|error| self.peer.broken(error))?;
        Ok(!ready.is_empty())
    }
}

/// The maximum wait for space in a socket between checks.
const ROOM: Duration = Duration::from_millis(100);

/// Sends a header without payload; `wait` fails if that takes too long.
pub(super) fn send_header(
    connection: &mut DataSender,
    header: BlockHeader,
    mut wait: impl FnMut() -> Result<(), UploadError>,
    broken: impl Fn(io::Error) -> UploadError,
) -> Result<(), UploadError> {
    let header = header.encode();
    let mut pending = header.as_slice();
    loop {
        connection.send_header(&mut pending, false).map_err(&broken)?;
        if pending.is_empty() && connection.flush().map_err(&broken)? {
            return Ok(());
        }
        wait_for(connection.socket(), true, ROOM);
        wait()?;
    }
}
