//! Longhaul's HTTP server: the files of one directory, over HTTP/1.1 and HTTPS, at the path's rate.
//!
//! ```text
//!   listen -> accept -> session (one task a connection) -> routes -> site -> reply
//!                          |                                          |
//!                          |                                         root (openat2, never above DIR)
//!                          |-> transport -> engine::send: file -> sendfile -> socket
//!                          '-> upload <- socket: engine::sink::pipeline -> file (where the server is writable)
//! ```
//!
//! Tasks wait for sockets; the runtime's blocking threads open files and run sendfile, which may
//! wait for a disk. The `census` knows every connection, and tells an observer and `/metrics`. An idle connection therefore costs a task of a few kilobytes, no thread, and makes room where
//! the limit of connections is reached.

mod accept;
mod census;
mod clients;
mod config;
mod error;
mod file_reply;
mod greeting;
mod initial_window;
mod listen;
mod listing;
mod metrics;
mod pace;
mod page;
mod patience;
mod reply;
mod root;
mod routes;
mod server;
mod session;
mod site;
mod telemetry;
mod tls;
mod totals;
mod transport;
mod upload;
mod waiting;

pub use config::{Config, Limits, Metrics, TlsFiles};
pub use error::ServeError;
pub use server::{Ended, Server, Stopper};
pub use telemetry::Telemetry;
pub use upload::{Token, TokenError};
