//! `longhaul lab` as a process, up to a SIGKILL.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail so")]

mod apt;
mod connecting_ahead;
mod evidence;
mod exec;
mod icdc;
mod interrupt;
mod last_packet;
mod own_scenarios;
mod put_streams;
mod results;
mod run;
mod scenario;
mod serve_buffers;
mod support;
