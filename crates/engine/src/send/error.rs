//! Why sending ended early.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why sending ended early. The peer must see the connection end: it was promised more bytes.
#[derive(Debug, Error)]
pub enum SendError {
    /// The socket took no more.
    #[error("sending failed: {0}")]
    Socket(#[source] io::Error),
    /// The file could not be read.
    #[error("reading {path} to send it failed: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file is no longer the one that sending began with: the reply would mix two versions.
    #[error("{path} changed while being sent; replace files by renaming, never write into them", path = path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
}
