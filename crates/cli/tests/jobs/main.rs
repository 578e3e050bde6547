//! End-to-end tests of several files and several sources of one file, against scripted and real servers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod support;

mod many_files;
mod metalinks;
mod mirrors;
mod names;
mod progress_lines;
mod several_files;
