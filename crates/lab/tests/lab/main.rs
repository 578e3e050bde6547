//! Labs, measured from outside with real sockets over the real kernel.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests fail so, and measure time"
)]

mod common;
mod cross_flows;
mod held;
mod hosts;
mod path;
mod red;
mod speed;
