//! Disk -> network: what a sender does with bytes that leave this host.
//!
//! ```text
//!   file --(page cache)--> sendfile --> socket buffer --> paced by the kernel --> path
//!     \                                     ^
//!      `--> copied, only where TLS encrypts --'
//! ```
//!
//! An [`Outgoing`] is a queue of texts and file ranges. [`Outgoing::turn`] moves some of it into a
//! plain socket, blocking or not; [`Outgoing::fill`] copies the next bytes for whoever encrypts them.

mod error;
mod outgoing;
mod source_file;

pub use error::SendError;
pub use outgoing::{Outgoing, Piece, TURN, Turn};
pub use source_file::SourceFile;
