//! Opens URLs: connects, sends the request, follows redirects, and answers one challenge.

pub(super) mod clients;
pub(super) mod config;
mod dialling;
mod early_connections;
mod idle_connections;
mod logins;
mod proxy_tunnel;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::proto::http::{HeaderField, RangeRequest, RequestMethod, ResponseHead};
use longhaul_core::units::Bytes;
use parking_lot::Mutex;
use url::{Origin, Url};

use super::connection::{Connection, ConnectionKey};
use super::error::{HttpError, unusable_url};
use crate::cancel::Cancel;
use crate::connect::{AheadConnection, ResolvedHosts};
use crate::source::http::authentication::credentials::Credentials;
use crate::source::http::authentication::tls;
use crate::source::http::client::config::{ClientConfig, TlsConfig};
use crate::source::http::client::early_connections::EarlyConnections;
use crate::source::http::client::idle_connections::IdleConnections;
use crate::source::http::connection::explanation::read_explanation;
use crate::source::http::http_source::first_answer::RangeFailure;
use crate::source::http::target::proxy::ProxyKind;
use crate::source::http::target::redirects::Redirects;
use crate::source::http::target::resolved_url::{ResolvedUrl, SharedCookies};
use crate::source::http::target::safe_url::{SafeUrl, UrlAndPeer};

/// Headers that the transfer itself sets.
const OWN: [&str; 7] =
    ["range", "if-range", "content-length", "transfer-encoding", "expect", "upgrade", "proxy-authorization"];
/// Headers that the transfer sets and that browsers copy with a request: they are left out.
const LEFT_OUT: [&str; 4] = ["accept-encoding", "connection", "te", "proxy-connection"];

/// The time for which a server that failed at ranges gets no request for one.
const RANGELESS_TIME: Duration = Duration::from_secs(3600);
/// The largest number of remembered servers that failed at ranges.
const MAX_RANGELESS: usize = 1024;

/// An HTTP client, shared by jobs: opens URLs, and further connections to their targets.
///
/// Keeps idle connections, so that many small files from one server need few handshakes.
pub struct Client {
    config: ClientConfig,
    /// User-Agent and the user's headers.
    headers: Vec<HeaderField>,
    /// The cookies of the settings, and those that servers have set since.
    cookies: SharedCookies,
    caches: Arc<Caches>,
}

/// The state shared by clients with different settings.
#[derive(Default)]
struct Caches {
    idle: IdleConnections,
    early: EarlyConnections,
    hosts: ResolvedHosts,
    /// TLS settings by configuration. Each is created on first use, because reading the system's
    /// certificates takes milliseconds, and holds the sessions for resumption.
    tls: Mutex<HashMap<TlsConfig, Arc<rustls::ClientConfig>>>,
    /// Whether the warning of a proxy's login in clear was given.
    has_warned_of_proxy: AtomicBool,
    /// Whether the warning of headers that are left out was given.
    has_warned_of_headers: AtomicBool,
    /// The origins that failed at ranges, and when.
    rangeless: Mutex<HashMap<Origin, (RangeFailure, Instant)>>,
}

/// An opened URL.
pub struct OpenedUrl {
    /// The connection; its body is the next to be read.
    pub connection: Connection,
    /// The head of the successful response.
    pub head: ResponseHead,
    /// The URL after redirects, for further connections.
    pub target: ResolvedUrl,
    /// The requested range; `None` for the whole file.
    pub requested: Option<RangeRequest>,
}

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

/// A connection opened ahead of a stream, and its key.
pub(super) struct ClientAhead {
    key: ConnectionKey,
    connection: AheadConnection,
}

/// Chooses the range to request from a target, once connected.
pub type Chooser<'a> = dyn Fn(&Connection, &ResolvedUrl) -> Option<RangeRequest> + 'a;

impl Client {
    /// Creates a client.
    ///
    /// # Errors
    /// Those of headers that cannot be sent, and of certificates that cannot be read.
    pub fn new(config: ClientConfig) -> Result<Self, HttpError> {
        Self::with_caches(config, Arc::default())
    }

    /// Creates a client with other settings that shares idle connections, host addresses and TLS
    /// sessions with this one, and for the same user the cookies that servers set.
    ///
    /// # Errors
    /// See [`new`](Self::new).
    pub fn with_config(&self, config: ClientConfig) -> Result<Self, HttpError> {
        let mut client = Self::with_caches(config, Arc::clone(&self.caches))?;
        if client.config.is_of_same_user(&self.config) {
            client.cookies = Arc::clone(&self.cookies);
        }
        Ok(client)
    }

    fn with_caches(config: ClientConfig, caches: Arc<Caches>) -> Result<Self, HttpError> {
        // Browsers copy a request for all bytes of a video.
        let is_whole = |h: &HeaderField| h.is("range") && h.value() == "bytes=0-";
        let requests = &config.requests;
        let (left_out, given): (Vec<_>, Vec<_>) = requests
            .headers
            .iter()
            .cloned()
            .partition(|h| is_whole(h) || LEFT_OUT.iter().any(|name| h.is(name)));
        if let Some(own) = given.iter().find(|h| OWN.iter().any(|name| h.is(name))) {
            let message = format!("cannot send the header '{}': the transfer sets it; remove it", own.name());
            return Err(Failure::new(FailureKind::Usage, message).into());
        }
        let names: Vec<_> = left_out.iter().map(HeaderField::name).collect();
        if !names.is_empty() && !caches.has_warned_of_headers.swap(true, Ordering::Relaxed) {
            tracing::warn!("left out, because the transfer sets it: the header {}", names.join(", "));
        }
        let mut headers = Vec::new();
        if !requests.headers.iter().any(|h| h.is("user-agent")) {
            headers.push(HeaderField::new("User-Agent", &requests.user_agent)?);
        }
        headers.extend(given);
        // Unusable files fail before any request.
        config.tls.ca_file.as_deref().map(tls::read_ca_file).transpose()?;
        config.tls.certificate.as_ref().map(tls::read_client_certificate).transpose()?;
        let cookies = requests.cookies.as_deref().cloned().unwrap_or_default();
        Ok(Self { config, headers, cookies: Arc::new(Mutex::new(cookies)), caches })
    }

    /// Returns the settings.
    pub fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// Creates a target from `url` without a request.
    ///
    /// # Errors
    /// Those of a URL of another scheme, of one whose server cannot prove a pinned key, and of a
    /// login or token that would be sent unencrypted.
    pub fn target(&self, url: &Url) -> Result<ResolvedUrl, HttpError> {
        if url.scheme() == "http" && !self.config.tls.pins.is_empty() {
            let why =
                "its server cannot prove the key of --pin without TLS; use https://, or leave out --pin";
            return Err(unusable_url(&SafeUrl::of(url), why).into());
        }
        let given = Credentials::of_url(url).or_else(|| self.config.logins.credentials.clone());
        if given.is_some() {
            self.check_cleartext(url)?;
        }
        let target = ResolvedUrl::new(url, self.headers.clone(), given.as_ref())?;
        let target = target.with_cookies(Arc::clone(&self.cookies), self.config.requests.location_trusted);
        let at_once = self.config.logins.netrc.at_once && !target.is_authorised();
        Ok(if at_once { self.with_netrc(&target)?.unwrap_or(target) } else { target })
    }

    /// Requests all or a range of `url`, follows redirects, and answers one 401 with a login from
    /// .netrc.
    ///
    /// # Errors
    /// Every [`HttpError`], also for a status other than success.
    pub fn open(
        &self,
        url: &Url,
        range: Option<&RangeRequest>,
        cancel: &Cancel,
    ) -> Result<OpenedUrl, HttpError> {
        self.open_part(url, &|_, _| range.cloned(), cancel)
    }

    /// Opens all of `url` like [`open`](Self::open), but fails if the body has a content coding.
    ///
    /// # Errors
    /// See [`open`](Self::open).
    pub(super) fn open_uncoded(&self, url: &Url, cancel: &Cancel) -> Result<OpenedUrl, HttpError> {
        let opened = self.open(url, None, cancel)?;
        let bad = |error| HttpError::Head(opened.connection.at().clone(), error);
        opened.head.require_identity().map_err(bad)?;
        Ok(opened)
    }

    /// Opens `url` like [`open`](Self::open), but chooses the range once the connection and its RTT
    /// are known.
    ///
    /// # Errors
    /// See [`open`](Self::open).
    pub fn open_part(
        &self,
        url: &Url,
        choose: &Chooser<'_>,
        cancel: &Cancel,
    ) -> Result<OpenedUrl, HttpError> {
        let opened = self.follow(url, choose, cancel);
        match &opened {
            Ok(opened) => self.caches.hosts.has_answered(opened.connection.peer()),
            Err(error) => self.note_silence(error, &[]),
        }
        opened
    }

    /// Prefers other addresses of a host to one that has accepted a connection and not answered on
    /// it, unless it is one of `answered`.
    pub(crate) fn note_silence(&self, error: &HttpError, answered: &[SocketAddr]) {
        if let HttpError::Timeout(at, ..) | HttpError::ClosedBeforeHead(at, _) | HttpError::Receive(at, _) =
            error
            && !answered.contains(&at.peer)
        {
            self.caches.hosts.was_silent(at.peer, Instant::now());
        }
    }

    fn follow(&self, url: &Url, choose: &Chooser<'_>, cancel: &Cancel) -> Result<OpenedUrl, HttpError> {
        let mut requested = None;
        let mut send = |connection: &mut Connection, target: &ResolvedUrl| {
            requested = choose(connection, target);
            connection.send_get(requested.as_ref())
        };
        let (mut connection, head, target) = self.request(url, &mut send, &Redirects::is_redirect, cancel)?;
        // As curl and browsers take it: 205 and 207 have content of other kinds, or none, but from
        // broken programs.
        let is_file = matches!(head.status(), 205 | 207) && head.content_length() > Some(Bytes::ZERO);
        if !is_file {
            connection.check_answer(&head)?;
        }
        Ok(OpenedUrl { connection, head, target, requested })
    }

    /// Sends a request to `url` and to the targets of redirects whose status `follows` accepts, and
    /// answers one 401 with a login from .netrc; returns the head of the last answer.
    ///
    /// # Errors
    /// The errors of the connection and of an invalid answer.
    pub(super) fn request(
        &self,
        url: &Url,
        send: &mut dyn FnMut(&mut Connection, &ResolvedUrl) -> Result<(), HttpError>,
        follows: &dyn Fn(u16) -> bool,
        cancel: &Cancel,
    ) -> Result<(Connection, ResponseHead, ResolvedUrl), HttpError> {
        let mut target = self.target(url)?;
        let mut redirects = Redirects::new(&target);
        let mut connection = self.connect(&mut target, cancel)?;
        loop {
            let head = match send(&mut connection, &target).and_then(|()| connection.read_head()) {
                Ok(head) => head,
                Err(error) if connection.was_closed_while_idle(&error) => {
                    connection = self.connect_fresh(&mut target, cancel)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            self.keep_cookies(&target, &head);
            let next = match follows(head.status()) {
                true => Some(redirects.follow(&target, &head)?),
                false => self.answer_challenge(&target, &head)?,
            };
            let Some(next) = next else { return Ok((connection, head, target)) };
            let stays = next.url().origin() == target.url().origin();
            target = next;
            let is_idle = connection.discard_body();
            if stays && is_idle {
                self.aim(&mut connection, &target)?;
            } else {
                self.keep(connection);
                connection = self.connect(&mut target, cancel)?;
            }
        }
    }

    /// Sends a request and returns its answer of any status; follows redirects that keep the
    /// method, and answers one 401 with a login from .netrc.
    ///
    /// # Errors
    /// The errors of the connection and of an invalid answer.
    pub(crate) fn exchange(
        &self,
        url: &Url,
        method: RequestMethod<'_>,
        cancel: &Cancel,
    ) -> Result<ShortAnswer, HttpError> {
        let follows =
            |status| Redirects::keeps_method(status) || (method.is_head() && Redirects::is_redirect(status));
        let mut send = |connection: &mut Connection, _: &ResolvedUrl| connection.send(method);
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

    /// Keeps the cookies that an answer of `target` sets, for the requests of this client.
    pub(super) fn keep_cookies(&self, target: &ResolvedUrl, head: &ResponseHead) {
        let Some(scope) = target.cookie_scope() else { return };
        let mut jar = self.cookies.lock();
        for field in head.all("set-cookie") {
            jar.set(&String::from_utf8_lossy(field), scope, SystemTime::now());
        }
    }

    /// Notes that the server of `target` failed at a range and answered a request without one.
    pub(super) fn note_range_failure(&self, target: &ResolvedUrl, failure: RangeFailure) {
        let (mut rangeless, now) = (self.caches.rangeless.lock(), Instant::now());
        rangeless.retain(|_, (_, since)| now.duration_since(*since) < RANGELESS_TIME);
        if rangeless.len() < MAX_RANGELESS {
            rangeless.insert(target.url().origin(), (failure, now));
        }
    }

    /// Returns whether the server of `target` has failed at a range; not if it announces ranges in
    /// `head` and may have failed for another reason.
    pub(super) fn refuses_ranges(&self, target: &ResolvedUrl, head: Option<&ResponseHead>) -> bool {
        let known = self.caches.rangeless.lock().get(&target.url().origin()).copied();
        known.is_some_and(|(failure, since)| {
            since.elapsed() < RANGELESS_TIME
                && (failure != RangeFailure::Broken || !head.is_some_and(ResponseHead::accepts_ranges))
        })
    }

    /// Keeps a connection for the next request of any job to its origin, if its last answer was
    /// read to the end and it is [`reusable`](Connection::reusable). Closes any other connection.
    ///
    /// Do not pass a connection with changed socket options: its receive window or pace would limit
    /// the next file.
    pub fn keep(&self, connection: Connection) {
        self.caches.idle.keep(connection);
    }

    /// Sets another URL of the origin for the following requests of a connection.
    pub(crate) fn aim(&self, connection: &mut Connection, target: &ResolvedUrl) -> Result<(), HttpError> {
        let proxy = self.config.proxies.for_url(target.url())?;
        self.check_cleartext_to(target, proxy.as_ref(), connection.peer())?;
        let proxy = proxy.filter(|proxy| !target.is_https() && proxy.kind == ProxyKind::Http);
        let login = proxy.as_ref().and_then(|p| p.authorization.as_ref());
        connection.aim(target.request_line(login, proxy.is_some()));
        Ok(())
    }

    fn tls_settings(&self) -> Result<Arc<rustls::ClientConfig>, HttpError> {
        let (mut known, config) = (self.caches.tls.lock(), &self.config.tls);
        if let Some(settings) = known.get(config) {
            return Ok(Arc::clone(settings));
        }
        let settings = tls::settings(config)?;
        known.insert(config.clone(), Arc::clone(&settings));
        Ok(settings)
    }
}
