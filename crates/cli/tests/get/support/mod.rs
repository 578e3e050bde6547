//! Helpers: the program as a child process, scripted and real servers, and content.

mod content;
mod damaging;
mod http;
mod memory;
mod partial;
mod program;
mod real;
mod terminal;
mod tls;

pub(crate) use content::{content, partial_files, same};
pub(crate) use damaging::{Record, damaging};
pub(crate) use http::{File, HttpRequest, Peer, Server};
pub(crate) use memory::{MEMORY, remember};
pub(crate) use partial::{PartialFiles, partial, partial_with};
pub(crate) use program::{Ended, Get, Running, get, longhaul, old_kernel, skip};
pub(crate) use real::{Apache, Nginx, Serve};
pub(crate) use terminal::{program, terminal};
