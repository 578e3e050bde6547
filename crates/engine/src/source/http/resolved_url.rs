//! A URL to request, with its headers and server addresses.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use longhaul_core::proto::cookies::{CookieJar, CookieScope};
use longhaul_core::proto::http::HeaderField;
use url::{Host, Position, Url};

use super::config::is_secret;
use super::connection::RequestLine;
use super::credentials::Credentials;
use super::error::HttpError;
use super::safe_url::SafeUrl;

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
    /// Cookies, each sent only to its own server.
    cookies: Option<Arc<CookieJar>>,
    /// The addresses of the server or proxy, starting with the one that accepted the last connection; empty before the
    /// first connection.
    addresses: Vec<SocketAddr>,
    /// Addresses used only if there is no other, most recently avoided last.
    avoided: Vec<SocketAddr>,
}

impl fmt::Debug for ResolvedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResolvedUrl({})", self.safe_url())
    }
}

impl ResolvedUrl {
    /// Moves the login of `url`, or `otherwise`, into a header.
    pub(super) fn new(
        url: &Url,
        mut headers: Vec<HeaderField>,
        otherwise: Option<&Credentials>,
    ) -> Result<Self, HttpError> {
        let fail = |why| HttpError::Url { url: SafeUrl::of(url), why };
        if !matches!(url.scheme(), "http" | "https") {
            return Err(fail("only http://, https://, ftp://, ftps:// and gsiftp:// are known"));
        }
        if url.host().is_none() {
            return Err(fail("it names no host"));
        }
        let credentials = Credentials::of_url(url).or_else(|| otherwise.cloned());
        let logs_in = credentials.is_some();
        if let Some(credentials) = credentials {
            headers.retain(|h| !h.is("authorization"));
            headers.push(credentials.field("Authorization")?);
        }
        let original = Arc::new(url.clone());
        let mut url = without_login(url);
        url.set_fragment(None);
        let (addresses, avoided) = (Vec::new(), Vec::new());
        Ok(Self { original, redirected: false, url, headers, logs_in, cookies: None, addresses, avoided })
    }

    /// Sets the cookies for this target and for its redirects.
    pub(super) fn with_cookies(self, cookies: Option<Arc<CookieJar>>) -> Self {
        Self { cookies, ..self }
    }

    /// Returns the target of a redirect to `url`: secrets are sent only within the origin, and a login written into
    /// `url` by the server is not sent.
    pub(super) fn redirected(&self, url: &Url) -> Result<Self, HttpError> {
        let stays = url.origin() == self.url.origin();
        let headers = self.headers.iter().filter(|h| stays || !is_secret(h)).cloned().collect();
        let mut next = Self::new(&without_login(url), headers, None)?;
        next.original = Arc::clone(&self.original);
        next.redirected = true;
        next.logs_in = stays && self.logs_in;
        next.cookies.clone_from(&self.cookies);
        if stays {
            next.addresses.clone_from(&self.addresses);
            next.avoided.clone_from(&self.avoided);
        }
        Ok(next)
    }

    /// Returns this target with `query` added to its query.
    pub(crate) fn with_query(&self, query: &str) -> Self {
        let mut next = self.clone();
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

    /// Returns this target without the part `query` of its query.
    pub(crate) fn without_query(&self, query: &str) -> Self {
        let mut next = self.clone();
        let own = self.url.query().unwrap_or_default();
        let rest: Vec<_> = own.split('&').filter(|pair| *pair != query && !pair.is_empty()).collect();
        next.url.set_query(Some(rest.join("&")).filter(|rest| !rest.is_empty()).as_deref());
        next
    }

    /// Returns this target with `credentials`.
    pub(super) fn with_credentials(&self, credentials: &Credentials) -> Result<Self, HttpError> {
        let headers = Self::new(&self.url, self.headers.clone(), Some(credentials))?.headers;
        Ok(Self { headers, logs_in: true, ..self.clone() })
    }

    /// Returns the original URL before any redirect, including its login, to be requested again if the target of a
    /// redirect has expired. Show it only as a [`SafeUrl`].
    pub fn original(&self) -> &Url {
        &self.original
    }

    /// Returns whether a redirect led from [`original`](Self::original) to this URL.
    pub fn is_redirected(&self) -> bool {
        self.redirected
    }

    /// Avoids `peer` while the host has other addresses, for example because it serves another version of the file.
    pub fn avoid(&mut self, peer: SocketAddr) {
        self.avoided.retain(|address| *address != peer);
        self.avoided.push(peer);
    }

    /// Returns the number of known addresses that are not avoided; zero before the first connection.
    pub fn addresses(&self) -> usize {
        self.addresses.iter().filter(|address| !self.avoided.contains(address)).count()
    }

    /// Returns the addresses to connect to, in order: those not avoided, else all, most recently avoided last.
    pub(super) fn candidates(&self) -> Vec<SocketAddr> {
        let all = self.addresses.iter().copied();
        let avoided = |address: &SocketAddr| self.avoided.iter().position(|one| one == address);
        let mut left: Vec<_> = all.clone().filter(|address| avoided(address).is_none()).collect();
        if left.is_empty() {
            left = all.collect();
            left.sort_by_key(avoided);
        }
        left
    }

    /// Returns whether a connection to `peer` may be used.
    pub(super) fn allows(&self, peer: SocketAddr) -> bool {
        !self.avoided.contains(&peer) || (self.is_resolved() && self.addresses() == 0)
    }

    /// Sets the addresses of the host; an empty list causes a new resolution.
    pub(super) fn set_addresses(&mut self, addresses: Vec<SocketAddr>) {
        self.addresses = addresses;
    }

    /// Moves `peer`, which has accepted a connection, to the front of the addresses.
    pub(super) fn prefer(&mut self, peer: SocketAddr) {
        if let Some(at) = self.addresses.iter().position(|address| *address == peer) {
            self.addresses[..=at].rotate_right(1);
        }
    }

    pub(super) fn is_resolved(&self) -> bool {
        !self.addresses.is_empty()
    }

    /// Returns the URL without login and fragment. Its query may contain a secret: show [`safe_url`](Self::safe_url).
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the URL without secrets.
    pub fn safe_url(&self) -> SafeUrl {
        SafeUrl::of(&self.url)
    }

    pub(super) fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    pub(super) fn is_authorised(&self) -> bool {
        self.headers.iter().any(|h| h.is("authorization"))
    }

    /// Returns whether requests send a login or token, other than a header of the user.
    pub(super) fn logs_in(&self) -> bool {
        self.logs_in
    }

    /// Returns the server's host and port.
    pub(super) fn endpoint(&self) -> Result<(Host<String>, u16), HttpError> {
        let endpoint = self.url.host().zip(self.url.port_or_known_default());
        let (host, port) =
            endpoint.ok_or(HttpError::Url { url: self.safe_url(), why: "it names no host and port" })?;
        Ok((host.to_owned(), port))
    }

    /// Returns the Cookie header, including the user's own cookies.
    fn cookie(&self, jar: &CookieJar) -> Option<HeaderField> {
        let given = self.headers.iter().filter(|header| header.is("cookie"));
        let given: Vec<_> = given.map(HeaderField::value).collect();
        let host = self.url.host_str()?;
        let scope = CookieScope { host, path: self.url.path(), is_encrypted: self.is_https() };
        jar.field(scope, SystemTime::now(), &given)
    }

    /// Returns the parts of a request for this URL; a forwarding proxy requires the `absolute` form (RFC 9112, section
    /// 3.2.2).
    pub(super) fn request_line(&self, via_proxy: Option<&HeaderField>, absolute: bool) -> RequestLine {
        let from = if absolute { Position::BeforeScheme } else { Position::BeforePath };
        let mut headers = self.headers.clone();
        if let Some(cookie) = self.cookies.as_ref().and_then(|jar| self.cookie(jar)) {
            headers.retain(|header| !header.is("cookie"));
            headers.push(cookie);
        }
        headers.extend(via_proxy.cloned());
        let host = self.url[Position::BeforeHost..Position::AfterPort].to_owned();
        let target = self.url[from..Position::AfterQuery].to_owned();
        RequestLine { target, host, headers, url: self.safe_url() }
    }
}

fn without_login(url: &Url) -> Url {
    let mut url = url.clone();
    // Both fail only for URLs without a host, which have no login.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url
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
            assert_eq!(target(plain, &[]).with_query("u=1").url().as_str(), with);
            assert_eq!(target(with, &[]).without_query("u=1").url().as_str(), plain);
            assert_eq!(target(plain, &[]).without_query("u=1").url().as_str(), plain);
        }
        assert_eq!(target("http://h/f?u=1&s", &[]).without_query("u=1").url().as_str(), "http://h/f?s");
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
        let first = target("https://h/a", &["X: y", "Cookie: c", "Host: v"]);
        let to = |url: &str| first.redirected(&url.parse().unwrap()).unwrap();
        for (url, sent) in [
            ("https://h/b", &["X", "Cookie", "Host", "Authorization"][..]),
            ("https://h:444/b", &["X"]),
            ("http://h/b", &["X"]),
            ("https://sub.h/b", &["X"]),
            ("http://u:p@other/b", &["X"]),
        ] {
            assert_eq!(names(&to(url)), sent, "{url}");
        }
        assert_eq!(to("https://u:p@h/b").headers, first.headers, "the login of a redirect is not sent");
    }

    #[test]
    fn avoided_address_is_used_only_without_alternatives() {
        let [a, b] = ["192.0.2.1:80", "192.0.2.2:80"].map(|address| address.parse().unwrap());
        let mut target = target("http://h/a", &[]);
        target.avoid(b);
        assert!(target.allows(a) && !target.allows(b), "others may be found");
        target.avoided.clear();
        target.set_addresses(vec![a, b]);
        assert_eq!((target.addresses(), target.candidates()), (2, vec![a, b]));
        target.avoid(a);
        assert_eq!((target.addresses(), target.candidates()), (1, vec![b]));
        assert!(!target.allows(a) && target.allows(b));
        target.avoid(b);
        assert_eq!((target.addresses(), target.candidates()), (0, vec![a, b]));
        target.avoid(a);
        assert_eq!(target.candidates(), [b, a]);
        assert!(target.allows(a));
    }
}
