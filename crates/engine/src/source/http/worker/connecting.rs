//! Opens connections of a worker: to the redirect's target, or through the original URL if the
//! target has expired.

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::retry::Retry;

use super::{Exchange, Redirect, Requested};
use crate::cancel::Cancel;
use crate::source::http::client::OpenedUrl;
use crate::source::http::connection::Connection;
use crate::source::http::error::HttpError;

impl Exchange<'_, '_, '_> {
    /// Connects to the current target; if its redirect has expired, requests the original URL
    /// again.
    pub(super) fn connect(&mut self) -> Result<Connection, Failure> {
        let cancel = self.stream.renew_cancel();
        self.adopt_location();
        if self.worker.redirect != Redirect::Holds && self.worker.location.may_be_renewed() {
            match self.reopen(&cancel) {
                Ok(Some(connection)) => return Ok(connection),
                Ok(None) => {}
                // A target that broke connections may work again.
                Err(error) if self.worker.redirect == Redirect::Doubtful && error.is_of_server() => {
                    self.worker.redirect = Redirect::Holds;
                    self.drop_requests();
                }
                Err(error) => return Err(error),
            }
        }
        let client = &self.described.client;
        let fresh = std::mem::take(&mut self.worker.distrusts_kept);
        // Only for the first connection of a stream: connections opened ahead are too old later,
        // and unused ones may occupy a server of few connections.
        let ahead = if fresh || self.stream.has_connected() {
            self.worker.source.close_ahead();
            None
        } else {
            let ahead = &mut self.worker.source.unused.lock().ahead;
            ahead.as_mut().and_then(|ahead| ahead.connections.pop())
        };
        let connection = match self.worker.location.connect(client, ahead, fresh, &cancel) {
            Err(error) if self.worker.location.may_have_expired(&error) => {
                self.worker.redirect = Redirect::Expired;
                match self.reopen(&cancel)? {
                    Some(connection) => return Ok(connection),
                    None => self.worker.location.connect(client, None, fresh, &cancel)?,
                }
            }
            connected => connected?,
        };
        self.stream.connected_in_turn(connection.socket(), connection.peer(), &cancel);
        Ok(connection)
    }

    /// Adopts a newer target found by another worker; returns whether there is one.
    fn adopt_location(&mut self) -> bool {
        let newest = self.worker.source.location.lock().clone();
        let is_newer = newest.generation != self.worker.location.generation;
        if is_newer {
            (self.worker.location, self.worker.redirect) = (newest, Redirect::Holds);
            // A refusal by the new target counts as its first.
            self.worker.has_refreshed = false;
        }
        is_newer
    }

    /// Requests the next range from the original URL, because its redirect has expired. The answer
    /// is received as data, because the new target may not serve a second request.
    ///
    /// Returns `None` if another worker has found a new target meanwhile.
    fn reopen(&mut self, cancel: &Cancel) -> Result<Option<Connection>, Failure> {
        let source = self.worker.source;
        let _refreshing = source.refreshing.lock();
        if self.adopt_location() {
            return Ok(None);
        }
        let Some((range, request)) = self.lease() else { return Err(self.without_range()) };
        let with_if_range = request.as_ref().is_some_and(|request| request.if_range().is_some());
        let opened = self.described.client.open(&source.url, request.as_ref(), cancel);
        let OpenedUrl { mut connection, head, target, .. } = opened.map_err(|error| match &error {
            HttpError::RangeNotSatisfiable { at, .. } if self.shows_other_length(&error) => {
                source.disagreed(at.peer, &error.to_string()).0
            }
            HttpError::RangeNotSatisfiable { .. } => self.unsatisfied(error),
            // A slow original URL looks like a stall, so the range is stolen.
            error if error.is_cancelled() => self.without_range(),
            _ => error.into(),
        })?;
        self.stream.connected(connection.socket(), connection.peer());
        self.requested.push_back(Requested { range, with_if_range, answered: true });
        self.take_answer(&mut connection, &head, range, with_if_range)?;
        self.worker.location.refresh(target);
        self.worker.redirect = Redirect::Holds;
        *source.location.lock() = self.worker.location.clone();
        Ok(Some(connection))
    }

    /// Creates the error after which the worker waits for a range, and then requests it from the
    /// original URL.
    fn without_range(&self) -> Failure {
        let message = format!("{}: another stream has taken over the range", self.shown());
        Failure::new(FailureKind::Temporary, message).with_retry(Retry::AtOnce)
    }
}
