//! One stream: claims blocks, asks for them ahead of time, receives them into segments.

mod asking;
mod leaving;
mod receiving;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::event::Event;
use longhaul_core::pace::Pace;
use longhaul_core::ranges::ByteRange;
use longhaul_core::retry::Backoff;
use longhaul_core::units::{Bytes, Rtt};

use super::error::TransferError;
use super::remote::Remote;
use super::seat::Seat;
use super::shared::Shared;
use crate::sink::arrivals::Arrivals;
use crate::sink::edge::PacedWindow;
use crate::sink::pipeline::Inlet;
use crate::sink::segment_pool::Segment;
use crate::source::http::{self, Client, Connection, HttpError, Retry};

/// How streams treat failures and windows.
#[derive(Clone, Copy)]
pub(super) struct StreamOptions {
    pub(super) retries: u32,
    pub(super) stall: Duration,
    /// Whether to hold receive windows near the BDP.
    pub(super) hold_window: bool,
    /// How to pace a server that does not pace itself, through the receive window, if at all.
    pub(super) pace: Option<Pace>,
}

/// What every stream of a transfer works with.
#[derive(Clone)]
pub(super) struct Means<'a> {
    pub(super) shared: &'a Shared<'a>,
    pub(super) inlet: Inlet<'a>,
    pub(super) client: &'a Client,
    pub(super) remote: &'a Remote,
    pub(super) options: StreamOptions,
}

/// A stream's work, on a thread of its own.
pub(super) struct Stream<'a> {
    seat: Arc<Seat>,
    shared: &'a Shared<'a>,
    inlet: Inlet<'a>,
    client: &'a Client,
    remote: &'a Remote,
    options: StreamOptions,
    connection: Option<Connection>,
    /// Whether it has ever had one.
    has_begun: bool,
    /// What was asked for on it and not answered in full; others may have taken over some of that.
    requested: VecDeque<Request>,
    /// The stream's own notion of where the server is: which of its addresses works.
    place: http::ResolvedUrl,
    /// Whether the head of the front request's answer has been read.
    open: bool,
    /// How far a file of which no parts can be asked for had come when it broke off and was started over.
    broke_off: Option<u64>,
    segment: Option<Segment>,
    /// When the segment got its first byte.
    segment_since: Instant,
    arrivals: Arrivals,
    pacing: Pacing,
}

/// What was asked for.
struct Request {
    block: ByteRange,
    /// Only if the file is still the same.
    if_same: bool,
}

/// Whether the server is being paced through this connection's window.
enum Pacing {
    /// The connection is too young to tell whether it should be.
    Open,
    On(Box<PacedWindow>),
    Off,
}

impl<'a> Stream<'a> {
    pub(super) fn new(seat: Arc<Seat>, means: Means<'a>) -> Self {
        let Means { shared, inlet, client, remote, options } = means;
        shared.work.join(&seat);
        let now = Instant::now();
        Self {
            seat,
            shared,
            inlet,
            client,
            remote,
            options,
            connection: None,
            has_begun: false,
            requested: VecDeque::new(),
            place: remote.place.clone(),
            open: false,
            broke_off: None,
            segment: None,
            segment_since: now,
            arrivals: Arrivals::new(Rtt::default(), false, now),
            pacing: Pacing::Off,
        }
    }

    /// Returns how the others see it.
    pub(super) fn seat(&self) -> Arc<Seat> {
        Arc::clone(&self.seat)
    }

    /// Starts with a connection whose answer, already open, holds `range`.
    pub(super) fn begin_with(&mut self, mut connection: Connection, range: ByteRange) {
        connection.set_cancel(self.seat.renew_cancel());
        self.adopt(connection);
        self.shared.work.began(&self.seat, range);
        self.requested.push_back(Request { block: range, if_same: false });
        self.seat.answered();
        self.open = true;
    }

    /// Works until everything is there, the stream is sent away, or for good reason gives up.
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
            if self.shared.stop.is_cancelled() || self.shared.work.is_done() || self.seat.is_to_go() {
                break;
            }
            let error = self.own_words(error);
            // A server may close a connection that has served enough requests; that is no failure.
            if served
                && matches!(error, TransferError::Http(HttpError::ClosedBeforeHead { got: Bytes::ZERO, .. }))
            {
                continue;
            }
            if matches!(error, TransferError::IfRangeRefused(_)) {
                continue;
            }
            if self.leaves_refused(&error, brought) {
                break;
            }
            let asked_to_wait = match error.retry() {
                Retry::Never => return self.give_up(error),
                Retry::Now => None,
                Retry::After(wait) => Some(wait),
            };
            let Some(wait) = backoff.failed(asked_to_wait, self.jitter()) else { return self.give_up(error) };
            self.shared.emit(&Event::Retrying { stream: self.seat.id, reason: error.to_string(), wait });
            self.shared.work.rest(wait, &self.shared.stop);
        }
        self.leave();
    }

    fn work(&mut self) -> Result<(), TransferError> {
        loop {
            if self.shared.work.front(&self.seat).is_none() {
                if !self.shared.work.wait(&self.seat, &self.shared.stop) {
                    return Ok(());
                }
                // Before the claim: a block must not wait for a connection that may never come.
                self.connect()?;
                if !self.ask_next()? {
                    continue;
                }
            }
            self.ask_ahead()?;
            if !self.open {
                self.read_head()?;
            }
            self.receive_block()?;
            self.open = false;
            self.requested.pop_front();
            if !self.shared.work.done(&self.seat) {
                return Err(TransferError::TakenOver(self.remote.shown.clone()));
            }
            self.end_body()?;
        }
    }

    /// Puts into words that another stream has interrupted this one.
    fn own_words(&self, error: TransferError) -> TransferError {
        match error {
            TransferError::Http(HttpError::Cancelled) => TransferError::TakenOver(self.remote.shown.clone()),
            error => error,
        }
    }

    /// Spreads retries; the clock's nanoseconds are random enough for that.
    fn jitter(&self) -> f64 {
        f64::from(self.shared.start.elapsed().subsec_nanos() % 1000) / 1000.0
    }
}
