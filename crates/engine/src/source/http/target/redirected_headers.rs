//! Which headers are sent to the target of a redirect.

use longhaul_core::proto::http::{HeaderField, UPLOAD_MTIME};

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

/// Returns whether a header must be sent only to the first URL's origin: a header of any name may
/// hold a key.
pub(crate) fn is_secret(header: &HeaderField) -> bool {
    let name = header.name().to_ascii_lowercase();
    let has_prefix = PUBLIC_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    !has_prefix && !PUBLIC.iter().any(|public| header.is(public))
}

/// Returns those of a request's `headers` that go with a redirect: all within the origin, elsewhere
/// neither Host nor, unless it is trusted, a secret.
pub(super) fn sent(headers: &[HeaderField], same_origin: bool, trusted: bool) -> Vec<HeaderField> {
    let sent = |h: &&HeaderField| same_origin || !(h.is("host") || (is_secret(h) && !trusted));
    headers.iter().filter(sent).cloned().collect()
}
