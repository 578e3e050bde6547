//! Removes logins and secret headers from requests that a redirect leads to another origin.

use std::sync::Arc;

use longhaul_core::proto::http::{HeaderField, UPLOAD_MTIME};
use url::Url;

use super::{ResolvedUrl, without_login};
use crate::source::http::error::HttpError;

/// Headers that any server may see: they hold no secret.
const PUBLIC: [&str; 11] = [
    "accept",
    "accept-language",
    "cache-control",
    "dnt",
    "origin",
    "pragma",
    "priority",
    "referer",
    "upgrade-insecure-requests",
    "user-agent",
    UPLOAD_MTIME,
];
/// The first parts of the names of such headers.
const PUBLIC_PREFIXES: [&str; 4] = ["content-", "if-", "longhaul-", "sec-"];

/// Returns whether a header must be sent only to the first URL's origin: a header of any name may hold a key.
pub(crate) fn is_secret(header: &HeaderField) -> bool {
    let name = header.name().to_ascii_lowercase();
    let has_prefix = PUBLIC_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    !has_prefix && !PUBLIC.iter().any(|public| header.is(public))
}

impl ResolvedUrl {
    /// Returns the target of a redirect to `url`: secrets are sent only within the origin unless redirects are trusted, and a
    /// login written into `url` by the server is not sent.
    pub(crate) fn redirected(&self, url: &Url) -> Result<Self, HttpError> {
        let stays = url.origin() == self.url.origin();
        let keeps_secrets = stays || self.trusts_redirects;
        let follows = |h: &&HeaderField| stays || !(h.is("host") || (is_secret(h) && !keeps_secrets));
        let headers = self.headers.iter().filter(follows).cloned().collect();
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
}
