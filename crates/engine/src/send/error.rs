//! Errors of sending.

use std::io;

use longhaul_core::failure::Failure;
use thiserror::Error;

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
