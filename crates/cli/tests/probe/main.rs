//! `longhaul probe` as a process.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail so")]

mod bad_input;
mod endpoint;
mod iperf3;
mod lab;
mod other_servers;
mod support;
