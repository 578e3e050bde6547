//! What it means that a file did not get to its place, by `get` or by `put`.

use crate::source::http::ErrorKind;

/// The class of an error, for exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// As the HTTP client classifies it.
    Http(ErrorKind),
    /// The output cannot be created.
    CannotCreate,
    /// The disk failed: it is full, or cannot be read or written.
    Disk,
    /// The data is not what it should be.
    Data,
    /// Temporary: run again.
    Temporary,
    /// This host lacks memory or threads.
    Host,
    /// A defect of longhaul: a thread panicked.
    Internal,
    /// The user stopped it.
    Interrupted,
}
