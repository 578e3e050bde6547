//! Compares the head of an answer with the request, and takes the missing ranges from an answer
//! with the whole file.

use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::proto::http::{RangeAnswer, ResponseHead};
use longhaul_core::ranges::ByteRange;
use longhaul_core::retry::Retry;
use longhaul_core::units::Bytes;

use super::{Exchange, Redirect, Requested};
use crate::connect::Received;
use crate::source::StreamPeer;
use crate::source::http::connection::Connection;
use crate::source::http::error::{HttpError, bad_range, closed_early};
use crate::source::http::http_source::first_answer::{MAX_RANGE_FAILURES, RangeFailure};
use crate::source::http::http_source::remote_file::Agreement;

/// A connection that has delivered this much and is closed between two answers is not counted as a
/// failure.
const SERVED_WELL: Bytes = Bytes::kib(64);

/// The bytes that are read at once and discarded.
const SKIPPED_AT_ONCE: Bytes = Bytes::kib(256);

impl Exchange<'_, '_, '_> {
    /// Reads the head of the next answer, which must contain the requested range of the described
    /// file.
    pub(super) fn read_head(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        let Some(&Requested { range: requested, with_if_range, answered }) = self.requested.front() else {
            return Err(Failure::stolen(self.shown()));
        };
        if answered {
            return Ok(());
        }
        if self.stream.front().is_none_or(|front| front.start() != requested.start()) {
            return Err(Failure::stolen(self.shown()));
        }
        let head = connection.read_head();
        if let Err(error) = &head
            && !connection.has_answered()
        {
            self.described.client.note_silence(error, &[]);
        }
        let head = match head {
            // The next attempt uses a new connection.
            Err(error) if connection.was_closed_while_idle(&error) => {
                self.worker.distrusts_kept = true;
                return Err(self.at_once(&error));
            }
            Err(HttpError::ClosedBeforeHead(_, Bytes::ZERO))
                if self.stream.delivered_so_far() >= SERVED_WELL =>
            {
                let message = format!("{} closed the connection between two answers", self.shown());
                return Err(Failure::new(FailureKind::Temporary, message).with_retry(Retry::AtOnce));
            }
            // Each further timeout is as long as this one.
            Err(error @ HttpError::Timeout(..)) => {
                self.worker.range_failures = MAX_RANGE_FAILURES;
                return Err(error.into());
            }
            head => head?,
        };
        if let Err(error) = connection.check_answer(&head) {
            return Err(self.bad_status(error, connection));
        }
        self.take_answer(connection, &head, requested, with_if_range)
    }

    /// Compares the head of an answer with the request and the described file.
    pub(super) fn take_answer(
        &mut self,
        connection: &mut Connection,
        head: &ResponseHead,
        requested: ByteRange,
        with_if_range: bool,
    ) -> Result<(), Failure> {
        let (file, asks_whole) = (&self.described.file, self.asks_whole());
        let request = file.request(requested).filter(|_| !asks_whole);
        let answer = RangeAnswer::of(head, request.as_ref())
            .map_err(|source| self.without_ranges(bad_range(self.shown(), &source)))?;
        match file.agreement(head, answer, with_if_range) {
            Agreement::Part(range) => {
                if range.end() < requested.end() {
                    self.stream.shorten(range.end());
                }
                self.agreed();
                Ok(())
            }
            Agreement::FromStart | Agreement::RangesIgnored if asks_whole => {
                self.agreed();
                self.take_whole(connection, requested.start())
            }
            Agreement::FromStart => {
                self.has_answered = true;
                self.start_over()
            }
            Agreement::IfRangeRefused => {
                file.refuse_if_range();
                let message = format!(
                    "{} answered a request for a part, if unchanged, with the whole file",
                    self.shown()
                );
                Err(Failure::new(FailureKind::Protocol, message).with_retry(Retry::AtOnce))
            }
            Agreement::RangesIgnored => {
                let message = format!(
                    "{} answered a request for a part with the whole file; use --streams 1",
                    self.shown()
                );
                Err(Failure::new(FailureKind::Protocol, message))
            }
            Agreement::OtherFile => Err(self.disagreed(connection, &file.difference(head))),
        }
    }

    /// Records an answer with bytes of the file.
    fn agreed(&mut self) {
        self.worker.source.agreed();
        self.worker.location.note_answer();
        (self.worker.has_refreshed, self.has_answered) = (false, true);
        self.worker.range_failures = 0;
        self.stream.answered();
    }

    /// Converts a failure status to an error, which a new connection may avoid.
    fn bad_status(&mut self, error: HttpError, connection: &Connection) -> Failure {
        let refused = error.range_failure() == Some(RangeFailure::Refused);
        match &error {
            error if self.shows_other_length(error) => self.disagreed(connection, &error.to_string()),
            // One of several servers may lack the newest content.
            HttpError::RangeNotSatisfiable { .. } if self.worker.location.has_others() => {
                self.disagreed(connection, &error.to_string())
            }
            error if self.worker.location.may_have_expired(error) => {
                self.worker.redirect = Redirect::Expired;
                let again = std::mem::replace(&mut self.worker.has_refreshed, true);
                let retry = if again { Retry::Backoff } else { Retry::AtOnce };
                Failure::new(FailureKind::Temporary, error.to_string()).with_retry(retry)
            }
            HttpError::RangeNotSatisfiable { .. } => self.unsatisfied(error),
            _ if refused => self.without_ranges(error.into()),
            _ => error.into(),
        }
    }

    /// Returns whether a 416 names another length than the file had when it was described. If it
    /// does not, the server fails at ranges: the range was within the file.
    pub(super) fn shows_other_length(&self, error: &HttpError) -> bool {
        matches!(error, HttpError::RangeNotSatisfiable { total: Some(total), .. }
            if Some(*total) != self.described.file.size)
    }

    /// Converts a 416 that shows no change.
    pub(super) fn unsatisfied(&self, error: HttpError) -> Failure {
        self.without_ranges(Failure::from(error).caused_by(Cause::Connection))
    }

    /// Requests the whole file again if a server that has sent it so refuses its rest; else `error`
    /// is final.
    fn without_ranges(&self, mut error: Failure) -> Failure {
        if self.described.file.give_up_ranges() {
            error.retry = Retry::AtOnce;
        }
        error
    }

    fn disagreed(&mut self, connection: &Connection, difference: &str) -> Failure {
        let (error, avoid) = self.worker.source.disagreed(connection.peer(), difference);
        if avoid {
            self.worker.location.avoid(connection.peer());
        }
        error
    }

    /// Restarts a file from its start, if the server sends it in one answer only.
    ///
    /// Received bytes then do not count as progress; only a whole file does.
    fn start_over(&mut self) -> Result<(), Failure> {
        let file = &self.described.file;
        if file.identity.is_none() || file.size.is_none() || self.stream.is_to_stdout() {
            self.stream.forget_delivered()?;
        }
        if let Some(reached) = self.stream.restart() {
            self.worker.broke_off = self.worker.broke_off.max(Some(reached));
        }
        Ok(())
    }

    /// Returns whether requests are for the whole file.
    pub(super) fn asks_whole(&self) -> bool {
        let file = &self.described.file;
        file.is_recognised_whole() && (self.worker.asks_whole || file.refuses_ranges())
    }

    /// Begins to take leases, the first at `start`, from an answer with the whole file.
    pub(super) fn take_whole(&mut self, connection: &mut Connection, start: u64) -> Result<(), Failure> {
        self.in_whole = true;
        if self.described.file.refuse_ranges()
            && let Some(target) = &self.worker.location.target
        {
            self.described.client.note_range_failure(target, RangeFailure::Broken);
        }
        self.skip_to(connection, start)
    }

    /// Reads and discards the answer up to a lease that begins at `start`.
    pub(super) fn skip_to(&mut self, connection: &mut Connection, start: u64) -> Result<(), Failure> {
        let mut scrap = vec![0; SKIPPED_AT_ONCE.as_usize()];
        loop {
            let at = connection.body_position();
            let is_leased = self.stream.front().is_some_and(|front| front.start() == start);
            if !is_leased || at > start {
                return Err(Failure::stolen(self.shown()));
            }
            if at == start {
                return Ok(());
            }
            let part = Bytes::new(start - at).min(SKIPPED_AT_ONCE).as_usize();
            match connection.read_body(&mut scrap[..part])? {
                Received::Data(bytes) => self.stream.discarded(bytes, connection.socket()),
                Received::Idle => {}
                Received::End { .. } => {
                    let (got, expected) = (Bytes::new(at), self.described.file.size);
                    return Err(closed_early(connection.at(), got, expected));
                }
            }
            self.stream.check_alive(self.worker.source.shown())?;
        }
    }
}
