//! Protocols without I/O: parsers and encoders.

pub mod aria2_rpc;
pub mod cookies;
pub mod gridftp;
pub mod http;
pub mod listing;
mod malformed;
pub mod metalink;
pub mod native_messaging;
pub mod netrc;
pub mod socks5;

pub use malformed::Malformed;

/// Parses a number of digits alone, without a sign; `None` if it is empty or too large.
pub(crate) fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}
