//! MODE E: fetches chunks over one control connection, each chunk over all data connections, which
//! the server opens.
//!
//! ```text
//!  control  > OPTS PORT ERET SIZE MDTM   ERET SIZE MDTM              < 150 226 213 213  150 226 213 213
//!  data                                               blocks EOD | blocks EOD  (on each connection, one chunk behind the other)
//! ```
//!
//! The next chunk is requested while the previous one is being sent, so that the path does not idle
//! ([`requests`]). A [`RequestedChunk`] is complete with the reply 226, an end of data from every
//! connection announced by the server, and every byte; the state of the file after it proves it
//! ([`replies`]).
//! Blocks ([`blocks`]) that contradict each other refute the bytes before them.

mod accepted_connections;
mod blocks;
mod channel;
mod connections;
mod data_listener;
mod readiness;
mod replies;
mod requests;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use longhaul_core::failure::Failure;
use longhaul_core::proto::gridftp::{LedgerError, Reply, TransferLedger};
use longhaul_core::ranges::ByteRange;
use longhaul_core::retry::Retry;
use longhaul_core::units::Rate;

pub(super) use self::accepted_connections::AcceptedConnections;
use self::readiness::{Readiness, wait};
use self::replies::DueReply;
use super::control::REPORT_PATIENCE;
use super::error::FtpError;
use super::sessions::Session;
use super::worker::{FetchContext, fall_back_to_stream_mode};
use crate::delivery_stall::MIN_DELIVERY;
use crate::source::StreamPeer;
use crate::transfer::{Intake, Stream};

/// The timeout for the first data connection: SYNs are retransmitted after 1, 3 and 7 s.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// The maximum rounds of reading sockets after the control connection is lost: a server may go on
/// sending.
const DRAIN_ROUNDS: usize = 256;
/// How long to wait for more: what the server's socket still holds follows as this host reads.
const DRAIN_PATIENCE: Duration = Duration::from_millis(200);
const DRAIN_TICK: Duration = Duration::from_millis(2);

/// The state of one fetch: a session, a stream and the requested chunks.
struct ChunkFetch<'a, 'p, 's, 't> {
    context: &'a mut FetchContext<'p, 's>,
    session: &'a mut Session,
    stream: &'a mut Stream<'t>,
    /// One intake for each channel of the session's data connections.
    intakes: Vec<Intake<'t>>,
    /// Incomplete chunks, in the order of their requests.
    chunks: VecDeque<RequestedChunk>,
    next_number: u64,
    due: VecDeque<DueReply>,
    /// The replies about the state of the file, until all have arrived.
    state_replies: Vec<Reply>,
    /// The time of the last progress, and the bytes received by then.
    progress: (Instant, u64),
    /// The error of a broken data connection, and the time of its detection.
    broken: Option<(FtpError, Instant)>,
}

/// A chunk, complete with the reply 226, an end of data from every connection announced by the
/// server, and every byte.
struct RequestedChunk {
    number: u64,
    /// The range in the file; blocks have offsets relative to its start.
    range: ByteRange,
    ledger: TransferLedger,
    requested: Instant,
    /// Whether reply 226 has arrived.
    replied: bool,
    /// Whether the file was unchanged after the chunk.
    proved: bool,
}

impl RequestedChunk {
    fn new(number: u64, range: ByteRange) -> Self {
        let ledger = TransferLedger::new(ByteRange::new(0, range.len().get()));
        Self { number, range, ledger, requested: Instant::now(), replied: false, proved: false }
    }

    /// Returns whether bytes are missing.
    fn lacks_bytes(&self) -> bool {
        self.ledger.received() < self.range.len()
    }
}

/// Fetches chunks until nothing is left to lease; returns whether the session can be kept.
pub(super) fn fetch(
    context: &mut FetchContext<'_, '_>,
    session: &mut Session,
    stream: &mut Stream<'_>,
) -> Result<bool, Failure> {
    if let Some(data) = &mut session.data {
        data.begin_file();
    }
    let source = context.worker.source;
    let mut exchange = ChunkFetch {
        context,
        session,
        stream,
        intakes: Vec::new(),
        chunks: VecDeque::new(),
        next_number: 0,
        due: VecDeque::new(),
        state_replies: Vec::new(),
        progress: (Instant::now(), 0),
        broken: None,
    };
    exchange.take_in_channels();
    let done = exchange.run();
    if let Err(FtpError::Closed { .. } | FtpError::Receive { .. } | FtpError::Busy { .. }) = done {
        exchange.drain();
    }
    let holds_window = exchange.intakes.iter().any(Intake::holds_window);
    // Flushes the segments of the connections.
    drop(exchange);
    match done {
        Ok(()) => {
            if holds_window {
                session.data = None;
            }
            Ok(true)
        }
        Err(error) if error.rules_out_extended_mode() => Err(fall_back_to_stream_mode(source, &error)),
        Err(error @ FtpError::OpenedAnew { .. }) => {
            // Requests chunks one at a time from now on, which avoids the error.
            context.worker.requests_ahead = false;
            Err(Failure::from(error).with_retry(Retry::AtOnce))
        }
        Err(error) => {
            if let FtpError::WrongData(_) = error {
                context.worker.unproved.take_back(stream)?;
            }
            Err(error.into())
        }
    }
}

impl ChunkFetch<'_, '_, '_, '_> {
    fn run(&mut self) -> Result<(), FtpError> {
        loop {
            self.request_ahead()?;
            if self.chunks.is_empty() && self.due.is_empty() {
                self.intakes.iter_mut().for_each(Intake::flush);
                if !self.stream.wait_for_work() {
                    return Ok(());
                }
                self.progress = (Instant::now(), 0);
                continue;
            }
            self.serve()?;
            self.retire()?;
            self.check_progress()?;
        }
    }

    /// Receives bytes that the server has already sent when the control connection is lost, so that
    /// they need not be sent again.
    fn drain(&mut self) {
        let mut last = Instant::now();
        let mut rounds = 0;
        while rounds < DRAIN_ROUNDS
            && last.elapsed() < DRAIN_PATIENCE
            && self.chunks.iter().any(RequestedChunk::lacks_bytes)
            && !self.stream.stop().is_cancelled()
        {
            let ready = self.wait(Duration::ZERO);
            if ready.channels.is_empty() {
                // The lost connection is always ready, so that poll(2) does not wait.
                std::thread::sleep(DRAIN_TICK);
                continue;
            }
            // In descending order, because a closed channel is replaced by the last one.
            if ready.channels.iter().rev().try_for_each(|index| self.serve_channel(*index)).is_err() {
                return;
            }
            (rounds, last) = (rounds + 1, Instant::now());
        }
    }

    fn at(&self) -> String {
        self.context.access.at().to_owned()
    }

    fn rate(&self) -> Rate {
        sum(self.intakes.iter().map(Intake::rate))
    }

    fn chunk_mut(&mut self, number: u64) -> Option<&mut RequestedChunk> {
        self.chunks.iter_mut().find(|chunk| chunk.number == number)
    }

    fn wait(&mut self, tick: Duration) -> Readiness {
        let has_buffered = self.session.control.transport.has_decrypted();
        wait(self.session.control.transport.socket(), has_buffered, self.session.data.as_mut(), tick)
    }

    /// Waits up to one tick for an event, and handles it.
    fn serve(&mut self) -> Result<(), FtpError> {
        self.assign_channels()?;
        let ready = self.wait(self.context.access.config.timeouts.tick);
        if ready.control {
            self.take_replies()?;
        }
        // In descending order, because a closed channel is replaced by the last one.
        for index in ready.channels.into_iter().rev() {
            self.serve_channel(index)?;
        }
        if ready.listener {
            self.accept()?;
        }
        Ok(())
    }

    /// Removes chunks that are complete and proved.
    fn retire(&mut self) -> Result<(), FtpError> {
        while let Some(front) = self.chunks.front() {
            let number = front.number;
            let channels = self.session.data.as_ref().map_or(&[][..], |data| &data.channels);
            let is_coming =
                channels.iter().any(|channel| channel.chunk == Some(number) && channel.is_within_block());
            if !front.replied || !front.proved || !front.ledger.all_ended() || is_coming {
                return Ok(());
            }
            // The chunk is proved, so missing bytes are not due to a shorter file.
            front.ledger.finish().map_err(|error| FtpError::of_ledger(&self.at(), &error))?;
            self.context.worker.unproved.prove(front.range);
            self.chunks.pop_front();
        }
        Ok(())
    }

    /// Fails if the transfer is stopped, all leases were stolen, or no byte has arrived for too
    /// long.
    fn check_progress(&mut self) -> Result<(), FtpError> {
        if self.stream.stop().is_cancelled() {
            return Err(Failure::interrupted().into());
        }
        if let Some((_, since)) = &self.broken
            && since.elapsed() >= REPORT_PATIENCE
            && let Some((error, _)) = self.broken.take()
        {
            return Err(error);
        }
        self.intakes.iter_mut().for_each(|intake| intake.flush_if(false));
        // Makes a draining stream release ranges that would take too long.
        if self.stream.front().is_none() && self.chunks.iter().any(RequestedChunk::lacks_bytes) {
            return Err(Failure::stolen(self.context.worker.source.shown()).into());
        }
        // No longer than the user waits for a connection or a reply.
        let patience = CONNECT_PATIENCE.min(self.context.access.handshake_limit());
        let reached = self.session.data.as_ref().is_none_or(AcceptedConnections::is_reached);
        if let Some(first) = self.chunks.front().filter(|_| !reached)
            && first.requested.elapsed() >= patience
        {
            let local =
                self.session.data.as_ref().map_or(self.session.control.local, |data| data.listener.address);
            return Err(FtpError::NotConnected { at: self.at(), local, waited: patience });
        }
        let (since, bytes) = self.progress;
        let stall = self.stream.stall_timeout();
        if since.elapsed() >= stall {
            if bytes < MIN_DELIVERY.get() {
                return Err(self.stalled(stall));
            }
            self.progress = (Instant::now(), 0);
        }
        Ok(())
    }

    /// Creates the error that names the missing event.
    fn stalled(&self, stall: Duration) -> FtpError {
        let at = self.context.access.at();
        let Some(first) = self.chunks.front().filter(|first| !first.lacks_bytes()) else {
            let shown = self.context.worker.source.shown();
            return Failure::stalled(shown, MIN_DELIVERY, stall).into();
        };
        match first.ledger.channels() {
            Some(announced) if !first.ledger.all_ended() => {
                FtpError::of_ledger(at, &LedgerError::channels(announced, first.ledger.ended()))
            }
            _ => self.session.control.timeout("the transfer", stall),
        }
    }
}

fn sum(rates: impl Iterator<Item = Rate>) -> Rate {
    Rate::bits_per_sec(rates.fold(0, |sum, rate| sum.saturating_add(rate.as_bits_per_sec())))
}
