//! Tests of the HTTP source with scripted servers: what the tests of `longhaul get` cannot see or
//! provoke.

// A failed helper must end the test.
#![allow(clippy::unwrap_used, clippy::panic)]

mod keeping;
mod pipelining;
mod support;
mod tls;
