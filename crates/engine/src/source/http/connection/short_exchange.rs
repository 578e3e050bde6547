//! Requests without a body of which only the answer's head matters.

use longhaul_core::proto::http::{Ask, ResponseHead};
use longhaul_core::units::Bytes;
use url::Url;

use crate::cancel::Cancel;
use crate::source::http::client::Client;
use crate::source::http::connection::explanation::read_explanation;
use crate::source::http::error::HttpError;
use crate::source::http::target::redirects::Redirects;
use crate::source::http::target::safe_url::UrlAndPeer;

/// The longest body that is read so that the connection can be reused.
const WORTH_READING: Bytes = Bytes::kib(64);

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
        let mut target = self.target(url)?;
        let mut redirects = self.redirects(&target);
        let mut connection = self.connect(&mut target, cancel)?;
        loop {
            let head = match connection.send(ask).and_then(|()| connection.read_head()) {
                Ok(head) => head,
                Err(error) if connection.was_closed_while_idle(&error) => {
                    connection = self.connect_fresh(&mut target, cancel)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            self.keep_cookies(&target, &head);
            let status = head.status();
            if matches!(status, 200..=299) {
                let bad = |error| HttpError::Head(connection.at().clone(), error);
                head.require_identity().map_err(bad)?;
            }
            let follows =
                Redirects::keeps_method(status) || (ask.is_head() && Redirects::is_redirect(status));
            let next = match follows {
                true => Some(redirects.follow(&target, &head)?),
                false => self.answer_challenge(&target, &head)?,
            };
            let at = connection.at().clone();
            let explanation = if next.is_none() { read_explanation(&head, &mut connection) } else { None };
            let is_idle = connection.discard_body(WORTH_READING);
            let Some(next) = next else {
                if is_idle {
                    self.keep(connection);
                }
                return Ok(ShortAnswer { head, at, explanation });
            };
            let stays = next.url().origin() == target.url().origin();
            target = next;
            if stays && is_idle {
                self.aim(&mut connection, &target)?;
            } else {
                self.keep(connection);
                connection = self.connect(&mut target, cancel)?;
            }
        }
    }
}
