//! Tests of the HTTP source with real sockets: nginx where possible, scripted servers for misbehaviour.

// A failed helper must end the test.
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
