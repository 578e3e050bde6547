//! Longhaul's engine: bytes move here and nowhere else.
//!
//! ```text
//!  network -> disk   engine -> job -> streams -> source -> transfer -> sink
//!  disk -> network   upload (put), or a server -> send -> socket, paced by pacing
//!  disk -> disk      copy -> sink
//! ```
//!
//! [`engine::Engine`] runs [`job::Job`]s: each is one file from its URLs to its final name. A
//! source (trait in [`source`]; HTTP is one protocol) has streams; each stream leases ranges and
//! receives them into segments of the [`sink`], which writes them. Modules depend only on modules
//! to their right, except for what an engine shares with its jobs.
//!
//! The engine does not depend on a recorder: events go to a
//! [`JobObserver`](longhaul_core::event::JobObserver).
//!
//! ```
//! use longhaul_engine::engine::Engine;
//! use longhaul_engine::sink::memory_budget::AppBuffer;
//!
//! // One per process: its jobs share connections and 64 MiB of memory, more while a disk stalls.
//! let engine = Engine::new(AppBuffer::Auto);
//! # drop(engine);
//! ```

pub mod cancel;
pub mod connect;
pub mod copy;
pub mod delivery_meter;
mod delivery_stall;
pub mod digest;
pub mod engine;
pub mod input_file;
pub mod job;
mod job_cpu;
mod known_paths;
mod limit_watch;
mod open_sockets;
pub mod pacing;
pub mod path_memory;
pub mod pem;
pub mod pending_steps;
pub mod probe;
pub mod rate_limit;
mod retry_loop;
pub mod sampling;
pub mod send;
pub mod sink;
pub mod source;
mod streams;
mod sustained_rate;
pub mod telemetry;
mod threads;
mod transfer;
pub mod tree;
pub mod tree_digest;
pub mod upload;
pub mod user_state;
pub mod verify;
