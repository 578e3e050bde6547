//! Network to disk, after the socket: segments from a bounded ring, writers, a journal.
//!
//! ```text
//! socket buffer --read--> segment --queue--> writer threads --> direct | mmap | buffered --> part file
//!                 ^ ring (bounded) <-- freed ----'                    '-> committed ranges --> journal
//! ```
//!
//! [`pipeline`] is the whole of it; `get` and the server's uploads both use it.

pub mod checkpoint;
pub mod directory;
pub mod journal;
pub mod output;
pub mod output_error;
pub mod pages;
pub mod part_file;
pub mod part_names;
pub mod pipeline;
pub mod pool;
pub mod ring;
pub mod writer;
