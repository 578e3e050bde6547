//! Proves the server to the client, by TLS and pins, and the client to the server, by logins and
//! certificates.

pub(super) mod credentials;
pub(super) mod digest_login;
pub(super) mod key_pin;
pub(super) mod netrc_file;
mod server_trust;
pub(super) mod tls;
mod weak_rsa;
