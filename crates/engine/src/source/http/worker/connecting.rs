//! Connections of a worker: to the redirect's target, and anew from the URL where that has expired.

use super::{Exchange, Redirect, Requested};
use crate::cancel::Cancel;
use crate::failure::FailureKind;
use crate::source::http::client::Opened;
use crate::source::http::connection::Connection;
use crate::source::http::error::HttpError;
use crate::transfer::error::{Cause, Retry, SourceError};

impl Exchange<'_, '_, '_> {
    /// Connects to where the URL leads; where that redirect has expired, asks the URL anew.
    pub(super) fn connect(&mut self) -> Result<Connection, SourceError> {
        let cancel = self.stream.renew_cancel();
        self.adopt_location();
        if self.worker.redirect != Redirect::Holds && self.worker.location.may_be_renewed() {
            match self.reopen(&cancel) {
                Ok(Some(connection)) => return Ok(connection),
                Ok(None) => {}
                // The target that broke connections may work again.
                Err(error) if self.worker.redirect == Redirect::Doubtful && error.is_of_server() => {
                    self.worker.redirect = Redirect::Holds;
                    self.drop_requests();
                }
                Err(error) => return Err(error),
            }
        }
        let client = &self.described.client;
        let fresh = std::mem::take(&mut self.worker.distrusts_kept);
        // Only the first connection of a stream: what is left later is old.
        let takes_ahead = !fresh && !self.stream.has_connected();
        let ahead = if takes_ahead { self.worker.source.take_ahead() } else { None };
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
        let is_first = !self.stream.has_connected();
        self.stream.connected(connection.socket(), connection.peer());
        if is_first {
            cancel.sleep(self.stream.slow_start_offset());
        }
        Ok(connection)
    }

    /// Takes the target that another worker has found since; returns whether there is one.
    fn adopt_location(&mut self) -> bool {
        let newest = self.worker.source.location();
        let is_newer = !newest.has_generation_of(&self.worker.location);
        if is_newer {
            (self.worker.location, self.worker.redirect) = (newest, Redirect::Holds);
            // A refusal by the new target is the first one.
            self.worker.has_refreshed = false;
        }
        is_newer
    }

    /// Requests the next range from the original URL, whose redirect has expired. The answer is received as data, for the fresh
    /// target may serve no second request.
    ///
    /// Returns `None` where another worker has found a fresh target meanwhile.
    fn reopen(&mut self, cancel: &Cancel) -> Result<Option<Connection>, SourceError> {
        let source = self.worker.source;
        let _refreshing = source.lock_redirect();
        if self.adopt_location() {
            return Ok(None);
        }
        let Some(range) = self.stream.lease() else { return Err(self.without_range()) };
        let file = &self.described.file;
        let request = file.request(range).map(|request| request.only_if(file.if_range()));
        let with_if_range = request.as_ref().is_some_and(|request| request.if_range().is_some());
        let opened = self.described.client.open(source.url(), request.as_ref(), cancel);
        let Opened { connection, head, target, .. } = opened.map_err(|error| match &error {
            HttpError::RangeNotSatisfiable { at, .. } => source.disagreed(at.peer, &error.to_string()).0,
            // A slow original looks like a stall, and the range is stolen.
            HttpError::Cancelled => self.without_range(),
            _ => error.into(),
        })?;
        self.stream.connected(connection.socket(), connection.peer());
        self.worker.requested.push_back(Requested { range, with_if_range, answered: true });
        self.take_answer(&connection, &head, range, with_if_range)?;
        self.worker.location.refresh(target);
        self.worker.redirect = Redirect::Holds;
        source.set_location(self.worker.location.clone());
        Ok(Some(connection))
    }

    /// Makes the error of a worker that waits for a range again, and then requests it from the original URL.
    fn without_range(&self) -> SourceError {
        let message = format!("{}: another stream has taken over the range", self.shown());
        SourceError::new(FailureKind::Temporary, Retry::AtOnce, Cause::Connection, message)
    }
}
