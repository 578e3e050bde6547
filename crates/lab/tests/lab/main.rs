//! Facts of labs, seen from outside with real sockets over the real kernel; and simulated TCP
//! against another simulator.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    dead_code,
    reason = "tests fail so, and wait; the program that measures shares the helpers"
)]

#[path = "../common/mod.rs"]
mod common;
mod cross_flows;
mod hosts;
mod ns2;
mod path;
#[path = "../simulated/mod.rs"]
mod simulated;
