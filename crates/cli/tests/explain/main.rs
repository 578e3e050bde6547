//! `longhaul explain` as its user sees it, and the explanation after transfers across planted faults.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail so")]

mod captures;
mod planted_faults;
mod processes;
mod records;
mod support;
