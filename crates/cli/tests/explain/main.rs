//! `longhaul explain` as a process, and explanations of transfers with planted faults.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail so")]

mod captures;
mod curl;
mod planted_faults;
mod processes;
mod records;
mod support;
