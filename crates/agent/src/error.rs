//! Errors of starting the agent, and of its operations.

use std::io;
use std::path::{Path, PathBuf};

use longhaul_core::failure::FailureKind;
use thiserror::Error;

pub use crate::database::{DatabaseError, FarmDatabaseError, StoreError};

/// The reason why the agent cannot run.
#[derive(Debug, Error)]
pub enum AgentError {
    /// Another agent is running.
    #[error("another agent is running{}: use longhaul queue, or stop that one first", .pid.map_or_else(String::new, |pid| format!(" (process {pid})")))]
    Running {
        /// The agent's process id, if known.
        pid: Option<u32>,
    },
    /// The environment defines no directory for the agent's files.
    #[error("no place for the queue: set HOME or XDG_STATE_HOME to an absolute path")]
    NoHome,
    /// A file or directory cannot be used.
    #[error("cannot {operation} {}: {source}", .path.display())]
    File {
        /// The operation.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The dashboard's address cannot be used.
    #[error("cannot listen on {address}: {source}; choose another with --listen")]
    Listen {
        /// The address.
        address: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The address is reachable from other hosts.
    #[error(
        "{0} is not a loopback address: the agent serves this host alone; use an SSH tunnel from another"
    )]
    NotLoopback(std::net::SocketAddr),
    /// The queue's database failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The agent cannot be in the farm.
    #[error("cannot use the farm: {0}")]
    Farm(FarmDatabaseError),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

impl AgentError {
    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Running { .. } => FailureKind::Temporary,
            Self::NoHome | Self::NotLoopback(_) | Self::Database(DatabaseError::Newer { .. }) => {
                FailureKind::Config
            }
            Self::File { .. } => FailureKind::CannotCreate,
            Self::Listen { .. } => FailureKind::Unavailable,
            Self::Farm(error) => error.kind(),
            Self::Database(error) => error.farm().map_or(FailureKind::Disk, FarmDatabaseError::kind),
            Self::Thread(_) => FailureKind::Host,
        }
    }

    pub(crate) fn file(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File { operation, path: path.to_owned(), source }
    }
}

/// The reason why a request to the queue is refused.
#[derive(Debug, Error)]
pub enum QueueError {
    /// The transfer does not exist.
    #[error("there is no transfer {0}")]
    NotFound(i64),
    /// The transfer's state does not permit the operation.
    #[error("transfer {id} is {state}: it cannot be {wanted}")]
    WrongState {
        /// The transfer.
        id: i64,
        /// The state of the transfer.
        state: crate::transfer::TransferState,
        /// The requested operation, as a participle.
        wanted: &'static str,
    },
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The partial file of a transfer cannot be removed.
    #[error("cannot remove the partial file: {0}")]
    PartialFile(String),
    /// The client may not request this.
    #[error("{0}")]
    Forbidden(String),
    /// The database of the farm failed within a long list.
    #[error(
        "{source}; the first {added} transfers of the request are added: look at the list before you add the others"
    )]
    PartlyAdded {
        /// The number of added transfers.
        added: usize,
        /// The error of the next one.
        source: Box<QueueError>,
    },
    /// A browser's offer is refused.
    #[error("the browser goes on by itself: {0}")]
    Refused(String),
    /// The queue's database failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}
