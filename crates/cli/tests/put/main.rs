//! `longhaul put` from end to end: the real program against real servers, and against scripted ones
//! that do what no real server does.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod support;

mod answers;
mod collections;
mod completing;
mod corruption;
mod dav;
mod dav_lies;
mod failing_disk;
mod flights;
mod full_disk;
mod interface;
mod memory;
mod real_servers;
mod redirects;
mod resuming;
mod serve;
mod sources;
mod streams;
