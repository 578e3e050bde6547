//! `longhaul agent` and `longhaul queue` as processes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod databases;
mod idle;
mod kills;
mod limits;
mod links;
mod loopback;
mod offers;
mod support;
mod transfers;
