//! One stream: claims blocks, asks for them ahead of time, receives them into segments.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use longhaul_core::event::{Event, Warning};
use longhaul_core::pace::Pace;
use longhaul_core::plan;
use longhaul_core::proto::http::RangeAnswer;
use longhaul_core::ranges::ByteRange;
use longhaul_core::retry::Backoff;
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_sys::host;
use longhaul_sys::tcp_info;

use super::error::TransferError;
use super::remote::Remote;
use super::shared::Shared;
use super::{edge, opening};
use crate::recv::arrivals::{ALIVE, Arrivals};
use crate::recv::edge::{PacedWindow, Turn};
use crate::recv::pipeline::Inlet;
use crate::recv::pool::Segment;
use crate::recv::ring::Flow;
use crate::source::http::{self, Client, Connection, HttpError, Read, Retry};
use crate::threads::add;

/// How streams treat failures and windows.
#[derive(Clone, Copy)]
pub(super) struct StreamOptions {
    pub(super) retries: u32,
    pub(super) stall: Duration,
    /// Whether to hold receive windows near the BDP.
    pub(super) hold_window: bool,
    /// How to pace a server that does not pace itself, through the receive window.
    pub(super) pace: Pace,
}

/// A stream's work, on a thread of its own.
pub(super) struct Stream<'a> {
    pub(super) id: usize,
    pub(super) shared: &'a Shared<'a>,
    pub(super) inlet: Inlet<'a>,
    pub(super) client: &'a Client,
    pub(super) remote: &'a Remote,
    pub(super) options: StreamOptions,
    /// Requests sent (or about to be) and not yet answered in full, in order.
    asked: VecDeque<ByteRange>,
    connection: Option<Connection>,
    /// The stream's own notion of where the server is: which of its addresses works.
    place: http::Target,
    /// Whether the head of the front request's answer has been read.
    open: bool,
    /// How far a file of which no parts can be asked for had come when it broke off and was started over.
    broke_off: Option<u64>,
    segment: Option<Segment>,
    /// When the segment got its first byte.
    segment_since: Instant,
    arrivals: Arrivals,
    /// The window through which the server is being paced.
    window: Option<PacedWindow>,
}

/// How long to wait for a free segment before looking whether to stop.
const LOOK_UP: Duration = Duration::from_millis(100);
/// A partly filled segment of a slow stream is written after this time, so that a crash costs little.
const SLOW_FLUSH: Duration = Duration::from_secs(5);

impl<'a> Stream<'a> {
    pub(super) fn new(
        id: usize,
        shared: &'a Shared<'a>,
        inlet: Inlet<'a>,
        client: &'a Client,
        remote: &'a Remote,
        options: StreamOptions,
    ) -> Self {
        let arrivals = Arrivals::new(Rtt::default(), false, Instant::now());
        let (asked, segment_since) = (VecDeque::new(), Instant::now());
        let place = remote.place.clone();
        Self {
            id,
            shared,
            inlet,
            client,
            remote,
            options,
            asked,
            connection: None,
            place,
            open: false,
            broke_off: None,
            segment: None,
            segment_since,
            arrivals,
            window: None,
        }
    }

    /// Starts with a connection whose answer, already open, holds `range`.
    pub(super) fn begin_with(&mut self, connection: Connection, range: ByteRange) {
        self.adopt(connection);
        self.asked.push_back(range);
        self.shared.work.began();
        self.open = true;
    }

    /// Works until everything is there, or for good reason gives up.
    pub(super) fn run(mut self) {
        let mut backoff = Backoff::new(self.options.retries);
        while let Err(error) = self.work() {
            // Taken, not read: the next failure may come before the next connection has brought anything.
            let brought = std::mem::take(&mut self.arrivals.total);
            if self.broke_off.is_none() {
                backoff.received(brought);
            }
            let served = brought >= Backoff::PROGRESS;
            self.abandon();
            if self.shared.stop.is_cancelled() {
                break;
            }
            // A server may close a connection that has served enough requests; that is no failure.
            if served
                && matches!(error, TransferError::Http(HttpError::ClosedBeforeHead { got: Bytes::ZERO, .. }))
            {
                continue;
            }
            let asked_to_wait = match error.retry() {
                Retry::Never => return self.give_up(error),
                Retry::Now => None,
                Retry::After(wait) => Some(wait),
            };
            let Some(wait) = backoff.failed(asked_to_wait, self.jitter()) else { return self.give_up(error) };
            self.shared.emit(&Event::Retrying { stream: self.id, reason: error.to_string(), wait });
            self.shared.work.rest(wait, &self.shared.stop);
        }
        self.leave();
    }

    fn work(&mut self) -> Result<(), TransferError> {
        loop {
            if self.asked.is_empty() {
                if !self.shared.work.wait(&self.shared.stop) {
                    return Ok(());
                }
                // Before the claim: a block must not wait for a connection that may never come.
                self.connect()?;
                let Some(block) = self.shared.work.claim() else { continue };
                self.ask(block)?;
            }
            self.ask_ahead()?;
            if !self.open {
                self.read_head()?;
            }
            self.receive_block()?;
            self.asked.pop_front();
            self.shared.work.done();
            self.open = false;
            self.end_body()?;
        }
    }

    fn connect(&mut self) -> Result<(), TransferError> {
        if self.connection.as_ref().is_some_and(Connection::reusable) {
            return Ok(());
        }
        self.abandon();
        let connection = self.client.connect(&mut self.place, &self.shared.stop)?;
        self.adopt(connection);
        Ok(())
    }

    fn adopt(&mut self, connection: Connection) {
        let rtt = tcp_info::read(connection.socket()).ok().and_then(|info| info.rtt());
        self.shared.sockets.add(self.id, connection.socket());
        self.shared.emit(&Event::Connected { stream: self.id, peer: connection.peer(), rtt });
        self.arrivals = Arrivals::new(rtt.unwrap_or_default(), self.options.hold_window, Instant::now());
        self.connection = Some(connection);
    }

    fn ask(&mut self, block: ByteRange) -> Result<(), TransferError> {
        // Claimed from here on: whatever fails, `abandon` gives it back.
        self.asked.push_back(block);
        let request = self.remote.request(block).map(|r| r.only_if(self.remote.validator.clone()));
        match &mut self.connection {
            Some(connection) => Ok(connection.send_get(request.as_ref())?),
            None => Ok(()),
        }
    }

    /// Keeps enough requests under way that the server never waits for the next.
    fn ask_ahead(&mut self) -> Result<(), TransferError> {
        let Some(connection) = &self.connection else { return Ok(()) };
        // A body of unknown length is the last thing on its connection.
        if self.remote.size.is_none() || !connection.reusable() {
            return Ok(());
        }
        loop {
            let ahead = self.asked.iter().fold(Bytes::ZERO, |sum, block| sum + block.len());
            let enough = plan::ask_ahead(self.arrivals.rate, self.arrivals.rtt);
            // Towards the end nobody takes more than a share of what is left: the slowest would be waited for.
            if ahead >= enough.min(self.shared.work.share()) {
                return Ok(());
            }
            let Some(block) = self.shared.work.claim() else { return Ok(()) };
            self.ask(block)?;
        }
    }

    fn read_head(&mut self) -> Result<(), TransferError> {
        let (Some(connection), Some(&block)) = (&mut self.connection, self.asked.front()) else {
            return Ok(());
        };
        let head = connection.read_head()?;
        let remote = self.remote;
        let shown = || remote.shown.clone();
        connection.check_status(&head)?;
        let answer = RangeAnswer::of(&head, remote.request(block).as_ref())
            .map_err(|source| TransferError::Range { url: shown(), source })?;
        let same = remote.is_same(&head);
        match answer {
            RangeAnswer::Whole { total } if same && remote.whole && total == remote.size => {
                self.start_over();
                Ok(())
            }
            RangeAnswer::Whole { .. } if same && !remote.whole => Err(TransferError::RangesIgnored(shown())),
            RangeAnswer::Part { range, total } if same && total.is_none_or(|t| Some(t) == remote.size) => {
                self.shorten_front(range.end());
                self.open = true;
                Ok(())
            }
            _ => Err(TransferError::changed(shown(), remote.validator.as_ref(), head.validator().as_ref())),
        }
    }

    /// Receives a file from its start again, where the server knows no ranges.
    ///
    /// That is no progress, however much comes: only a whole file is.
    fn start_over(&mut self) {
        if let Some(front) = self.asked.front_mut() {
            self.broke_off = self.broke_off.max(Some(front.start()));
            *front = ByteRange::new(0, front.end());
        }
        self.open = true;
    }

    /// A server may send less than was asked for (RFC 9110, section 15.3.7); the rest is for anyone.
    fn shorten_front(&mut self, end: u64) {
        if let Some(front) = self.asked.front_mut() {
            self.shared.work.give_back_end(ByteRange::new(end, front.end()));
            *front = ByteRange::new(front.start(), end);
        }
    }

    /// Receives the front block; its front is shortened as it arrives, so that a failure keeps the rest.
    fn receive_block(&mut self) -> Result<(), TransferError> {
        self.window = self.paced_window();
        while let Some(left) = self.asked.front().copied().filter(|left| !left.is_empty()) {
            self.need_segment(left)?;
            let (Some(segment), Some(connection)) = (&mut self.segment, &mut self.connection) else {
                return Ok(());
            };
            let spare = segment.spare();
            let mut most = self.shared.read_at_most(spare.len());
            if let Some(window) = &mut self.window {
                if window.carries(Instant::now()) {
                    connection.carry()?;
                }
                match window.turn(connection.socket(), most) {
                    Turn::Read(some) => most = some.min(most),
                    Turn::Wait => {
                        self.check_alive()?;
                        continue;
                    }
                    Turn::Off => {
                        self.window = None;
                        self.arrivals.take_back();
                    }
                }
            }
            match connection.read_body(&mut spare[..most])? {
                Read::Data(n) => {
                    segment.fill(n);
                    let done = segment.is_full() || left.len().get() == n as u64;
                    if let Some(front) = self.asked.front_mut() {
                        *front = ByteRange::new(left.start() + n as u64, left.end());
                    }
                    self.arrived(n);
                    if done {
                        self.flush();
                        self.ask_ahead()?;
                    }
                }
                Read::Idle => {}
                // The end of a file whose length nobody told, and which has not become shorter meanwhile.
                Read::End if self.remote.size.is_none() && Some(left.start()) >= self.broke_off => {
                    self.flush();
                    return Ok(());
                }
                Read::End => {
                    return Err(HttpError::ClosedEarly {
                        place: connection.place().clone(),
                        got: self.arrivals.total,
                        expected: None,
                    }
                    .into());
                }
            }
            if self.segment_since.elapsed() > SLOW_FLUSH {
                self.flush();
            }
            self.check_alive()?;
        }
        Ok(())
    }

    /// Paces the server through the window, where nothing else does and this is the last that is asked of it.
    fn paced_window(&self) -> Option<PacedWindow> {
        let limit = match self.options.pace {
            Pace::Rate(rate) => Some(rate),
            Pace::Auto | Pace::Off => None,
        };
        let last = self.asked.len() == 1 && self.shared.work.share() == Bytes::ZERO;
        let long = self.asked.front().is_some_and(|block| block.len() >= edge::WORTH_IT);
        let alone = self.shared.running.load(Ordering::SeqCst) == 1 && self.remote.size.is_some();
        let open = |connection: &Connection| edge::is_for(self.options.pace, self.remote, connection);
        let wanted =
            last && long && alone && self.options.hold_window && self.connection.as_ref().is_some_and(open);
        wanted.then(|| {
            PacedWindow::new(
                self.arrivals.rtt,
                limit,
                opening::larger_buffer(self.arrivals.rtt, 1),
                Instant::now(),
            )
        })
    }

    /// Reads what follows the last byte of a block, which is nothing, or the end of a chunked body.
    fn end_body(&mut self) -> Result<(), TransferError> {
        while let Some(connection) = &mut self.connection {
            match connection.read_body(&mut [0])? {
                Read::End => break,
                Read::Idle => self.check_alive()?,
                // More than was announced. What was asked for is there; the connection is of no more use.
                Read::Data(_) => self.abandon(),
            }
        }
        Ok(())
    }

    fn need_segment(&mut self, left: ByteRange) -> Result<(), TransferError> {
        let mut waiting_since = None;
        // The others bring about as much.
        let streams = self.shared.running.load(Ordering::SeqCst) as u64;
        let rate = Rate::bits_per_sec(self.arrivals.rate.as_bits_per_sec().saturating_mul(streams));
        let flow = Flow { rate, rtt: self.arrivals.rtt };
        while self.segment.is_none() {
            if self.shared.stop.is_cancelled() {
                return Err(HttpError::Cancelled.into());
            }
            let began = Instant::now();
            self.segment = self.inlet.take(left, LOOK_UP, flow).map_err(TransferError::Memory)?;
            self.segment_since = Instant::now();
            waiting_since.get_or_insert(began);
        }
        if let Some(since) = waiting_since {
            let waited = since.elapsed();
            add(&self.shared.waits.writer, waited);
            self.arrivals.paused(waited);
        }
        Ok(())
    }

    fn arrived(&mut self, bytes: usize) {
        self.shared.received(bytes);
        if let Some(window) = &mut self.window {
            window.read(bytes);
            if window.holds() {
                self.arrivals.release();
            }
        }
        if let Some(connection) = &self.connection {
            self.arrivals.add(Bytes::new(bytes as u64), connection.socket(), Instant::now());
        }
    }

    fn check_alive(&mut self) -> Result<(), TransferError> {
        if self.shared.stop.is_cancelled() {
            return Err(HttpError::Cancelled.into());
        }
        if self.arrivals.stalled(self.options.stall, Instant::now()) {
            return Err(TransferError::Stalled {
                url: self.remote.shown.clone(),
                least: ALIVE,
                waited: self.options.stall,
            });
        }
        Ok(())
    }

    fn flush(&mut self) {
        if let Some(segment) = self.segment.take() {
            self.inlet.hand_over(segment);
        }
    }

    /// Drops the connection; what has arrived is written, what has not is for anyone to claim.
    fn abandon(&mut self) {
        self.flush();
        if self.connection.take().is_some() {
            self.shared.sockets.remove(self.id);
            self.shared.emit(&Event::Closed { stream: self.id });
        }
        self.open = false;
        self.asked.drain(..).for_each(|block| self.shared.work.give_back(block));
    }

    /// Leaves the rest to the other streams; where there is none in the end, `error` is why the file is incomplete.
    fn give_up(self, error: TransferError) {
        let others = self.shared.running.load(Ordering::SeqCst) > 1;
        if others && !matches!(error, TransferError::Changed { .. }) {
            self.shared
                .emit(&Event::Warning(Warning::StreamLost { stream: self.id, reason: error.to_string() }));
            self.shared.gave_up(error);
        } else {
            self.shared.fail(error);
        }
        self.leave();
    }

    fn leave(mut self) {
        self.abandon();
        let cpu = u64::try_from(host::thread_cpu_time().as_nanos()).unwrap_or(u64::MAX);
        self.shared.waits.busiest.fetch_max(cpu, Ordering::Relaxed);
        self.shared.running.fetch_sub(1, Ordering::SeqCst);
    }

    /// Spreads retries; the clock's nanoseconds are random enough for that.
    fn jitter(&self) -> f64 {
        f64::from(self.shared.start.elapsed().subsec_nanos() % 1000) / 1000.0
    }
}
