//! The cookies of a request: those of the user and of the jar that this URL's server may see.

use std::sync::Arc;
use std::time::SystemTime;

use longhaul_core::proto::cookies::{CookieJar, CookieScope};
use longhaul_core::proto::http::HeaderField;
use parking_lot::Mutex;

use super::ResolvedUrl;
use crate::source::http::authentication::credentials::is_loopback;

/// The cookies of a client, which its servers add to.
pub(crate) type SharedCookies = Arc<Mutex<CookieJar>>;

impl ResolvedUrl {
    /// Returns the properties that select this URL's cookies.
    pub(crate) fn cookie_scope(&self) -> Option<CookieScope<'_>> {
        let host = self.url.host_str()?;
        // As curl and browsers have it, no other host reads what stays on this one.
        let is_safe = self.is_https() || self.url.host().is_some_and(|host| is_loopback(&host));
        Some(CookieScope { host, path: self.url.path(), is_encrypted: is_safe })
    }

    /// Replaces the user's Cookie header by one with all cookies of this URL.
    pub(super) fn put_cookies(&self, headers: &mut Vec<HeaderField>) {
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
}
