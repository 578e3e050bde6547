//! Requests without a body of which only the answer's head matters.

use longhaul_core::proto::http::{Ask, ResponseHead};
use url::Url;

use crate::cancel::Cancel;
use crate::source::http::client::Client;
use crate::source::http::connection::Connection;
use crate::source::http::connection::explanation::read_explanation;
use crate::source::http::error::HttpError;
use crate::source::http::target::redirects::Redirects;
use crate::source::http::target::resolved_url::ResolvedUrl;
use crate::source::http::target::safe_url::UrlAndPeer;

/// An answer of which only the head matters.
pub(crate) struct ShortAnswer {
    pub(crate) head: ResponseHead,
    at: UrlAndPeer,
    /// The server's explanation of a refusal.
    explanation: Option<String>,
}

impl ShortAnswer {
    /// Fails if the answer is not a success.
    ///
    /// # Errors
    /// See [`Connection::check_answer`](crate::source::http::Connection::check_answer).
    pub(crate) fn check(&self) -> Result<(), HttpError> {
        HttpError::of_status(&self.at, &self.head, || self.explanation.clone())
    }
}

impl Client {
    /// Sends a request and returns its answer of any status; follows redirects that keep the method, and answers one
    /// 401 with a login from .netrc.
    ///
    /// # Errors
    /// The errors of the connection and of an invalid answer.
    pub(crate) fn exchange(
        &self,
        url: &Url,
        ask: Ask<'_>,
        cancel: &Cancel,
    ) -> Result<ShortAnswer, HttpError> {
        let follows =
            |status| Redirects::keeps_method(status) || (ask.is_head() && Redirects::is_redirect(status));
        let mut send = |connection: &mut Connection, _: &ResolvedUrl| connection.send(ask);
        let (mut connection, head, _) = self.request(url, &mut send, &follows, cancel)?;
        let at = connection.at().clone();
        if matches!(head.status(), 200..=299) {
            head.require_identity().map_err(|error| HttpError::Head(at.clone(), error))?;
        }
        let explanation = read_explanation(&head, &mut connection);
        connection.discard_body();
        self.keep(connection);
        Ok(ShortAnswer { head, at, explanation })
    }
}
