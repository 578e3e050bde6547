//! A transfer as the API shows it: nothing in it is secret.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What becomes of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TransferState {
    /// Waits for its turn.
    Queued,
    /// Moves bytes.
    Running,
    /// Stopped by the user; what is there is kept.
    Paused,
    /// The server no longer takes the link: a fresh one is needed, and what is there is kept.
    WaitingLink,
    /// Complete and, where a checksum was given, verified.
    Done,
    /// Ended by an error.
    Failed,
    /// Given up by the user.
    Cancelled,
    /// Waits for a time: the one it was given, or that of its next try.
    Scheduled,
}

impl TransferState {
    /// All states.
    pub const ALL: [Self; 8] = [
        Self::Queued,
        Self::Running,
        Self::Paused,
        Self::WaitingLink,
        Self::Done,
        Self::Failed,
        Self::Cancelled,
        Self::Scheduled,
    ];

    /// Returns the name, which is also the serialised one.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::WaitingLink => "waiting-link",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Scheduled => "scheduled",
        }
    }

    /// Returns whether nothing more happens by itself or by the user's resuming.
    pub const fn is_ended(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

impl fmt::Display for TransferState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for TransferState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|state| state.name() == text);
        known.ok_or_else(|| format!("'{text}' is no state of a transfer"))
    }
}

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TransferKind {
    /// A file from a server.
    #[default]
    Get,
    /// A file to a server.
    Put,
    /// A directory with all below it, either way.
    Tree,
}

impl TransferKind {
    /// Returns the name, which is also the serialised one.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::Tree => "tree",
        }
    }
}

/// Why a transfer failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TransferFailure {
    /// The operation, the address or path, and what to do.
    pub message: String,
    /// The code that `longhaul get` would exit with, after sysexits(3).
    pub exit_code: u8,
}

/// How the last or present run went; a value that is not known is null.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct RunFacts {
    /// The present rate of a running transfer, else the mean of the last run, in bits per second.
    pub goodput_bps: u64,
    /// How long transferring has taken, all runs together, in seconds.
    pub seconds: f64,
    /// Connections.
    pub streams: usize,
    /// Segments sent again; of a fetch those that arrived out of order.
    pub retransmits: u64,
    /// The smoothed RTT in seconds.
    pub rtt: Option<f64>,
    /// What limits the transfer, as in `receive-window`.
    pub limited_by: Option<String>,
    /// Evidence and remedy, a sentence each.
    pub advice: Vec<String>,
    /// What limits the transfer as a sentence.
    pub explanation: String,
    /// The file's digest, as in `sha256:..`.
    pub digest: Option<String>,
}

/// A transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Transfer {
    /// Its number, which no other transfer ever gets.
    pub id: i64,
    /// Which way the bytes go.
    pub kind: TransferKind,
    /// What becomes of it.
    pub state: TransferState,
    /// Its place among those of its priority; the lower, the sooner.
    pub position: i64,
    /// The higher, the sooner it runs.
    pub priority: i64,
    /// The URLs, without logins and queries.
    pub urls: Vec<String>,
    /// The file or directory on this host, where that is known.
    pub path: String,
    /// What to call it.
    pub name: String,
    /// Its size in bytes.
    pub size: Option<u64>,
    /// How much of it is there, in bytes.
    pub bytes: u64,
    /// How the last or present run went.
    #[serde(flatten)]
    pub run: RunFacts,
    /// How long it will take, in seconds.
    pub eta: Option<f64>,
    /// Why it failed, or last failed.
    pub error: Option<TransferFailure>,
    /// When it was added, in seconds since 1970.
    pub added: i64,
    /// When it first ran.
    pub started: Option<i64>,
    /// When it ended.
    pub ended: Option<i64>,
    /// When it is to run, where it waits for a time.
    pub at: Option<i64>,
    /// The page that the link was on.
    pub page_url: Option<String>,
    /// Its own ceiling, in bits per second.
    pub limit_bps: Option<u64>,
}
