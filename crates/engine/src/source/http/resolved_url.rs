//! What is fetched, from where, and as whom.

use std::net::SocketAddr;

use longhaul_core::proto::http::HeaderField;
use url::{Host, Position, Url};

use super::connection::RequestLine;
use super::credentials::Credentials;
use super::error::HttpError;
use super::safe_url::SafeUrl;

/// A URL after its redirects, with the credentials and addresses that worked for it.
#[derive(Debug, Clone)]
pub struct ResolvedUrl {
    /// Without login and fragment.
    url: Url,
    /// User-Agent, the user's headers and Authorization.
    headers: Vec<HeaderField>,
    /// The addresses of the server or proxy, the one that answered first; empty before the first connection.
    pub(super) addresses: Vec<SocketAddr>,
}

impl ResolvedUrl {
    /// Takes the login out of `url`, or `otherwise`, into a header.
    pub(super) fn new(
        url: &Url,
        mut headers: Vec<HeaderField>,
        otherwise: Option<&Credentials>,
    ) -> Result<Self, HttpError> {
        let fail = |why| HttpError::Url { url: SafeUrl::of(url), why };
        if !matches!(url.scheme(), "http" | "https") {
            return Err(fail("only http:// and https:// are known"));
        }
        if url.host().is_none() {
            return Err(fail("it names no host"));
        }
        if let Some(credentials) = Credentials::of_url(url).as_ref().or(otherwise) {
            headers.retain(|h| !h.is("authorization"));
            headers.push(credentials.field("Authorization")?);
        }
        let mut url = url.clone();
        // Both can fail only for URLs without a host.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_fragment(None);
        Ok(Self { url, headers, addresses: Vec::new() })
    }

    /// Returns where a redirect to `url` leads: secrets go along only within the origin.
    pub(super) fn redirected(&self, url: &Url) -> Result<Self, HttpError> {
        let stays = url.origin() == self.url.origin();
        let secret = |h: &HeaderField| ["authorization", "cookie", "host"].iter().any(|name| h.is(name));
        let headers = self.headers.iter().filter(|h| stays || !secret(h)).cloned().collect();
        let mut next = Self::new(url, headers, None)?;
        if stays {
            next.addresses.clone_from(&self.addresses);
        }
        Ok(next)
    }

    /// Returns the target beside this one that has `query` as well.
    pub(crate) fn with_query(&self, query: &str) -> Self {
        let mut next = self.clone();
        let whole = self.url.query().map_or_else(|| query.to_owned(), |own| format!("{own}&{query}"));
        next.url.set_query(Some(&whole));
        next
    }

    /// Returns the same target asked for with `credentials`.
    pub(super) fn with_credentials(&self, credentials: &Credentials) -> Result<Self, HttpError> {
        let next = Self::new(&self.url, self.headers.clone(), Some(credentials))?;
        Ok(Self { addresses: self.addresses.clone(), ..next })
    }

    /// Returns the URL, without login and fragment. Its query may hold a secret: show [`safe_url`](Self::safe_url).
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the URL fit to be shown.
    pub fn safe_url(&self) -> SafeUrl {
        SafeUrl::of(&self.url)
    }

    pub(super) fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    pub(super) fn is_authorised(&self) -> bool {
        self.headers.iter().any(|h| h.is("authorization"))
    }

    /// Returns the server's host and port.
    pub(super) fn endpoint(&self) -> Result<(Host<String>, u16), HttpError> {
        let endpoint = self.url.host().zip(self.url.port_or_known_default());
        let (host, port) =
            endpoint.ok_or(HttpError::Url { url: self.safe_url(), why: "it names no host and port" })?;
        Ok((host.to_owned(), port))
    }

    /// Returns what a request needs; a proxy that passes on requests wants the whole URL (RFC 9112, section 3.2.2).
    pub(super) fn request_line(&self, via_proxy: Option<&HeaderField>, absolute: bool) -> RequestLine {
        let from = if absolute { Position::BeforeScheme } else { Position::BeforePath };
        let mut headers = self.headers.clone();
        headers.extend(via_proxy.cloned());
        let host = self.url[Position::BeforeHost..Position::AfterPort].to_owned();
        RequestLine { target: self.url[from..Position::AfterQuery].to_owned(), host, headers }
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
    fn moves_the_login_into_a_header() {
        let with_login = target("http://u:p@h:81/a?b#c", &["X: y"]);
        assert_eq!(with_login.url().as_str(), "http://h:81/a?b");
        assert_eq!(names(&with_login), ["X", "Authorization"]);
        assert_eq!(with_login.headers[1].value(), "Basic dTpw");
        let line = with_login.request_line(None, false);
        assert_eq!((line.target.as_str(), line.host.as_str()), ("/a?b", "h:81"));
        assert_eq!(with_login.request_line(None, true).target, "http://h:81/a?b");
        assert_eq!(target("http://[::1]/", &[]).request_line(None, false).host, "[::1]");
    }

    #[test]
    fn secrets_stay_within_the_origin() {
        let first = target("https://h/a", &["X: y", "Cookie: c", "Host: v"]);
        let to = |url: &str| first.redirected(&url.parse().unwrap()).unwrap();
        assert_eq!(names(&to("https://h/b")), ["X", "Cookie", "Host", "Authorization"]);
        for other in ["https://h:444/b", "http://h/b", "https://sub.h/b"] {
            assert_eq!(names(&to(other)), ["X"], "{other}");
        }
    }

    #[test]
    fn refuses_other_schemes() {
        for url in ["ftp://h/a", "file:///etc/passwd", "data:x"] {
            assert!(ResolvedUrl::new(&url.parse().unwrap(), Vec::new(), None).is_err(), "{url}");
        }
    }
}
