//! Helpers, mostly those of the `get` tests.

#![allow(dead_code, unreachable_pub, reason = "the tests of get need more of it")]

#[path = "../../get/support/content.rs"]
mod content;
#[path = "../../get/support/http.rs"]
mod http;
#[path = "../../get/support/program.rs"]
mod program;
#[path = "../../get/support/real.rs"]
mod real;
mod site;
#[path = "../../get/support/tls.rs"]
mod tls;

pub(crate) use content::{content, partial_files, same};
pub(crate) use http::{File, HttpRequest, Server};
pub(crate) use program::{Get, get, skip};
pub(crate) use real::{Nginx, Serve};
pub(crate) use site::{of_size, site, slow_site};
