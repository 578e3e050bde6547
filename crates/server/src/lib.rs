//! Longhaul's HTTP server: serves the files of one directory over HTTP/1.1 and HTTPS, paced to the
//! path's rate.
//!
//! ```text
//!   listen -> accept -> http_connection (one task each) -> access -> routes -> static_files -> reply
//!                |               |                                       |
//!        connection_slots        |                                beneath_root (openat2: never above DIR)
//!                                |-> transport -> engine::send: file -> sendfile -> socket
//!                                '-> upload <- socket: engine::sink::pipeline -> file (writable servers)
//! ```
//!
//! Tasks wait for sockets, and send small files that are in memory. Threads, a bounded number for
//! each file system (`disks`), open all others and run sendfile, which may wait for the disk.
//! `sandbox` takes capabilities, and all files but those served, from every thread.
//! `connection_stats` counts connections and replies for an observer and `/metrics`. An idle
//! connection costs a task of a few kilobytes and no thread. `admission` decides which connections
//! may be open, so that no client can keep others out.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::TcpStream;
//!
//! use longhaul_server::{Config, Server};
//!
//! let dir = tempfile::tempdir()?;
//! std::fs::write(dir.path().join("set.bin"), "data")?;
//! let server = Server::bind(Config::new(dir.path(), "127.0.0.1:0".parse()?))?;
//! let (mut client, stopper) = (TcpStream::connect(server.addresses()[0])?, server.stopper());
//! let runtime = tokio::runtime::Runtime::new()?;
//! let running = runtime.spawn(server.run());
//!
//! client.write_all(b"GET /set.bin HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
//! let mut reply = String::new();
//! client.read_to_string(&mut reply)?;
//! assert!(reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.ends_with("\r\n\r\ndata"));
//!
//! // Replies in progress finish within the grace; here, none is in progress.
//! drop(client);
//! stopper.finish();
//! assert_eq!(runtime.block_on(running)??.cut, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod access;
mod admission;
mod config;
mod connection;
mod context;
mod error;
mod listen;
mod measurement;
mod pacing;
mod paths;
mod reply;
mod sandbox;
mod server;
mod shutdown;
mod stats;
mod tls;
mod upload;

pub use access::{Token, Tokens, WIDE_MODE};
pub use config::{
    AccessConfig, Config, ConnectionLimits, FilesConfig, Limits, ListingLimits, MeasureConfig, PacingConfig,
    Timeouts, TlsFiles, UploadLimits,
};
pub use sandbox::{Confined, Confinement, drop_capabilities, forbid_new_privileges, with_file_capabilities};
pub use server::{Server, ServerOutcome};
pub use shutdown::Stopper;
pub use stats::telemetry::Telemetry;
