//! Controllers: functions of observations and of the time argument, without I/O, clock or threads.

pub mod app_buffer;
pub mod apt;
pub mod doubling;
pub mod fairness;
mod held_rate;
pub mod pace;
pub mod receive_window;
pub mod stream_limit;
pub mod streams;

/// Segments that a connection sends in its first round trip (RFC 6928).
pub const INITIAL_SEGMENTS: u64 = 10;

/// The limit of streams for tuners; more streams load the server without a gain.
pub const MAX_STREAMS: usize = 128;
/// Maximum of connections that a user may ask for: more would overload the server.
pub const MAX_FIXED_STREAMS: usize = 256;
/// Maximum of concurrent files; each has its own threads and connections.
pub const MAX_PARALLEL_FILES: usize = 64;
