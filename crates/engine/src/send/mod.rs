//! Disk -> network: moves file bytes into sockets.
//!
//! ```text
//!   page cache --------- sendfile ------------------------> socket buffer --> paced by the kernel --> path
//!   device --O_DIRECT--> ring of blocks --send(2)-------->        ^
//!   either ------------> copied, only where TLS encrypts ---------'
//! ```
//!
//! An [`Outgoing`] is a queue of texts and file ranges. [`Outgoing::turn`] moves some of it into a
//! plain socket, blocking or not; [`Outgoing::fill`] copies the next bytes for encryption. A
//! [`Supply`] does both for one file, with the [`Reader`] as source.

mod cache_or_direct;
mod outgoing;
mod read_ahead;
pub(crate) mod source_file;
mod supply;

use std::io;

use longhaul_core::failure::Failure;
use thiserror::Error;

pub use cache_or_direct::{Reader, ReaderChoice};
pub use outgoing::{Outgoing, Piece, TURN, Turn};
pub use read_ahead::{ReadAhead, RingUsage};
pub use source_file::SourceFile;
pub use supply::Supply;

/// The reason why sending ended early. The connection must be closed, because the peer expects more
/// bytes.
#[derive(Debug, Error)]
pub enum SendError {
    /// The socket failed.
    #[error("sending failed: {0}")]
    Socket(#[source] io::Error),
    /// The file could not be read, or changed during sending: continuing would mix two versions.
    #[error(transparent)]
    Source(#[from] Failure),
}
