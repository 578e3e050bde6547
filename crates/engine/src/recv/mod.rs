//! Network to disk, after the socket: segments from a bounded pool, a writer, a journal.
//!
//! ```text
//! socket buffer --read--> segment --channel--> writer threads --> direct | mmap | buffered --> file
//!                 ^ pool (bounded) <--- freed ---'                      '-> committed ranges --> journal
//! ```

pub mod checkpoint;
pub mod journal;
pub mod part_file;
pub mod pool;
pub mod writer;
