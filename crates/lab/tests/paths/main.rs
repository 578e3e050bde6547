//! Rates and times of labs, measured with real sockets over the real kernel: `make test-paths`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    dead_code,
    reason = "tests fail so, and measure time; the program of facts shares the helpers"
)]

#[path = "../common/mod.rs"]
mod common;
mod cross_flows;
mod disciplines;
mod held;
mod kernel_tcp;
mod measuring;
#[path = "../simulated/mod.rs"]
mod simulated;
mod speed;
