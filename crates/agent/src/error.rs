//! Why the agent cannot start, or cannot do what it is asked.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::database::DatabaseError;

/// Why the agent cannot run.
#[derive(Debug, Error)]
pub enum AgentError {
    /// Another one runs.
    #[error("another agent is running{}: use longhaul queue, or stop that one first", .pid.map_or_else(String::new, |pid| format!(" (process {pid})")))]
    Running {
        /// Its process, where that is known.
        pid: Option<u32>,
    },
    /// The environment names no place for its files.
    #[error("no place for the queue: set HOME or XDG_STATE_HOME to an absolute path")]
    NoHome,
    /// A file or directory.
    #[error("cannot {operation} {}: {source}", .path.display())]
    File {
        /// What was tried.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// The address for the dashboard.
    #[error("cannot listen on {address}: {source}; choose another with --listen")]
    Listen {
        /// The address.
        address: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// The address lets other hosts connect.
    #[error(
        "{0} is not a loopback address: the agent serves this host alone; use an SSH tunnel from another"
    )]
    NotLoopback(std::net::SocketAddr),
    /// The queue.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// A thread.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

impl AgentError {
    pub(crate) fn file(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File { operation, path: path.to_owned(), source }
    }

    /// Returns the exit code after sysexits(3).
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Running { .. } => 75,
            Self::NoHome | Self::NotLoopback(_) => 78,
            Self::File { .. } => 73,
            Self::Listen { .. } => 69,
            Self::Database(DatabaseError::Newer { .. }) => 78,
            Self::Database(_) => 74,
            Self::Thread(_) => 71,
        }
    }
}

/// Why a request to the queue is refused.
#[derive(Debug, Error)]
pub enum QueueError {
    /// There is no such transfer.
    #[error("there is no transfer {0}")]
    NotFound(i64),
    /// The transfer's state does not allow it.
    #[error("transfer {id} is {state}: it cannot be {wanted}")]
    WrongState {
        /// The transfer.
        id: i64,
        /// Its state.
        state: crate::transfer::TransferState,
        /// What was asked for, as a participle.
        wanted: &'static str,
    },
    /// The request cannot be carried out as it is.
    #[error("{0}")]
    Invalid(String),
    /// The queue's file.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}
