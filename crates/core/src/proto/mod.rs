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
