//! The requests of an upload: manages the connection, redirects and logins.

use std::net::SocketAddr;
use std::time::Duration;

use longhaul_core::event::{Event, Warning};
use longhaul_core::failure::Failure;
use longhaul_core::pace::Pace;
use longhaul_core::proto::http::{RequestMethod, ResponseHead};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::{Bytes, Rtt};
use longhaul_sys::tcp_info;

use super::answer::UploadAnswer;
use super::body::{self, TrailingRequest};
use super::context::UploadContext;
use super::error::UploadError;
use crate::pacing::PacingHandle;
use crate::source::http::{
    Client, Connection, HttpError, Redirects, ResolvedUrl, SafeUrl, Timeouts, UrlAndPeer,
};

/// The wait for 100 Continue before the body is sent without it.
const CONTINUE: Duration = Duration::from_secs(2);

/// The timeout for the second of two pipelined answers, after the first, from a server that may not
/// support pipelining. Both requests are sent in one flight, so only disk time lies between the
/// answers.
const BEHIND: Duration = Duration::from_millis(500);

/// The requests of one upload.
pub(super) struct UploadSession<'a> {
    pub(super) context: UploadContext<'a>,
    pub(super) client: &'a Client,
    /// The file's URL as given by the user; its login may come from .netrc.
    original: ResolvedUrl,
    /// The current URL for requests: the original, or the target of a redirect.
    pub(super) target: ResolvedUrl,
    /// The redirects since the last request to the original URL.
    redirects: Redirects,
    pub(super) connection: UploadConnection,
    /// Whether to request the server's consent before sending a part: it has refused one, or closed
    /// the connection.
    pub(super) asks_first: bool,
    /// Whether a connection was established.
    pub(super) has_connected: bool,
    /// The timeout of an answer to a request without a body, if shorter than that of the client.
    pub(super) patience: Option<Duration>,
}

/// The connection to the server, and its pacing.
#[derive(Default)]
pub(super) struct UploadConnection {
    open: Option<Connection>,
    /// The RTT of the last connection, once it is closed.
    last_rtt: Option<Rtt>,
    /// The pacer of the open connection, while it measures.
    paced: Option<PacingHandle>,
    /// The peers that have answered.
    answered: Vec<SocketAddr>,
}

impl UploadConnection {
    /// Returns the RTT of the connection, or of the last one.
    pub(super) fn rtt(&self) -> Option<Rtt> {
        let of = |connection: &Connection| tcp_info::read(connection.socket()).ok()?.rtt();
        self.open.as_ref().and_then(of).or(self.last_rtt)
    }

    /// Starts to pace `connection`, whose pacer pauses until a body is sent.
    fn pace(&mut self, connection: &Connection, context: &UploadContext<'_>) {
        let socket = connection.socket();
        let start = context.path.pacing(context.request, socket);
        let paced = context.pacing.pace(socket, context.request.transfer.pace, context.congestion, start);
        self.paced = paced.inspect_err(|error| tracing::warn!("not paced: {error}")).ok().flatten();
        self.paced.iter().for_each(PacingHandle::pause);
    }

    /// Forgets the connection; returns whether one was open.
    fn close(&mut self) -> bool {
        self.paced = None;
        self.last_rtt = self.rtt();
        let Some(connection) = self.open.take() else { return false };
        let peer = connection.peer();
        if connection.has_answered() && !self.answered.contains(&peer) {
            self.answered.push(peer);
        }
        true
    }
}

/// One request of an upload.
#[derive(Clone, Copy)]
pub(super) struct UploadStep<'a> {
    /// The purpose, for errors: completes "refused ...".
    pub(super) name: &'static str,
    /// The query that turns the file's URL into that of its upload resource.
    pub(super) query: Option<&'a str>,
    pub(super) method: RequestMethod<'a>,
    /// The part of the file sent as the body.
    pub(super) body: Option<ByteRange>,
    /// A request sent in the same flight; neither has a body then.
    pub(super) behind: Option<&'a Self>,
}

impl<'a> UploadStep<'a> {
    /// Creates a request for the file's URL, without a body.
    pub(super) fn new(name: &'static str, method: RequestMethod<'a>) -> Self {
        Self { name, query: None, method, body: None, behind: None }
    }
}

impl<'a> UploadSession<'a> {
    pub(super) fn new(context: UploadContext<'a>, client: &'a Client) -> Result<Self, UploadError> {
        let original = client.target(&context.request.url)?;
        Ok(Self {
            context,
            client,
            target: original.clone(),
            redirects: Redirects::new(&original),
            original,
            connection: UploadConnection::default(),
            asks_first: false,
            has_connected: false,
            patience: None,
        })
    }

    /// Sends a request and returns the answer; follows redirects, answers one 401 with a login
    /// from .netrc, and repeats a request whose Expect is refused (417) without it.
    ///
    /// A redirect of a part of an upload is returned as the answer, and followed by the next
    /// request only: the new server may have another part of the file. After an error the
    /// connection is dropped.
    pub(super) fn exchange(&mut self, step: UploadStep<'_>) -> Result<UploadAnswer, UploadError> {
        self.exchange_before(step, None)
    }

    /// Sends a request as [`exchange`](Self::exchange) does, followed by the request of `trailing`
    /// after the body.
    pub(super) fn exchange_before(
        &mut self,
        mut step: UploadStep<'_>,
        mut trailing: Option<&mut TrailingRequest<'_>>,
    ) -> Result<UploadAnswer, UploadError> {
        loop {
            let answer = self.exchange_once(step, trailing.as_deref_mut());
            let answer = answer.inspect_err(|error| self.abandon(error))?;
            if answer.head.status() == 417 && step.method.expects_continue() {
                // RFC 9110, section 10.1.1. The body was not sent, so the next request has a
                // connection of its own.
                step.method = step.method.without_expectation();
                continue;
            }
            let settled = self.settle(&step, answer);
            if let Ok(Some(answer)) = settled {
                return Ok(answer);
            }
            // What followed was for the old target, so its answer is of no use.
            let wait = if step.body.is_some() { Duration::ZERO } else { BEHIND };
            let _ = self.trailing_answer_within(Some(wait));
            settled?;
            step.behind = None;
        }
    }

    /// Sends two requests without a body in one flight. Returns the answer to the first as
    /// [`exchange`](Self::exchange) does, and the answer to the second if it has arrived.
    ///
    /// If the first answer does not show that the server accepts parts, it may not support
    /// pipelining, and the second answer is awaited for [`BEHIND`] only.
    pub(super) fn exchange_both(
        &mut self,
        first: UploadStep<'_>,
        second: UploadStep<'_>,
    ) -> Result<(UploadAnswer, Option<UploadAnswer>), UploadError> {
        let answer = self.exchange(UploadStep { behind: Some(&second), ..first })?;
        let is_expected =
            matches!(first.method, RequestMethod::Delete) || answer.head.accepts_partial_uploads();
        let ahead = self.trailing_answer_within(if is_expected { None } else { Some(BEHIND) });
        Ok((answer, ahead.unwrap_or_default()))
    }

    /// Follows a redirect or answers a challenge; returns the answer if neither applies.
    fn settle(
        &mut self,
        step: &UploadStep<'_>,
        answer: UploadAnswer,
    ) -> Result<Option<UploadAnswer>, UploadError> {
        if (300..400).contains(&answer.head.status()) {
            self.follow(step, &answer.head)?;
            return Ok(matches!(step.method, RequestMethod::Patch(_)).then_some(answer));
        }
        let Some(target) = self.client.answer_challenge(&self.target, &answer.head)? else {
            return Ok(Some(answer));
        };
        // Not for requests to another URL, such as that of a temporary file.
        if target.url() == self.original.url() {
            self.original = target.clone();
        }
        self.target = target;
        Ok(None)
    }

    /// Sets the target of the redirect `head` for further requests.
    ///
    /// Only 307 and 308 keep a method other than HEAD. A redirect of an upload resource may omit
    /// its query.
    fn follow(&mut self, step: &UploadStep<'_>, head: &ResponseHead) -> Result<(), UploadError> {
        let status = head.status();
        let is_safe = step.method.is_head() && Redirects::is_redirect(status);
        if !is_safe && !Redirects::keeps_method(status) {
            return Err(self.refused_redirect(head));
        }
        let from = self.target.with_query(step.query);
        let to = self.redirects.follow(&from, head)?.without_query(step.query);
        tracing::debug!(from = %from.safe_url(), to = %to.safe_url(), status, "upload redirected");
        self.aim(to);
        Ok(())
    }

    /// Sets the user's URL for further requests, because the target of a redirect may have expired.
    pub(super) fn return_to_original(&mut self) {
        self.redirects = Redirects::new(&self.original);
        self.aim(self.original.clone());
    }

    pub(super) fn aim(&mut self, target: ResolvedUrl) {
        if target.url().origin() != self.target.url().origin() {
            self.close();
        }
        self.target = target;
    }

    fn exchange_once(
        &mut self,
        step: UploadStep<'_>,
        trailing: Option<&mut TrailingRequest<'_>>,
    ) -> Result<UploadAnswer, UploadError> {
        self.ensure_connected()?;
        let requested = self.target.with_query(step.query);
        let (client, context) = (self.client, self.context);
        let UploadConnection { open: Some(connection), paced, .. } = &mut self.connection else {
            return Err(Failure::interrupted().into());
        };
        client.aim(connection, &requested)?;
        connection.send(step.method)?;
        if let Some(behind) = step.behind {
            client.aim(connection, &self.target.with_query(behind.query))?;
            connection.send(behind.method)?;
            // Errors name the URL.
            client.aim(connection, &requested)?;
        }
        let consents = |connection: &mut Connection| {
            if step.method.expects_continue() { connection.await_continue(CONTINUE) } else { Ok(true) }
        };
        let body = step.body.filter(|range| !range.is_empty());
        let mut is_early = body.is_some();
        if let Some(range) = body
            && consents(connection)?
        {
            let mut supply = context.supply(range)?;
            context.progress.begin_part(Bytes::new(range.start()), supply.ring());
            paced.iter().for_each(PacingHandle::resume);
            let sent = body::send(connection, &mut supply, &context, trailing);
            paced.iter().for_each(PacingHandle::pause);
            is_early = !sent?;
        }
        let head = connection.read_head()?;
        Ok(UploadAnswer { is_early, ..UploadAnswer::read(head, connection) })
    }

    /// Reads the answer to the trailing request; `None` if none was sent.
    pub(super) fn trailing_answer(&mut self) -> Result<Option<UploadAnswer>, UploadError> {
        self.trailing_answer_within(None)
    }

    /// Reads the answer to the trailing request; `None` if none was sent, or if it does not arrive
    /// in time.
    fn trailing_answer_within(
        &mut self,
        limit: Option<Duration>,
    ) -> Result<Option<UploadAnswer>, UploadError> {
        let Some(connection) = self.connection.open.as_mut().filter(|connection| connection.unanswered() > 0)
        else {
            return Ok(None);
        };
        let is_late = |connection: &mut Connection| {
            limit.is_some_and(|limit| !matches!(connection.await_continue(limit), Ok(false)))
        };
        if !connection.reusable() || is_late(connection) {
            // The server closes the connection, or an interrupted or long previous answer was not
            // read completely.
            self.close();
            return Ok(None);
        }
        let answer = connection.read_head().map(|head| UploadAnswer::read(head, connection));
        Ok(Some(answer.inspect_err(|_| self.close())?))
    }

    fn ensure_connected(&mut self) -> Result<(), UploadError> {
        // Bytes that no request has asked for would be taken for the next answer: some servers send
        // a body to HEAD.
        let is_usable = |connection: &mut Connection| {
            connection.reusable() && (connection.unanswered() > 0 || connection.is_silent())
        };
        if !self.connection.open.as_mut().is_some_and(is_usable) {
            self.connect()?;
        }
        let timeouts = self.client.config().timeouts;
        let head = self.patience.map_or(timeouts.head, |patience| patience.min(timeouts.head));
        if let Some(connection) = &mut self.connection.open {
            connection.timeouts = Timeouts { head, ..timeouts };
        }
        Ok(())
    }

    fn connect(&mut self) -> Result<(), UploadError> {
        self.close();
        let (request, progress) = (self.context.request, self.context.progress);
        let connection = self.client.connect(&mut self.target, &progress.cancel)?;
        self.has_connected = true;
        let socket = connection.socket();
        self.connection.pace(&connection, &self.context);
        if let Pace::Rate(wanted) = request.transfer.pace {
            // Compare the effective rate: the kernel may accept the option and ignore it.
            let found = tcp_info::read(socket).ok().and_then(|info| info.pacing_rate());
            if found.is_some_and(|found| found > wanted) {
                progress.emit(&Event::Warning(Warning::NotPaced { wanted, found }));
            }
        }
        progress.connected(socket, connection.peer());
        self.connection.open = Some(connection);
        Ok(())
    }

    /// Closes the connection after an error; one without any answer makes the next connection
    /// prefer another address. An address that has answered in this session is kept: it may have
    /// the beginning of the upload.
    fn abandon(&mut self, error: &UploadError) {
        self.close();
        if let UploadError::Http(error) = error {
            self.client.note_silence(error, &self.connection.answered);
        }
    }

    /// Closes the connection.
    pub(super) fn close(&mut self) {
        if self.connection.close() {
            self.context.progress.disconnected();
        }
    }

    /// Returns the URL and the peer, for errors.
    pub(super) fn at(&self) -> UrlAndPeer {
        let peer = || ([0, 0, 0, 0], 0).into();
        let peer = self.connection.open.as_ref().map_or_else(peer, Connection::peer);
        UrlAndPeer { url: self.target.safe_url(), peer }
    }

    /// Returns an error if the answer is not a success.
    pub(super) fn require_success(
        &self,
        step: &'static str,
        answer: &UploadAnswer,
    ) -> Result<(), UploadError> {
        match answer.head.status() {
            200..=299 if answer.is_early => {
                let why = format!("it reports success of {step} before it has all of it");
                Err(UploadError::answer(&self.at(), &why))
            }
            200..=299 => Ok(()),
            _ => Err(UploadError::refused(&self.at(), step, answer)),
        }
    }

    fn refused_redirect(&self, head: &ResponseHead) -> UploadError {
        let to = head.text("location").unwrap_or("nowhere");
        let to = self.target.url().join(to).map(|to| SafeUrl::of(&to).to_string());
        let to = to.unwrap_or_else(|_| "what is no URL".to_owned());
        let why = "an upload follows only 307 and 308, which keep its method; put to that URL itself if you trust it";
        HttpError::RedirectRefused(self.target.safe_url(), to, why).into()
    }
}

impl Drop for UploadSession<'_> {
    fn drop(&mut self) {
        self.close();
    }
}
