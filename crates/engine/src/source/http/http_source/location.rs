//! The current target of a URL: a redirect's target expires.

use std::net::SocketAddr;

use longhaul_core::failure::Failure;

use crate::cancel::Cancel;
use crate::source::http::client::{Client, ClientAhead};
use crate::source::http::connection::Connection;
use crate::source::http::error::HttpError;
use crate::source::http::target::resolved_url::ResolvedUrl;

/// The maximum number of consecutive new redirects without an answer with bytes.
const MAX_REFRESHES: u32 = 5;

/// The target of the URL's redirects; each worker has a copy.
#[derive(Clone, Default)]
pub(crate) struct Location {
    pub(crate) target: Option<ResolvedUrl>,
    /// Incremented each time the original URL is requested again.
    pub(crate) generation: u32,
    /// The number of such requests since the last answer with bytes.
    fruitless: u32,
}

impl Location {
    /// Starts with the target of the first answer.
    pub(crate) fn new(target: ResolvedUrl) -> Self {
        Self { target: Some(target), ..Self::default() }
    }

    /// Sets the target from a new request of the original URL.
    pub(crate) fn refresh(&mut self, target: ResolvedUrl) {
        self.target = Some(target);
        self.generation += 1;
        self.fruitless += 1;
    }

    /// Records an answer with bytes of the file.
    pub(crate) fn note_answer(&mut self) {
        self.fruitless = 0;
    }

    /// Returns whether requesting the original URL again may avoid `error`.
    pub(crate) fn may_have_expired(&self, error: &HttpError) -> bool {
        error.may_be_expired() && self.may_be_renewed()
    }

    /// Returns whether the original URL may redirect elsewhere, or make another challenge, and has
    /// not failed too often.
    pub(crate) fn may_be_renewed(&self) -> bool {
        let changes = |target: &ResolvedUrl| target.is_redirected() || target.has_challenge();
        self.target.as_ref().is_some_and(changes) && self.fruitless < MAX_REFRESHES
    }

    /// Connects to the target: by `ahead` if given; if `fresh`, not over a kept connection.
    pub(crate) fn connect(
        &mut self,
        client: &Client,
        ahead: Option<ClientAhead>,
        fresh: bool,
        cancel: &Cancel,
    ) -> Result<Connection, HttpError> {
        match (&mut self.target, ahead) {
            (Some(target), Some(ahead)) => client.connect_over(target, ahead, cancel),
            (Some(target), None) if fresh => client.connect_fresh(target, cancel),
            (Some(target), None) => client.connect(target, cancel),
            (None, _) => Err(Failure::interrupted().into()),
        }
    }

    /// Returns whether another address of the host may do better than one.
    pub(crate) fn has_others(&self) -> bool {
        self.target.as_ref().is_some_and(|target| target.addresses.usable() > 1)
    }

    /// Prefers other addresses of the host to `peer`.
    pub(crate) fn avoid(&mut self, peer: SocketAddr) {
        if let Some(target) = &mut self.target {
            target.addresses.avoid(peer);
        }
    }
}
