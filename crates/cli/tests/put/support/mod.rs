//! Helpers, mostly those of the `get` tests.

#![allow(dead_code, unreachable_pub, reason = "the tests of get need more of it")]

#[path = "../../get/support/content.rs"]
mod content;
#[path = "../../get/support/damaging.rs"]
mod damaging;
#[path = "../../get/support/http.rs"]
mod http;
#[path = "../../get/support/program.rs"]
mod program;
#[path = "../../get/support/real.rs"]
mod real;
mod relay;
mod scripted_dav;
#[path = "../../get/support/terminal.rs"]
mod terminal;
#[path = "../../get/support/tls.rs"]
mod tls;
mod writable;

pub(crate) use content::{content, same};
pub(crate) use damaging::damaging;
pub(crate) use http::{HttpRequest, Peer, Server};
pub(crate) use program::{Ended, Get as Put, Running, longhaul, old_kernel, skip};
pub(crate) use real::{Apache, Nginx, Site};
pub(crate) use relay::{RelayAction, relay, relay_as};
pub(crate) use scripted_dav::{DavAction, Files, scripted_dav};
pub(crate) use terminal::{program, terminal};
pub(crate) use writable::Writable;

/// Creates a `longhaul put` in an empty directory.
pub(crate) fn put() -> Put {
    longhaul("put")
}
