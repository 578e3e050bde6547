//! One stream over HTTP: pipelined range requests, and their bodies from the socket straight into segments.

mod answer;
mod connecting;
mod trailing_request;

use std::collections::VecDeque;

use longhaul_core::ranges::ByteRange;

use super::Read;
use super::connection::Connection;
use super::error::HttpError;
use super::http_source::{Described, HttpSource};
use super::location::Location;
use crate::failure::FailureKind;
use crate::source::{StreamPeer, StreamWorker};
use crate::transfer::Stream;
use crate::transfer::error::{Cause, Retry, SourceError};

/// Requests sent ahead of the one that is answered: a server reads each when it has sent the answers before it.
const MOST_REQUESTS_AHEAD: usize = 64;

/// The HTTP side of one stream.
pub(super) struct HttpWorker<'s> {
    source: &'s HttpSource<'s>,
    /// Where this stream's connections lead, with the address that works for it first.
    location: Location,
    /// Requests without a complete answer; some of what they asked for may have been stolen meanwhile.
    requested: VecDeque<Requested>,
    /// Whether a trailing request was sent after these, whose answer is dropped.
    trails: bool,
    /// Whether a kept connection proved closed, so that the next one must be new.
    distrusts_kept: bool,
    /// Whether the original URL was asked anew since the last answer with bytes: a second refusal counts as a failure.
    has_refreshed: bool,
    /// Whether this call's connections have brought an answer.
    has_answered: bool,
    /// The state of the redirect that led to `location`.
    redirect: Redirect,
    /// How far a file that comes in one answer only had come when it broke off and was started over.
    broke_off: Option<u64>,
}

/// The state of the redirect to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Redirect {
    /// The target answers.
    #[default]
    Holds,
    /// Connections to the target have broken without an answer.
    Doubtful,
    /// The target has refused.
    Expired,
}

/// A range that was requested.
struct Requested {
    range: ByteRange,
    with_if_range: bool,
    /// Whether the head of the answer has been read.
    answered: bool,
}

impl<'s> HttpWorker<'s> {
    pub(super) fn new(source: &'s HttpSource<'_>) -> Self {
        Self {
            source,
            location: source.location(),
            requested: VecDeque::new(),
            trails: false,
            distrusts_kept: false,
            has_refreshed: false,
            has_answered: false,
            redirect: Redirect::Holds,
            broke_off: None,
        }
    }
}

impl StreamWorker for HttpWorker<'_> {
    fn work(&mut self, stream: &mut Stream<'_>) -> Result<(), SourceError> {
        let described = self.source.described()?;
        self.requested.clear();
        self.trails = false;
        self.has_answered = false;
        let mut exchange = Exchange { worker: self, described: &described, stream };
        let served = exchange.first_connection().and_then(|connection| {
            let Some(mut connection) = connection else { return Ok(None) };
            let done = exchange.run(&mut connection);
            exchange.stream.disconnected();
            done.map(|()| Some(connection))
        });
        let broke = |error: &SourceError| error.cause == Cause::Connection && error.retry == Retry::Backoff;
        if !self.has_answered && self.redirect == Redirect::Holds && served.as_ref().is_err_and(broke) {
            self.redirect = Redirect::Doubtful;
        }
        let Some(connection) = served? else { return Ok(()) };
        if !stream.holds_window() && !self.trails {
            described.client.keep(connection);
        }
        Ok(())
    }

    fn restarts(&self) -> bool {
        self.broke_off.is_some()
    }
}

/// A worker, its stream and the file for the time of one call.
struct Exchange<'a, 's, 't> {
    worker: &'a mut HttpWorker<'s>,
    described: &'a Described,
    stream: &'a mut Stream<'t>,
}

impl Exchange<'_, '_, '_> {
    /// Takes the connection whose answer is under way, or waits for work and connects; `None` where nothing is left to do.
    fn first_connection(&mut self) -> Result<Option<Connection>, SourceError> {
        if let Some((mut connection, range)) = self.worker.source.take_first() {
            connection.set_cancel(self.stream.renew_cancel());
            self.stream.connected(connection.socket(), connection.peer());
            self.stream.lease_requested(range);
            self.stream.answered();
            self.worker.has_answered = true;
            self.worker.requested.push_back(Requested { range, with_if_range: false, answered: true });
            return Ok(Some(connection));
        }
        if !self.stream.wait_for_work() {
            return Ok(None);
        }
        // Before the lease: a range must not wait for a connection that may never stand.
        self.connect().map(Some)
    }

    fn run(&mut self, connection: &mut Connection) -> Result<(), SourceError> {
        loop {
            if self.stream.front().is_none() {
                if !self.stream.wait_for_work() {
                    return Ok(());
                }
                // The answer to a range that was stolen would have to be read first.
                if !connection.reusable() || !self.worker.requested.is_empty() {
                    self.drop_requests();
                    *connection = self.connect()?;
                }
                let requested = match self.request_next_if_idle(connection) {
                    // The server has closed the connection behind the last answer that was needed.
                    Err(error) if self.worker.trails && error.cause == Cause::Connection => None,
                    requested => Some(requested?),
                };
                if requested == Some(false) {
                    continue;
                }
                if requested.is_none() || !self.skip_trailing_answer(connection)? {
                    // What was requested behind it can be leased again.
                    self.drop_requests();
                    connection.retire();
                    continue;
                }
            }
            self.request_ahead(connection)?;
            self.read_head(connection)?;
            self.receive(connection)?;
            self.end_answer(connection)?;
        }
    }

    /// Makes an error of what the next try will cure.
    fn at_once(&self, error: &HttpError) -> SourceError {
        SourceError::new(FailureKind::Temporary, Retry::AtOnce, Cause::Connection, error.to_string())
    }

    /// Gives up what was requested on a connection that is of no more use.
    fn drop_requests(&mut self) {
        self.stream.disconnected();
        self.worker.requested.clear();
        self.worker.trails = false;
    }

    fn shown(&self) -> &str {
        self.worker.source.shown()
    }

    /// Leases a range and requests it; `false` where none is left, or this stream drains.
    fn request_next(&mut self, connection: &mut Connection) -> Result<bool, SourceError> {
        let file = &self.described.file;
        // Leased from here on: whatever fails, `disconnected` releases it.
        let Some(range) = self.stream.lease() else { return Ok(false) };
        let request = file.request(range).map(|request| request.only_if(file.if_range()));
        let with_if_range = request.as_ref().is_some_and(|request| request.if_range().is_some());
        self.worker.requested.push_back(Requested { range, with_if_range, answered: false });
        connection.send_get(request.as_ref())?;
        Ok(true)
    }

    /// Requests the next range where nothing is requested yet; `false` where none is left, or this stream drains.
    fn request_next_if_idle(&mut self, connection: &mut Connection) -> Result<bool, SourceError> {
        Ok(!self.worker.requested.is_empty() || self.request_next(connection)?)
    }

    /// Keeps enough requests under way that the server never waits for the next.
    fn request_ahead(&mut self, connection: &mut Connection) -> Result<(), SourceError> {
        let file = &self.described.file;
        loop {
            // A body of unknown length is the last thing on its connection.
            if file.size.is_none() || !connection.reusable() || self.worker.trails {
                return Ok(());
            }
            let (ahead, requests) = self.stream.outstanding();
            // Where some of it was stolen, the answers to that come before those to anything new.
            if requests != self.worker.requested.len() {
                return Ok(());
            }
            let enough = self.stream.outstanding_target(file.paced);
            if ahead >= enough || requests >= MOST_REQUESTS_AHEAD || !self.request_next(connection)? {
                return self.request_trailing(connection, ahead);
            }
        }
    }

    /// Receives the first lease, which is shortened as its bytes arrive, so that a failure keeps the rest.
    fn receive(&mut self, connection: &mut Connection) -> Result<(), SourceError> {
        let file = &self.described.file;
        while let Some(left) = self.stream.front().filter(|left| !left.is_empty()) {
            match connection.read_body(self.stream.buffer(left)?)? {
                Read::Data(bytes) => {
                    if self.stream.delivered(bytes, left, connection.socket()) {
                        self.request_ahead(connection)?;
                    }
                }
                Read::Idle => {}
                // The end of a file of unknown length, which has not become shorter since it broke off.
                Read::End if file.size.is_none() && Some(left.start()) >= self.worker.broke_off => break,
                Read::End => {
                    return Err(HttpError::ClosedEarly {
                        at: connection.at().clone(),
                        got: self.stream.delivered_so_far(),
                        expected: None,
                    }
                    .into());
                }
            }
            self.stream.check_alive(self.worker.source.shown())?;
        }
        self.stream.flush();
        Ok(())
    }

    /// Drops the lease that has arrived, and reads what follows its last byte: nothing, or the end of a chunked body.
    fn end_answer(&mut self, connection: &mut Connection) -> Result<(), SourceError> {
        self.worker.requested.pop_front();
        if !self.stream.complete() {
            return Err(SourceError::stolen(self.shown()));
        }
        loop {
            match connection.read_body(&mut [0])? {
                Read::End => return Ok(()),
                Read::Idle => self.stream.check_alive(self.worker.source.shown())?,
                // More than was announced, or than is still leased: the connection is of no more use.
                Read::Data(_) => {
                    connection.retire();
                    self.drop_requests();
                    return Ok(());
                }
            }
        }
    }
}
