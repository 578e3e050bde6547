//! One stream of an upload: leases ranges, sends them back to back, and awaits their confirmations.
//!
//! ```text
//!   lease --> PATCH a-b --> body --> next lease --> PATCH c-d --> body --> ..
//!                            ^ acknowledged by TCP: no longer to be stolen
//!                  answer 202 to a-b: confirmed
//! ```
//!
//! The next range is sent before the last one is answered, so that the connection does not idle for
//! a round trip. If the connection breaks, all ranges without an answer can be leased again.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use longhaul_core::failure::Failure;
use longhaul_core::ranges::ByteRange;
use longhaul_core::retry::Retry;
use longhaul_core::units::Bytes;
use longhaul_sys::tcp_info;
use rustix::event::PollFlags;
use socket2::SockRef;

use super::answer::UploadAnswer;
use super::body::{self, Pump, SEND_CHECK_INTERVAL};
use super::error::UploadError;
use super::ranges::{ALIGNMENT, RangePeer};
use super::shared_pace::PacedConnection;
use crate::send::{SendError, Supply, Turn};
use crate::source::StreamWorker;
use crate::source::http::{Connection, EarlyAnswer, Redirects, ResolvedUrl};
use crate::threads::add;
use crate::transfer::{Sending, Stream};

/// The interval at which acknowledgements are read while nothing can be sent.
pub(super) const ACK_TICK: Duration = Duration::from_millis(10);
/// The wait before a range is sent again that another connection of this upload still locks on the
/// server.
const LOCKED_WAIT: Duration = Duration::from_millis(500);
/// The maximum number of such retries in a row. The server closes a silent connection after 3 s,
/// and itself waits meanwhile.
const LOCKED_TRIES: u32 = 20;
/// The name of a refused step in errors.
const RANGE_STEP: &str = "a range of the upload";

/// The worker of one stream.
pub(super) struct RangeWorker<'p> {
    peer: &'p RangePeer<'p>,
    /// The file's URL, after redirects of this stream's requests.
    target: ResolvedUrl,
    redirects: Redirects,
    /// The number of consecutive answers that a range is locked by another connection.
    locked: u32,
}

impl<'p> RangeWorker<'p> {
    pub(super) fn new(peer: &'p RangePeer<'p>) -> Self {
        let target = peer.target.url.clone();
        Self { peer, redirects: Redirects::new(&target), target, locked: 0 }
    }

    /// Returns to the URL that the upload started with.
    fn return_to_original(&mut self) {
        self.target = self.peer.target.url.clone();
        self.redirects = Redirects::new(&self.target);
    }
}

impl StreamWorker<Sending> for RangeWorker<'_> {
    fn work(&mut self, stream: &mut Stream<'_, Sending>) -> Result<(), Failure> {
        loop {
            // Connects only when there is work: a lease would otherwise wait for a connection that
            // may fail.
            if !stream.wait_for_work() {
                return Ok(());
            }
            let used = RangeExchange::connect(self, stream).and_then(RangeExchange::run);
            match used {
                Ok(Some(connection)) => {
                    // Kept for the request that completes the upload. While other streams run, an
                    // idle connection may occupy the only place of a server of few connections.
                    if stream.is_complete() {
                        self.peer.client.keep(connection);
                    }
                    return Ok(());
                }
                Ok(None) => stream.disconnected(),
                Err(error) => {
                    if error.retry != Retry::AtOnce {
                        self.return_to_original();
                    }
                    return Err(error);
                }
            }
        }
    }
}

/// A range that was sent and has no answer yet.
struct SentRange {
    range: ByteRange,
    /// The file bytes passed to the connection before this range.
    before: u64,
    /// The offset up to which the range counts as acknowledged. The last block counts only with the
    /// answer.
    acknowledged: u64,
    /// Whether all of the range was passed to the connection.
    whole: bool,
}

/// A worker, its stream and its connection.
struct RangeExchange<'e, 'p, 's> {
    worker: &'e mut RangeWorker<'p>,
    stream: &'e mut Stream<'s, Sending>,
    connection: Connection,
    pump: Pump<'p>,
    paced: PacedConnection<'p>,
    unanswered: VecDeque<SentRange>,
    /// The file bytes passed to the connection.
    given: u64,
    /// The time since when all ranges are sent and acknowledged, so that an answer is due.
    answer_due: Option<Instant>,
}

impl<'e, 'p, 's> RangeExchange<'e, 'p, 's> {
    fn connect(
        worker: &'e mut RangeWorker<'p>,
        stream: &'e mut Stream<'s, Sending>,
    ) -> Result<Self, Failure> {
        let RangePeer { context, client, target, pace, .. } = worker.peer;
        let cancel = stream.renew_cancel();
        let mut connection = client.connect(&mut worker.target, &cancel)?;
        client.aim(&mut connection, &worker.target.with_query(target.query))?;
        let paced = pace.pace(connection.socket());
        stream.connected_in_turn(connection.socket(), connection.peer(), &cancel);
        let pump = Pump::new(&connection, context.progress, context.request.transfer.stall);
        let unanswered = VecDeque::new();
        Ok(Self { worker, stream, connection, pump, paced, unanswered, given: 0, answer_due: None })
    }

    /// Sends ranges until nothing is left to lease; returns the idle connection, unless the server
    /// has closed it.
    fn run(mut self) -> Result<Option<Connection>, Failure> {
        let sent = self.send_ranges();
        self.paced.pause();
        match sent {
            Ok(is_idle) => Ok(is_idle.then_some(self.connection)),
            Err(error) => {
                // Discards the send queue, whose late arrival would lock the range on the server.
                let _ = SockRef::from(self.connection.socket()).set_linger(Some(Duration::ZERO));
                let parts =
                    self.unanswered.iter().map(|sent| ByteRange::new(sent.range.start(), sent.acknowledged));
                self.stream.requeue(parts);
                Err(error)
            }
        }
    }

    /// Returns whether no work is left; `false` if the server has closed the idle connection.
    fn send_ranges(&mut self) -> Result<bool, Failure> {
        loop {
            if let Some(range) = self.next_range() {
                self.send(range)?;
            } else if !self.unanswered.is_empty() {
                if body::wait_for(self.connection.socket(), false, ACK_TICK).contains(PollFlags::IN) {
                    self.read_answers()?;
                }
                self.account()?;
            } else {
                self.paced.pause();
                if !self.stream.wait_for_work() {
                    return Ok(true);
                }
                if !matches!(self.connection.poll_answer(), Ok(EarlyAnswer::None))
                    || !self.connection.reusable()
                {
                    return Ok(false);
                }
                self.pump.stall.restart();
            }
        }
    }

    /// Leases the next range, unless enough bytes are outstanding.
    fn next_range(&self) -> Option<ByteRange> {
        let (outstanding, _) = self.stream.outstanding();
        let enough = !self.unanswered.is_empty() && outstanding >= self.stream.outstanding_target(false);
        if enough { None } else { self.stream.lease() }
    }

    /// Sends one range completely; reads answers to earlier ones meanwhile.
    fn send(&mut self, range: ByteRange) -> Result<(), Failure> {
        let peer = self.worker.peer;
        self.connection.send(peer.target.ask(range, peer.context.progress.size))?;
        let (before, acknowledged) = (self.given, range.start());
        self.unanswered.push_back(SentRange { range, before, acknowledged, whole: false });
        self.answer_due = None;
        let mut supply = peer.context.supply(range)?;
        self.paced.resume();
        self.send_body(range, &mut supply)
    }

    fn send_body(&mut self, range: ByteRange, supply: &mut Supply) -> Result<(), Failure> {
        let progress = self.worker.peer.context.progress;
        let mut at = range.start();
        loop {
            if self.stream.stop().is_cancelled() {
                return Err(Failure::interrupted());
            }
            let ready = body::wait_for(self.connection.socket(), true, SEND_CHECK_INTERVAL);
            if ready.contains(PollFlags::IN) {
                self.read_answers()?;
            }
            if !ready.is_empty() {
                let turn = self.pump.turn(&mut self.connection, supply);
                let turn = turn.or_else(|error| self.explain(error))?;
                let end = range.start() + supply.sent().get();
                add(&progress.transfer.waits.writer, supply.take_waited());
                self.given += end - at;
                progress.range_sent(ByteRange::new(at, end));
                at = end;
                if turn == Turn::Done {
                    self.connection.finish_body();
                    self.unanswered.iter_mut().for_each(|sent| sent.whole = true);
                    return self.account();
                }
            }
            self.account()?;
        }
    }

    /// Creates the error of an interrupted body. An answer received before explains more than the
    /// kernel's error.
    fn explain(&mut self, error: SendError) -> Result<Turn, Failure> {
        if let SendError::Socket(_) = &error {
            self.read_answers()?;
        }
        Err(UploadError::of_send(error, self.connection.at()).into())
    }

    /// Reads the answers that have arrived.
    fn read_answers(&mut self) -> Result<(), Failure> {
        loop {
            // A cancelled read leaves the rest of an answer, which is not a head.
            if self.stream.stop().is_cancelled() {
                return Err(Failure::interrupted());
            }
            match self.connection.poll_answer()? {
                EarlyAnswer::None => return Ok(()),
                EarlyAnswer::Interim => {
                    self.pump.stall.restart();
                    self.answer_due = None;
                }
                EarlyAnswer::Final => {
                    let head = self.connection.read_head()?;
                    let answer = UploadAnswer::read(head, &mut self.connection);
                    self.take_answer(&answer)?;
                }
            }
        }
    }

    fn take_answer(&mut self, answer: &UploadAnswer) -> Result<(), Failure> {
        let status = answer.head.status();
        let peer = self.worker.peer;
        if Redirects::keeps_method(status) {
            return Err(self.redirected(answer)?);
        }
        if status == 423 && peer.owns_locks() && self.worker.locked < LOCKED_TRIES {
            self.worker.locked += 1;
            self.stream.stop().sleep(LOCKED_WAIT);
            return Err(self.refused(answer).with_retry(Retry::AtOnce));
        }
        if !(200..300).contains(&status) {
            return Err(self.refused(answer));
        }
        match self.unanswered.front() {
            Some(sent) if sent.whole => {
                let range = sent.range;
                self.unanswered.pop_front();
                if !self.stream.confirmed(range.end(), range.len()) {
                    return Err(self.stolen());
                }
                self.worker.locked = 0;
                self.answer_due = None;
                self.stream.answered();
                peer.accepted(peer.context.progress.range_confirmed(range));
                Ok(())
            }
            _ => {
                let why = "it confirms a range before it has it";
                Err(UploadError::answer(self.connection.at(), why).into())
            }
        }
    }

    /// Sets the target of a redirect for further requests; returns the error that ends this
    /// connection.
    fn redirected(&mut self, answer: &UploadAnswer) -> Result<Failure, Failure> {
        let worker = &mut *self.worker;
        let target = worker.peer.target;
        let to = worker.redirects.follow(&worker.target.with_query(target.query), &answer.head)?;
        worker.target = to.without_query(target.query);
        Ok(self.refused(answer).with_retry(Retry::AtOnce))
    }

    fn refused(&self, answer: &UploadAnswer) -> Failure {
        UploadError::refused(self.connection.at(), RANGE_STEP, answer).into()
    }

    fn stolen(&self) -> Failure {
        Failure::stolen(&self.worker.peer.target.url.safe_url().to_string())
    }

    /// Counts bytes acknowledged by the peer's TCP; fails if the connection has stalled, or its
    /// leases are stolen.
    fn account(&mut self) -> Result<(), Failure> {
        // Without the kernel's counters, only an answer acknowledges a range.
        let acked =
            in_flight(self.connection.socket()).map_or(0, |in_flight| self.given.saturating_sub(in_flight));
        for sent in &mut self.unanswered {
            let reached = sent.range.start() + acked.saturating_sub(sent.before);
            // The last block stays leased until the answer.
            let reached = reached.min(sent.range.end() - 1) / ALIGNMENT.get() * ALIGNMENT.get();
            if reached > sent.acknowledged {
                let part = ByteRange::new(sent.acknowledged, reached);
                // Another stream sends the stolen rest: to count it here would requeue it.
                let counted = self.stream.acknowledged(part, self.connection.socket());
                sent.acknowledged += counted.get();
            }
        }
        if self.unanswered.iter().any(|sent| !self.stream.leases_until(sent.range.end())) {
            return Err(self.stolen());
        }
        let outstanding = self.pump.stall.check(self.connection.socket())?;
        if outstanding == Some(0) {
            self.stream.keep_alive();
        }
        // During a body, the server waits for this host's disk or for `--limit`.
        if outstanding != Some(0) || self.unanswered.iter().any(|sent| !sent.whole) {
            self.answer_due = None;
            return Ok(());
        }
        let limit = self.worker.peer.context.request.transfer.stall;
        let due = *self.answer_due.get_or_insert_with(Instant::now);
        if due.elapsed() > limit {
            return Err(UploadError::stalled(self.connection.at(), limit).into());
        }
        Ok(())
    }
}

/// Returns the bytes passed to the kernel and not acknowledged by the peer's TCP, if the kernel
/// reports them.
pub(super) fn in_flight(socket: &TcpStream) -> Option<u64> {
    let tcp = tcp_info::read(socket).ok()?;
    let sent = tcp.tcpi_bytes_sent()?.saturating_sub(tcp.tcpi_bytes_retrans()?);
    // bytes_acked includes the SYN.
    let acked = tcp.bytes_acked().map_or(0, Bytes::get).saturating_sub(1);
    Some((sent + tcp.tcpi_notsent_bytes()?).saturating_sub(acked))
}
