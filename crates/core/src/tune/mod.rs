//! Controllers: functions of what was observed, without I/O, clock or threads.

pub mod apt;
pub mod ceiling;
pub mod fairness;
pub mod pace;
pub mod ring;
pub mod streams;
mod train;
pub mod window;

/// Segments that a connection sends in its first round trip (RFC 6928).
pub const INITIAL_SEGMENTS: u64 = 10;

/// The most streams that a tuner is allowed; more only hurt, the server first.
pub const MOST_STREAMS: usize = 128;
