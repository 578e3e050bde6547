//! `longhaul get` over FTP and GridFTP from end to end: the real program against real servers, and against a scripted one
//! that does what no real server does.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod support;

mod addresses;
mod checksums;
mod logins;
mod lying_control;
mod lying_data;
mod probing;
mod real_servers;
mod servers;
