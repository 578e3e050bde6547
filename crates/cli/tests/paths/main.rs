//! What judges rates and times on emulated paths: `make test-paths`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

#[path = "../support/mod.rs"]
mod support;

mod costs;
mod explain;
mod farm_scale;
mod idle_agent;
mod lab;
mod probe;
mod serve;
