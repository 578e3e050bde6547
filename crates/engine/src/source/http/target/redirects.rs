//! The rules for following redirects.

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::proto::http::{HeaderField, ResponseHead};
use url::Url;

use crate::source::http::error::HttpError;
use crate::source::http::target::resolved_url::ResolvedUrl;
use crate::source::http::target::safe_url::SafeUrl;

/// The maximum number of redirects.
const MAX_REDIRECTS: usize = 50;
/// The maximum number of URLs of a chain in a message: a long chain repeats itself.
const MAX_SHOWN: usize = 8;

/// The URLs requested so far.
#[derive(Debug)]
pub(crate) struct Redirects {
    visited: Vec<Url>,
    /// The cookies that were sent to each of them: with others, it may answer otherwise.
    cookies: Vec<Option<HeaderField>>,
}

impl Redirects {
    pub(crate) fn new(first: &ResolvedUrl) -> Self {
        Self { visited: vec![first.url().clone()], cookies: vec![first.cookie()] }
    }

    /// Returns whether an answer of this status to a GET or HEAD is a redirect.
    pub(crate) fn is_redirect(status: u16) -> bool {
        matches!(status, 300..=303 | 307 | 308)
    }

    /// Returns whether an answer of this status is a redirect that keeps the method and body of any
    /// request (RFC 9110, sections 15.4.8 and 15.4.9).
    pub(crate) fn keeps_method(status: u16) -> bool {
        matches!(status, 307 | 308)
    }

    /// Returns the target of the redirect `head`, the answer to a request for `from`.
    ///
    /// # Errors
    /// [`HttpError::RedirectRefused`], and the errors of a loop and of too many redirects.
    pub(crate) fn follow(
        &mut self,
        from: &ResolvedUrl,
        head: &ResponseHead,
    ) -> Result<ResolvedUrl, HttpError> {
        let next = from.redirected(&self.location(from.url(), head)?)?;
        let cookie = next.cookie();
        let seen = self.visited.iter().zip(&self.cookies).any(|past| past == (next.url(), &cookie));
        self.visited.push(next.url().clone());
        self.cookies.push(cookie);
        let message = if seen {
            format!("the redirects go round in a circle: {}; ask the server's owner", self.chain())
        } else if self.visited.len() > MAX_REDIRECTS + 1 {
            format!("too many redirects: {}; fetch the last URL itself", self.chain())
        } else {
            return Ok(next);
        };
        Err(Failure::new(FailureKind::Protocol, message).into())
    }

    fn location(&self, from: &Url, head: &ResponseHead) -> Result<Url, HttpError> {
        let refuse = |to: String, why| HttpError::RedirectRefused(SafeUrl::of(from), to, why);
        let location = head.location().ok_or_else(|| refuse("nowhere".to_owned(), "it has no Location"))?;
        let to = from
            .join(&location)
            .map_err(|_| refuse(format!("'{}'", location.escape_debug()), "that is not a URL"))?;
        let shown = || SafeUrl::of(&to).to_string();
        if !matches!(to.scheme(), "http" | "https") || to.host().is_none() {
            return Err(refuse(shown(), "only http:// and https:// are followed"));
        }
        if from.scheme() == "https" && to.scheme() == "http" {
            return Err(refuse(shown(), "it gives up encryption; fetch that URL itself if you accept that"));
        }
        Ok(to)
    }

    /// Formats the chain of URLs.
    fn chain(&self) -> String {
        let urls = self.visited.iter().take(MAX_SHOWN).map(|url| SafeUrl::of(url).to_string());
        let (shown, count) = (urls.collect::<Vec<_>>().join(" -> "), self.visited.len());
        if count > MAX_SHOWN { format!("{shown} -> ... ({count} in all)") } else { shown }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(location: &str) -> ResponseHead {
        ResponseHead::parse(format!("HTTP/1.1 302 Found\r\n{location}\r\n").as_bytes()).unwrap()
    }

    fn follow(from: &str, location: &str) -> Result<String, HttpError> {
        let from = ResolvedUrl::new(&from.parse().unwrap(), Vec::new(), None).unwrap();
        let head = head(&format!("Location: {location}\r\n"));
        Redirects::new(&from).location(from.url(), &head).map(String::from)
    }

    #[test]
    fn follows_relative_and_absolute_but_no_unsafe_redirects() {
        for (location, to) in [
            ("b?c", "http://h/d/b?c"),
            ("/x", "http://h/x"),
            ("//o/x", "http://o/x"),
            ("https://o/", "https://o/"),
            ("/\u{e9}?\u{e9}", "http://h/%C3%A9?%C3%A9"),
        ] {
            assert_eq!(follow("http://h/d/a", location).unwrap(), to);
        }
        for location in ["file:///etc/passwd", "javascript:x", "http://", "http://o/"] {
            assert!(follow("https://h/", location).is_err(), "{location}");
        }
        let from = ResolvedUrl::new(&"http://h/".parse().unwrap(), Vec::new(), None).unwrap();
        assert!(Redirects::new(&from).location(from.url(), &head("")).is_err());
        let error = follow("https://h/", "http://u:secret@o/?secret").unwrap_err().to_string();
        assert!(error.contains("http://o/") && !error.contains("secret"), "{error}");
    }
}
