//! The server as its clients meet it: real sockets, real curl, a real directory.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod access;
mod conditions;
mod connections;
mod content;
mod measurement;
mod metalinks;
mod metrics;
mod observer;
mod pace;
mod pages;
mod paths;
mod ranges;
mod shutdown;
mod site;
mod tls;
mod upload_ranges;
mod uploads;
mod uploads_broken;
mod uploads_refused;
mod uploads_verified;
