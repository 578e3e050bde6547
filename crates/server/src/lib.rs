//! Longhaul's HTTP server: serves the files of one directory over HTTP/1.1 and HTTPS, paced to the path's rate.
//!
//! ```text
//!   listen -> accept -> http_connection (one task each) -> access -> routes -> static_files -> reply
//!                |               |                                       |
//!        connection_limit        |                                root (openat2: never above DIR)
//!                                |-> transport -> engine::send: file -> sendfile -> socket
//!                                '-> upload <- socket: engine::sink::pipeline -> file (writable servers)
//! ```
//!
//! Tasks wait for sockets, and send small files that are in memory. Threads, a bounded number for each file system (`disks`), open all
//! others and run sendfile, which may wait for the disk. `confinement` takes capabilities, and all files but those served, from every
//! thread. `connection_stats` counts connections and replies for an observer and `/metrics`.
//! An idle connection costs a task of a few kilobytes and no thread. `admission` decides which connections may be open, so that no
//! client can keep others out.

mod accept;
mod access;
mod access_log;
mod admission;
mod client_paths;
mod config;
mod confinement;
mod connection_limit;
mod connection_stats;
mod context;
mod continuation;
mod directory_json;
mod directory_listing;
mod directory_page;
mod disks;
mod error;
mod file_reply;
mod file_state;
mod http_connection;
mod initial_window_pacing;
mod initial_window_routes;
mod listen;
mod measurement;
mod metrics;
mod mount_table;
mod next_request;
mod open_files;
mod piece_digests;
mod reply;
mod reply_pacing;
mod root;
mod routes;
mod sendfile;
mod server;
mod server_phase;
mod shares;
mod stall_detector;
mod static_files;
mod targets;
mod tcp_totals;
mod telemetry;
mod tls;
mod tls_sender;
mod transport;
mod upload;

pub use access::{Token, TokenError, Tokens, WIDE_MODE};
pub use config::{
    AccessConfig, Config, ConnectionLimits, FilesConfig, Limits, ListingLimits, MeasureConfig, PacingConfig,
    Timeouts, TlsFiles, UploadLimits,
};
pub use confinement::{
    Confined, Confinement, drop_capabilities, forbid_new_privileges, with_file_capabilities,
};
pub use error::ServeError;
pub use server::{Server, ServerOutcome};
pub use server_phase::Stopper;
pub use telemetry::Telemetry;
