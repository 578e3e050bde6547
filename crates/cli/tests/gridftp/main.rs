//! End-to-end tests of `longhaul get` over FTP and GridFTP, against real servers and a scripted server with faults.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod support;

mod addresses;
mod checksums;
mod faulty;
mod logins;
mod probing;
mod real_servers;
mod servers;
