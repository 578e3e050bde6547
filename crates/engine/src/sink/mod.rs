//! Network to disk, after the socket: segments from a bounded pool, writers, a journal.
//!
//! ```text
//! socket buffer --read--> segment --queue--> writer threads --> direct | mmap | buffered --> part file
//!                 ^ segment pool <-- freed ------'                    '-> committed ranges --> journal
//!                 '-- memory budget of the process
//! ```
//!
//! [`pipeline`] connects these parts, for `get` and the server's uploads.

mod backlog;
pub mod checkpoint;
pub mod directory;
pub mod file_slice;
pub mod journal;
mod journal_file;
pub mod memory_budget;
pub mod origin_tag;
pub mod output;
pub mod output_claims;
pub mod output_error;
pub mod pages;
pub mod part_file;
pub mod part_names;
pub mod pipeline;
mod segment_arena;
pub mod segment_pool;
#[cfg(test)]
mod segment_pool_tests;
mod sync;
pub mod writer;
