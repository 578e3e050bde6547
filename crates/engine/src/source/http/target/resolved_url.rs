//! A URL to request, with its headers and server addresses.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use longhaul_core::proto::cookies::{CookieJar, CookieScope};
use longhaul_core::proto::http::{HeaderField, ResponseHead};
use longhaul_core::proto::netrc::Login;
use parking_lot::Mutex;
use url::{Host, Position, Url};

use crate::source::http::authentication::credentials::{Credentials, is_loopback};
use crate::source::http::authentication::digest_login::DigestLogin;
use crate::source::http::connection::RequestLine;
use crate::source::http::error::{HttpError, unusable_url};
use crate::source::http::target::redirected_headers;
use crate::source::http::target::safe_url::SafeUrl;

/// The cookies of a client, which its servers add to.
pub(crate) type SharedCookies = Arc<Mutex<CookieJar>>;

/// A URL after its redirects, with the credentials and addresses that worked for it.
#[derive(Clone)]
pub struct ResolvedUrl {
    /// The original URL before any redirect, including its login.
    original: Arc<Url>,
    redirected: bool,
    /// The URL without login and fragment.
    url: Url,
    /// User-Agent, the user's headers and Authorization.
    headers: Vec<HeaderField>,
    /// Whether Authorization is of [`Credentials`], not a header of the user.
    logs_in: bool,
    /// The name and password of these credentials.
    login: Option<Login>,
    /// The login in the form that the server asked for, in place of a header.
    digest: Option<Arc<DigestLogin>>,
    /// Cookies, each sent only to its own server.
    cookies: Option<SharedCookies>,
    /// Whether logins and headers are also sent to other origins that a redirect leads to.
    trusts_redirects: bool,
    /// The addresses of the server or proxy.
    pub(crate) addresses: ServerAddresses,
}

impl fmt::Debug for ResolvedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResolvedUrl({})", self.safe_url())
    }
}

impl ResolvedUrl {
    /// Moves the login of `url`, or `otherwise`, into a header.
    pub(crate) fn new(
        url: &Url,
        mut headers: Vec<HeaderField>,
        otherwise: Option<&Credentials>,
    ) -> Result<Self, HttpError> {
        let fail = |why| unusable_url(&SafeUrl::of(url), why).into();
        if !matches!(url.scheme(), "http" | "https") {
            return Err(fail("only http://, https://, ftp://, ftps:// and gsiftp:// are known"));
        }
        if url.host().is_none() {
            return Err(fail("it names no host"));
        }
        let credentials = Credentials::of_url(url).or_else(|| otherwise.cloned());
        let logs_in = credentials.is_some();
        let login = match &credentials {
            Some(Credentials::Basic(login)) => Some(login.clone()),
            _ => None,
        };
        if let Some(credentials) = credentials {
            headers.retain(|h| !h.is("authorization"));
            headers.push(credentials.field("Authorization")?);
        }
        let original = Arc::new(url.clone());
        let mut url = without_login(url);
        url.set_fragment(None);
        Ok(Self {
            original,
            redirected: false,
            url,
            headers,
            logs_in,
            login,
            digest: None,
            cookies: None,
            trusts_redirects: false,
            addresses: ServerAddresses::default(),
        })
    }

    /// Sets the cookies for this target and for its redirects, and whether those get its logins and
    /// headers.
    pub(crate) fn with_cookies(self, cookies: SharedCookies, trusts_redirects: bool) -> Self {
        Self { cookies: Some(cookies), trusts_redirects, ..self }
    }

    /// Returns this target with `query`, if any, added to its query.
    pub(crate) fn with_query(&self, query: Option<&str>) -> Self {
        let mut next = self.clone();
        let Some(query) = query else { return next };
        let whole = self.url.query().map_or_else(|| query.to_owned(), |own| format!("{own}&{query}"));
        next.url.set_query(Some(&whole));
        next
    }

    /// Returns the target with `suffix` appended to its path, without a query.
    pub(crate) fn beside(&self, suffix: &str) -> Self {
        let mut next = self.clone();
        next.url.set_path(&format!("{}{suffix}", self.url.path()));
        next.url.set_query(None);
        next
    }

    /// Returns this target without the part `query`, if any, of its query.
    pub(crate) fn without_query(&self, query: Option<&str>) -> Self {
        let mut next = self.clone();
        let Some(query) = query else { return next };
        let own = self.url.query().unwrap_or_default();
        let rest: Vec<_> = own.split('&').filter(|pair| *pair != query && !pair.is_empty()).collect();
        next.url.set_query(Some(rest.join("&")).filter(|rest| !rest.is_empty()).as_deref());
        next
    }

    /// Returns this target with `credentials`.
    pub(crate) fn with_credentials(&self, credentials: &Credentials) -> Result<Self, HttpError> {
        let Self { headers, login, .. } = Self::new(&self.url, self.headers.clone(), Some(credentials))?;
        Ok(Self { headers, login, logs_in: true, ..self.clone() })
    }

    /// Returns this target with a login, or its own, in answer to the Digest challenge of a 401;
    /// `None` if none can answer it.
    pub(crate) fn with_digest(&self, head: &ResponseHead, login: Option<&Login>) -> Option<Self> {
        let login = login.or(self.login.as_ref())?;
        let digest = DigestLogin::new(head, login, self.digest.as_deref())?;
        let headers = self.headers.iter().filter(|h| !h.is("authorization")).cloned().collect();
        let (login, digest) = (Some(login.clone()), Some(Arc::new(digest)));
        Some(Self { headers, login, digest, logs_in: true, ..self.clone() })
    }

    /// Returns the target of a redirect to `url`: secrets are sent only within the origin unless
    /// redirects are trusted, and a login written into `url` by the server is not sent.
    pub(crate) fn redirected(&self, url: &Url) -> Result<Self, HttpError> {
        let stays = url.origin() == self.url.origin();
        let keeps_secrets = stays || self.trusts_redirects;
        let headers = redirected_headers::sent(&self.headers, stays, keeps_secrets);
        let mut next = Self::new(&without_login(url), headers, None)?;
        next.original = Arc::clone(&self.original);
        next.redirected = true;
        if keeps_secrets {
            next.logs_in = self.logs_in;
            next.login.clone_from(&self.login);
            next.digest.clone_from(&self.digest);
        }
        next.cookies.clone_from(&self.cookies);
        next.trusts_redirects = self.trusts_redirects;
        if stays {
            next.addresses.clone_from(&self.addresses);
        }
        Ok(next)
    }

    /// Returns the original URL before any redirect, including its login, to be requested again if
    /// the target of a redirect has expired. Show it only as a [`SafeUrl`].
    pub fn original(&self) -> &Url {
        &self.original
    }

    /// Returns whether the login holds only for a while, until the server makes another challenge.
    pub(crate) fn has_challenge(&self) -> bool {
        self.digest.is_some()
    }

    /// Returns whether a redirect led from [`original`](Self::original) to this URL.
    pub fn is_redirected(&self) -> bool {
        self.redirected
    }

    /// Returns the URL without login and fragment. Its query may contain a secret: show
    /// [`safe_url`](Self::safe_url).
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the URL without secrets.
    pub fn safe_url(&self) -> SafeUrl {
        SafeUrl::of(&self.url)
    }

    pub(crate) fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    pub(crate) fn is_authorised(&self) -> bool {
        self.digest.is_some() || self.headers.iter().any(|h| h.is("authorization"))
    }

    /// Returns whether requests send a login or token, other than a header of the user.
    pub(crate) fn logs_in(&self) -> bool {
        self.logs_in
    }

    /// Returns the server's host and port.
    pub(crate) fn endpoint(&self) -> Result<(Host<String>, u16), HttpError> {
        let endpoint = self.url.host().zip(self.url.port_or_known_default());
        let (host, port) =
            endpoint.ok_or_else(|| unusable_url(&self.safe_url(), "it names no host and port"))?;
        Ok((host.to_owned(), port))
    }

    /// Returns the properties that select this URL's cookies.
    pub(crate) fn cookie_scope(&self) -> Option<CookieScope<'_>> {
        let host = self.url.host_str()?;
        // As curl and browsers have it, no other host reads what is sent within this one.
        let is_safe = self.is_https() || self.url.host().is_some_and(|host| is_loopback(&host));
        Some(CookieScope { host, path: self.url.path(), is_encrypted: is_safe })
    }

    /// Replaces the user's Cookie header by one with all cookies of this URL.
    fn put_cookies(&self, headers: &mut Vec<HeaderField>) {
        if let Some(cookie) = self.cookie() {
            headers.retain(|header| !header.is("cookie"));
            headers.push(cookie);
        }
    }

    /// Returns the Cookie header, including the user's own cookies.
    pub(crate) fn cookie(&self) -> Option<HeaderField> {
        let given = self.headers.iter().filter(|header| header.is("cookie"));
        let given: Vec<_> = given.map(HeaderField::value).collect();
        self.cookies.as_ref()?.lock().field(self.cookie_scope()?, SystemTime::now(), &given)
    }

    /// Returns the parts of a request for this URL; a forwarding proxy requires the `absolute` form
    /// (RFC 9112, section 3.2.2).
    pub(crate) fn request_line(&self, via_proxy: Option<&HeaderField>, absolute: bool) -> RequestLine {
        let from = if absolute { Position::BeforeScheme } else { Position::BeforePath };
        let mut headers = self.headers.clone();
        self.put_cookies(&mut headers);
        headers.extend(via_proxy.cloned());
        let host = self.url[Position::BeforeHost..Position::AfterPort].to_owned();
        let target = self.url[from..Position::AfterQuery].to_owned();
        RequestLine { target, host, headers, digest: self.digest.clone(), url: self.safe_url() }
    }
}

fn without_login(url: &Url) -> Url {
    let mut url = url.clone();
    // Both fail only for URLs without a host, which have no login.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url
}

/// The addresses of a server or proxy.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerAddresses {
    /// Starts with the one that accepted the last connection; empty before the first connection.
    resolved: Vec<SocketAddr>,
    /// Addresses used only if there is no other, most recently avoided last.
    avoided: Vec<SocketAddr>,
}

impl ServerAddresses {
    /// Sets the addresses of the host; an empty list causes a new resolution.
    pub(crate) fn set(&mut self, resolved: Vec<SocketAddr>) {
        self.resolved = resolved;
    }

    /// Returns whether the host is resolved.
    pub(crate) fn is_resolved(&self) -> bool {
        !self.resolved.is_empty()
    }

    /// Avoids `peer` while the host has other addresses, for example because it serves another
    /// version of the file.
    pub(crate) fn avoid(&mut self, peer: SocketAddr) {
        self.avoided.retain(|address| *address != peer);
        self.avoided.push(peer);
    }

    /// Moves `peer`, which has accepted a connection, to the front.
    pub(crate) fn prefer(&mut self, peer: SocketAddr) {
        if let Some(at) = self.resolved.iter().position(|address| *address == peer) {
            self.resolved[..=at].rotate_right(1);
        }
    }

    /// Returns the number of known addresses that are not avoided; zero before the first
    /// connection.
    pub(crate) fn usable(&self) -> usize {
        self.resolved.iter().filter(|address| !self.avoided.contains(address)).count()
    }

    /// Returns the addresses to connect to, in order: those not avoided, else all, most recently
    /// avoided last.
    pub(crate) fn candidates(&self) -> Vec<SocketAddr> {
        let all = self.resolved.iter().copied();
        let avoided = |address: &SocketAddr| self.avoided.iter().position(|one| one == address);
        let mut left: Vec<_> = all.clone().filter(|address| avoided(address).is_none()).collect();
        if left.is_empty() {
            left = all.collect();
            left.sort_by_key(avoided);
        }
        left
    }

    /// Returns whether a connection to `peer` may be used.
    pub(crate) fn allows(&self, peer: SocketAddr) -> bool {
        !self.avoided.contains(&peer) || (self.is_resolved() && self.usable() == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str, headers: &[&str]) -> ResolvedUrl {
        let headers = headers.iter().map(|h| h.parse().unwrap()).collect();
        ResolvedUrl::new(&url.parse().unwrap(), headers, Some(&Credentials::Bearer("cli".into()))).unwrap()
    }

    fn names(target: &ResolvedUrl) -> Vec<&str> {
        target.headers.iter().map(HeaderField::name).collect()
    }

    #[test]
    fn login_moves_into_a_header_and_only_http_is_requested() {
        let with_login = target("http://u:p@h:81/a?b#c", &["X: y"]);
        assert_eq!(with_login.url().as_str(), "http://h:81/a?b");
        assert_eq!(names(&with_login), ["X", "Authorization"]);
        assert_eq!(with_login.headers[1].value(), "Basic dTpw");
        let line = with_login.request_line(None, false);
        assert_eq!((line.target.as_str(), line.host.as_str()), ("/a?b", "h:81"));
        assert_eq!(with_login.request_line(None, true).target, "http://h:81/a?b");
        assert_eq!(target("http://[::1]/", &[]).request_line(None, false).host, "[::1]");
        for url in ["ftp://h/a", "file:///etc/passwd", "data:x"] {
            assert!(ResolvedUrl::new(&url.parse().unwrap(), Vec::new(), None).is_err(), "{url}");
        }
    }

    #[test]
    fn query_and_original_url_are_kept_through_redirects() {
        for (plain, with) in [("http://h/f", "http://h/f?u=1"), ("http://h/f?a=b", "http://h/f?a=b&u=1")] {
            assert_eq!(target(plain, &[]).with_query(Some("u=1")).url().as_str(), with);
            assert_eq!(target(with, &[]).without_query(Some("u=1")).url().as_str(), plain);
            assert_eq!(target(plain, &[]).without_query(Some("u=1")).url().as_str(), plain);
        }
        assert_eq!(target("http://h/f?u=1&s", &[]).without_query(Some("u=1")).url().as_str(), "http://h/f?s");
        let first = target("http://u:p@h/a", &[]);
        assert!(!first.is_redirected());
        let next = first.redirected(&"http://o/b?signed=1".parse().unwrap()).unwrap();
        let next = next.redirected(&"http://o/c".parse().unwrap()).unwrap();
        let next = next.with_credentials(&Credentials::from_login("a:b")).unwrap();
        assert!(next.is_redirected());
        assert_eq!((next.original().as_str(), next.url().as_str()), ("http://u:p@h/a", "http://o/c"));
        assert!(!format!("{first:?}").contains("u:p"));
    }

    #[test]
    fn secrets_stay_within_the_origin() {
        let mut first = target("https://h/a", &["X-Api-Key: y", "Accept: */*", "Cookie: c", "Host: v"]);
        let to = |first: &ResolvedUrl, url: &str| first.redirected(&url.parse().unwrap()).unwrap();
        for (url, sent) in [
            ("https://h/b", &["X-Api-Key", "Accept", "Cookie", "Host", "Authorization"][..]),
            ("https://h:444/b", &["Accept"]),
            ("http://h/b", &["Accept"]),
            ("https://sub.h/b", &["Accept"]),
            ("http://u:p@other/b", &["Accept"]),
        ] {
            assert_eq!(names(&to(&first, url)), sent, "{url}");
        }
        let same = to(&first, "https://u:p@h/b");
        assert_eq!(same.headers, first.headers, "the login of a redirect is not sent");
        first.trusts_redirects = true;
        let trusted = to(&first, "https://other/b");
        assert_eq!(names(&trusted), ["X-Api-Key", "Accept", "Cookie", "Authorization"]);
        assert!(trusted.logs_in());
    }
}

#[cfg(test)]
mod address_tests {
    use super::*;

    #[test]
    fn avoided_address_is_used_only_without_alternatives() {
        let [a, b] = ["192.0.2.1:80", "192.0.2.2:80"].map(|address| address.parse().unwrap());
        let mut server = ServerAddresses::default();
        server.avoid(b);
        assert!(server.allows(a) && !server.allows(b), "others may be found");
        server.avoided.clear();
        server.set(vec![a, b]);
        assert_eq!((server.usable(), server.candidates()), (2, vec![a, b]));
        server.avoid(a);
        assert_eq!((server.usable(), server.candidates()), (1, vec![b]));
        assert!(!server.allows(a) && server.allows(b));
        server.avoid(b);
        assert_eq!((server.usable(), server.candidates()), (0, vec![a, b]));
        server.avoid(a);
        assert_eq!(server.candidates(), [b, a]);
        assert!(server.allows(a));
    }
}
