//! Errors of sending.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// The reason why sending ended early. The connection must be closed, because the peer expects more
/// bytes.
#[derive(Debug, Error)]
pub enum SendError {
    /// The socket failed.
    #[error("sending failed: {0}")]
    Socket(#[source] io::Error),
    /// The file could not be read.
    #[error("reading {path} to send it failed: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file changed during sending: continuing would mix two versions.
    #[error("{path} changed while being sent; replace files by renaming, never write into them", path = path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
}
