//! The worker of an HTTP stream: pipelined range requests, and bodies received directly into
//! segments.

mod answer;
mod connecting;
mod trailing_request;

use std::collections::VecDeque;

use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::proto::http::RangeRequest;
use longhaul_core::ranges::ByteRange;
use longhaul_core::retry::Retry;
use longhaul_core::units::Bytes;

use super::connection::Connection;
use super::error::{HttpError, closed_early};
use super::http_source::{DescribedSource, HttpSource};
use crate::connect::Received;
use crate::source::http::http_source::first_answer::MAX_RANGE_FAILURES;
use crate::source::http::http_source::location::Location;
use crate::source::{StreamPeer, StreamWorker};
use crate::transfer::Stream;

/// The maximum number of pipelined requests; a server reads each only after it has sent the answers
/// before it.
const MAX_REQUESTS_AHEAD: usize = 64;

/// With more bytes to read past, the whole file is requested only as a last resort: the server may
/// recover.
const MAX_SKIPPED: Bytes = Bytes::mib(64);

/// The worker of one stream.
pub(super) struct HttpWorker<'s> {
    source: &'s HttpSource<'s>,
    /// The target of this stream's connections, with the address that works for it first.
    location: Location,
    /// Whether a kept connection turned out to be closed, so that the next one must be new.
    distrusts_kept: bool,
    /// Whether the original URL was requested again since the last answer with bytes: a second
    /// refusal counts as a failure.
    has_refreshed: bool,
    /// The state of the redirect that led to `location`.
    redirect: Redirect,
    /// The consecutive failures without an answer of the file.
    range_failures: u32,
    /// Whether the next request is for the whole file, because the server fails at ranges.
    asks_whole: bool,
    /// The offset of the first range that the last connection left without a complete answer.
    unanswered_at: Option<u64>,
    /// The offset that a file sent in one answer only had reached when its connection broke before
    /// a restart.
    broke_off: Option<u64>,
}

/// The state of the redirect to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Redirect {
    /// The target answers.
    #[default]
    Holds,
    /// Connections to the target broke without an answer.
    Doubtful,
    /// The target has refused a request.
    Expired,
}

/// A requested range.
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
            location: source.location.lock().clone(),
            distrusts_kept: false,
            has_refreshed: false,
            redirect: Redirect::Holds,
            range_failures: 0,
            asks_whole: false,
            unanswered_at: None,
            broke_off: None,
        }
    }
}

impl StreamWorker for HttpWorker<'_> {
    fn work(&mut self, stream: &mut Stream<'_>) -> Result<(), Failure> {
        let described = self.source.described()?;
        let mut exchange = Exchange::new(self, &described, stream);
        let served = exchange.first_connection().and_then(|connection| {
            let Some(mut connection) = connection else { return Ok(None) };
            let done = exchange.run(&mut connection);
            exchange.stream.disconnected();
            done.map(|()| Some(connection))
        });
        let Exchange { requested, trails, has_answered, .. } = exchange;
        self.unanswered_at = requested.front().map(|asked| asked.range.start());
        let broke = |error: &Failure| error.cause == Cause::Connection && error.retry == Retry::Backoff;
        if !has_answered && self.redirect == Redirect::Holds && served.as_ref().is_err_and(broke) {
            self.redirect = Redirect::Doubtful;
        }
        // A failure that is retried at once is none of the request.
        if !served.as_ref().is_err_and(|error| error.retry == Retry::AtOnce) {
            self.asks_whole = false;
            self.range_failures += u32::from(served.is_err());
        }
        let Some(connection) = served? else { return Ok(()) };
        // While other streams run, an idle connection may occupy the only place of a server of few
        // connections.
        if stream.is_complete() && !stream.holds_window() && !trails {
            described.client.keep(connection);
        }
        Ok(())
    }

    fn restarts(&self) -> bool {
        self.broke_off.is_some()
    }

    fn falls_back(&mut self, is_last: bool) -> bool {
        let is_near = self.unanswered_at.is_some_and(|start| start <= MAX_SKIPPED.get());
        let fails = self.range_failures >= MAX_RANGE_FAILURES && is_near;
        self.asks_whole = (is_last || fails) && self.range_failures > 0 && self.source.falls_back();
        self.asks_whole
    }
}

/// A worker, its stream and the described file, for one call.
struct Exchange<'a, 's, 't> {
    worker: &'a mut HttpWorker<'s>,
    described: &'a DescribedSource,
    stream: &'a mut Stream<'t>,
    /// Requests without a complete answer; some of their ranges may have been stolen meanwhile.
    requested: VecDeque<Requested>,
    /// Whether a trailing request was sent after these; its answer is dropped.
    trails: bool,
    /// Whether the connection is within an answer with the whole file, of which the leases are
    /// kept.
    in_whole: bool,
    /// Whether a connection of this call has received an answer.
    has_answered: bool,
}

impl<'a, 's, 't> Exchange<'a, 's, 't> {
    fn new(
        worker: &'a mut HttpWorker<'s>,
        described: &'a DescribedSource,
        stream: &'a mut Stream<'t>,
    ) -> Self {
        let requested = VecDeque::new();
        Self { worker, described, stream, requested, trails: false, in_whole: false, has_answered: false }
    }

    /// Takes the connection with the first answer, or waits for work and connects; `None` if no
    /// work is left.
    fn first_connection(&mut self) -> Result<Option<Connection>, Failure> {
        let first = self.worker.source.unused.lock().first.take();
        if let Some((mut connection, range)) = first {
            connection.cancel = self.stream.renew_cancel();
            self.stream.connected(connection.socket(), connection.peer());
            self.stream.lease_requested(range);
            self.stream.answered();
            self.has_answered = true;
            self.requested.push_back(Requested { range, with_if_range: false, answered: true });
            return Ok(Some(connection));
        }
        if !self.stream.wait_for_work() {
            return Ok(None);
        }
        // Connects before leasing: a range must not wait for a connection that may fail.
        self.connect().map(Some)
    }

    fn run(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        loop {
            if self.stream.front().is_none() {
                if !self.stream.wait_for_work() {
                    return Ok(());
                }
                // Answers to stolen ranges would have to be read first.
                let is_usable = connection.reusable() || self.in_whole;
                if !is_usable || !self.requested.is_empty() {
                    self.drop_requests();
                    *connection = self.connect()?;
                }
                let requested = match self.request_next_if_idle(connection) {
                    // The server has closed the connection after the last needed answer.
                    Err(error) if self.trails && error.cause == Cause::Connection => None,
                    requested => Some(requested?),
                };
                if requested == Some(false) {
                    continue;
                }
                if requested.is_none() || !self.skip_trailing_answer(connection)? {
                    // Ranges requested after this one can be leased again.
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

    /// Creates an error that is retried at once.
    fn at_once(&self, error: &HttpError) -> Failure {
        Failure::new(FailureKind::Temporary, error.to_string()).with_retry(Retry::AtOnce)
    }

    /// Drops the requests on an unusable connection.
    fn drop_requests(&mut self) {
        self.stream.disconnected();
        self.requested.clear();
        (self.trails, self.in_whole) = (false, false);
    }

    fn shown(&self) -> &str {
        self.worker.source.shown()
    }

    /// Leases a range and requests it; `false` if none is left, or this stream drains.
    fn request_next(&mut self, connection: &mut Connection) -> Result<bool, Failure> {
        // Leased from here on; after any failure, `disconnected` releases the lease.
        let Some((range, request)) = self.lease() else { return Ok(false) };
        let with_if_range = request.as_ref().is_some_and(|request| request.if_range().is_some());
        let answered = self.in_whole;
        self.requested.push_back(Requested { range, with_if_range, answered });
        if answered {
            self.skip_to(connection, range.start())?;
        } else {
            connection.send_get(request.as_ref())?;
        }
        Ok(true)
    }

    /// Leases a range; returns it with the request for it, which is `None` if the whole file is
    /// requested.
    fn lease(&self) -> Option<(ByteRange, Option<RangeRequest>)> {
        if self.asks_whole() {
            return Some((self.stream.lease_chunk(Bytes::new(u64::MAX))?, None));
        }
        let (file, range) = (&self.described.file, self.stream.lease()?);
        Some((range, file.request(range).map(|request| request.only_if(file.if_range()))))
    }

    /// Requests the next range if no request is outstanding; `false` if none is left, or this
    /// stream drains.
    fn request_next_if_idle(&mut self, connection: &mut Connection) -> Result<bool, Failure> {
        Ok(!self.requested.is_empty() || self.request_next(connection)?)
    }

    /// Keeps enough requests outstanding that the server never waits for the next.
    fn request_ahead(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        let file = &self.described.file;
        loop {
            // A body of unknown length is the last answer on its connection.
            if file.size.is_none() || !connection.reusable() || self.trails || self.asks_whole() {
                return Ok(());
            }
            let (ahead, requests) = self.stream.outstanding();
            // If ranges were stolen, their answers arrive before those to new requests.
            if requests != self.requested.len() {
                return Ok(());
            }
            let enough = self.stream.outstanding_target(file.pace.is_some());
            if ahead >= enough || requests >= MAX_REQUESTS_AHEAD || !self.request_next(connection)? {
                return self.request_trailing(connection, ahead);
            }
        }
    }

    /// Receives the first lease, which shrinks as its bytes arrive, so that a failure keeps the
    /// rest.
    fn receive(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        let file = &self.described.file;
        while let Some(left) = self.stream.front().filter(|left| !left.is_empty()) {
            match connection.read_body(self.stream.buffer(left)?)? {
                Received::Data(bytes) => {
                    if self.stream.delivered(bytes, left, connection.socket()).1 {
                        self.request_ahead(connection)?;
                    }
                }
                Received::Idle => {}
                // The end of a file of unknown length, at or after the offset reached before a
                // restart.
                Received::End { .. }
                    if file.size.is_none() && Some(left.start()) >= self.worker.broke_off =>
                {
                    break;
                }
                Received::End { .. } => {
                    return Err(closed_early(connection.at(), self.stream.delivered_so_far(), None));
                }
            }
            self.stream.check_alive(self.worker.source.shown())?;
        }
        self.stream.flush();
        Ok(())
    }

    /// Drops the completed lease, and reads what follows its last byte: nothing, or the end of a
    /// chunked body.
    fn end_answer(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        self.requested.pop_front();
        if !self.stream.complete() {
            return Err(Failure::stolen(self.shown()));
        }
        let is_cut = self.described.file.size.is_some_and(|size| connection.body_position() < size.get());
        if self.in_whole && is_cut {
            return Ok(());
        }
        self.in_whole = false;
        loop {
            match connection.read_body(&mut [0])? {
                // Requests sent ahead get no answer.
                Received::End { .. } if connection.persistence.has_ended => {
                    self.drop_requests();
                    return Ok(());
                }
                Received::End { .. } => return Ok(()),
                Received::Idle => self.stream.check_alive(self.worker.source.shown())?,
                // More bytes than announced or leased: the connection is unusable.
                Received::Data(_) => {
                    connection.retire();
                    self.drop_requests();
                    return Ok(());
                }
            }
        }
    }
}
