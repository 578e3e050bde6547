//! The HTTP source against real sockets: nginx where it can, scripts where no server would misbehave so.

// A helper that cannot do its part must end the test.
#![allow(clippy::unwrap_used, clippy::panic)]

mod authentication;
mod bad_input;
mod bodies;
mod keeping;
mod nginx;
mod proxies;
mod redirects;
mod support;
mod tls;
