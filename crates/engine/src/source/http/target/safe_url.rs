//! URLs without secrets, for messages.

use std::fmt;
use std::net::SocketAddr;

use url::{Position, Url};

/// A URL without its secrets: omits login, query and fragment, because signed URLs carry keys in
/// the query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SafeUrl(String);

impl SafeUrl {
    /// Copies the parts of `url` that contain no secret.
    pub fn of(url: &Url) -> Self {
        let before_login = &url[..Position::BeforeUsername];
        let rest = &url[Position::BeforeHost..Position::AfterPath];
        let query = if url.query().is_some() { "?..." } else { "" };
        Self(format!("{before_login}{rest}{query}"))
    }
}

impl fmt::Display for SafeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A URL and the peer of the connection that requests it: the server's address, or the proxy's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlAndPeer {
    /// The URL.
    pub url: SafeUrl,
    /// The address.
    pub peer: SocketAddr,
}

impl fmt::Display for UrlAndPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.url, self.peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_no_secret() {
        for (url, shown) in [
            ("http://ann:secret@h:81/a/b?key=secret#secret", "http://h:81/a/b?..."),
            ("https://secret@h/", "https://h/"),
            ("http://[::1]:8080/x", "http://[::1]:8080/x"),
            ("file:///a", "file:///a"),
            ("mailto:a", "mailto:a"),
        ] {
            assert_eq!(SafeUrl::of(&url.parse().unwrap()).to_string(), shown);
        }
    }
}
