//! Helpers: real FTP and GridFTP servers, a scripted one, and the helpers of the `get` tests.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "several test binaries share it, each uses a part"
)]

#[path = "../../get/support/content.rs"]
mod content;
mod globus;
mod gsi;
#[path = "../../get/support/http.rs"]
mod http;
mod proftpd;
#[path = "../../get/support/program.rs"]
mod program;
#[path = "../../get/support/real.rs"]
mod real;
mod scripted;
mod scripted_data;
mod server_process;
#[path = "../../get/support/tls.rs"]
mod tls;
mod vsftpd;

pub(crate) use content::{content, partial_files, same};
pub(crate) use globus::{Globus, LoggedTransfer};
pub(crate) use gsi::{Authority, GsiSite, Identity};
pub(crate) use http::{File, HttpRequest, Peer, Server};
pub(crate) use proftpd::Proftpd;
pub(crate) use program::{Ended, Get, Running, get, longhaul, skip};
pub(crate) use real::{Nginx, Serve, Site};
pub(crate) use scripted::{FtpCommand, Scripted, Session};
pub(crate) use scripted_data::{Data, Transfer, end};
pub(crate) use server_process::{ServerProcess, site_dir, write_old};
pub(crate) use tls::certificates;
pub(crate) use vsftpd::Vsftpd;
