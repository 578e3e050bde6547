//! The program as a user runs it: child processes, real and scripted servers over loopback, both
//! browsers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

#[path = "../support/mod.rs"]
mod support;

mod agent;
mod aria2;
mod browser;
mod doctor;
mod documents;
mod explain;
mod farm;
mod faults;
mod get;
mod gridftp;
mod gridftp_put;
mod gridftp_security;
mod jobs;
mod lab;
mod native_host;
mod packaging;
mod probe;
mod put;
mod report;
mod serve;
mod snapshots;
mod trees;
