//! Authentication and encryption: gsiftp:// and ftps:// against real servers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod sniffer;
#[path = "../gridftp/support/mod.rs"]
mod support;

mod close_notify;
mod connect_timeout;
mod credentials;
mod encrypted_data;
mod ftps;
mod server_certificate;
