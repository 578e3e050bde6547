//! The target of a request: its URL after redirects, and the server or proxy to connect to.

pub(super) mod proxy;
pub(super) mod redirected_headers;
pub(super) mod redirects;
pub(super) mod resolved_url;
pub(super) mod safe_url;
