//! Logins of requests: in answer to a challenge, and never unencrypted unless permitted.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::proto::http::ResponseHead;
use url::Url;

use super::Client;
use crate::source::http::authentication::credentials::{Credentials, is_cleartext};
use crate::source::http::error::HttpError;
use crate::source::http::target::proxy::Proxy;
use crate::source::http::target::resolved_url::ResolvedUrl;
use crate::source::http::target::safe_url::{SafeUrl, UrlAndPeer};

impl Client {
    /// Fails if a login or token for `url` would be sent unencrypted beyond loopback, unless
    /// permitted.
    pub(super) fn check_cleartext(&self, url: &Url) -> Result<(), HttpError> {
        if self.config.logins.allow_cleartext || !is_cleartext(url) {
            return Ok(());
        }
        Err(exposed(&SafeUrl::of(url).to_string()))
    }

    /// Fails if a request for `target` over a connection to `peer`, which may be a proxy or a fixed
    /// address of the host, would send a login or token unencrypted beyond loopback, unless
    /// permitted. A proxy's own login only causes a warning: there may be no other way out of a
    /// network.
    pub(super) fn check_cleartext_to(
        &self,
        target: &ResolvedUrl,
        proxy: Option<&Proxy>,
        peer: SocketAddr,
    ) -> Result<(), HttpError> {
        if self.config.logins.allow_cleartext || peer.ip().to_canonical().is_loopback() {
            return Ok(());
        }
        if target.logs_in() && !target.is_https() {
            let to = UrlAndPeer { url: target.safe_url(), peer };
            let by = proxy.map_or_else(String::new, |proxy| format!(", the proxy of {}", proxy.variable));
            return Err(exposed(&format!("{to}{by}")));
        }
        if let Some(Proxy { variable, .. }) = proxy.filter(|proxy| proxy.login.is_some())
            && !self.caches.has_warned_of_proxy.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                "the proxy's login ({variable}) goes to {peer} unencrypted, where any host on the path can read it"
            );
        }
        Ok(())
    }

    /// Returns the target with a login that a 401 asks for: one from .netrc if none was sent, or
    /// the one sent by Digest.
    pub(crate) fn answer_challenge(
        &self,
        target: &ResolvedUrl,
        head: &ResponseHead,
    ) -> Result<Option<ResolvedUrl>, HttpError> {
        let offers = |scheme| head.status() == 401 && head.offers_scheme("www-authenticate", scheme);
        if target.is_authorised() {
            return Ok(if offers("digest") { target.with_digest(head, None) } else { None });
        }
        if offers("basic") {
            return self.with_netrc(target);
        }
        let login = if offers("digest") { self.netrc_login(target)? } else { None };
        Ok(login.and_then(|login| match login {
            Credentials::Basic(login) => target.with_digest(head, Some(&login)),
            Credentials::Bearer(_) => None,
        }))
    }

    /// Returns the target with a login from .netrc, if the file contains one.
    pub(super) fn with_netrc(&self, target: &ResolvedUrl) -> Result<Option<ResolvedUrl>, HttpError> {
        self.netrc_login(target)?.map(|login| target.with_credentials(&login)).transpose()
    }

    fn netrc_login(&self, target: &ResolvedUrl) -> Result<Option<Credentials>, HttpError> {
        let Some(netrc) = &self.config.logins.netrc.file else { return Ok(None) };
        let host = target.url().host_str().unwrap_or_default().trim_matches(['[', ']']);
        let login = netrc.login(host, self.config.logins.netrc.default_applies)?;
        if login.is_some() {
            self.check_cleartext(target.url())?;
        }
        Ok(login)
    }
}

/// Creates the error of a login or token that would be sent unencrypted to `to`: the URL, and the
/// peer where that decides.
fn exposed(to: &str) -> HttpError {
    let message = format!(
        "will not send a login or a token to {to} unencrypted, where any host on the path can read it; use https:// or ftps://, or permit \
         it with --allow-cleartext"
    );
    Failure::new(FailureKind::Usage, message).into()
}
