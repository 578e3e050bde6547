//! Longhaul's engine: bytes move here and nowhere else.
//!
//! Network to disk is [`source`] -> [`sink`], wired by [`transfer`]; disk to network is [`send`], by a client in [`upload`].
//! The engine knows no recorder: what happens is told to an `Observer`.

pub mod cancel;
pub mod delivery_meter;
pub mod digest;
pub mod engine;
pub mod failure;
pub mod job;
mod job_cpu;
mod open_sockets;
pub mod pacing;
pub mod path_memory;
pub mod rate_limit;
pub mod send;
pub mod sink;
pub mod source;
mod streams;
mod sustained_rate;
pub mod telemetry;
mod threads;
mod transfer;
pub mod upload;
