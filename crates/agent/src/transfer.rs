//! A transfer as shown by the API, without secrets.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The state of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TransferState {
    /// Waiting for its turn.
    Queued,
    /// Moving bytes.
    Running,
    /// Stopped by the user; fetched bytes are kept.
    Paused,
    /// The server refuses the link: a new one is needed; fetched bytes are kept.
    WaitingLink,
    /// Complete, and verified if a checksum was given.
    Done,
    /// Ended by an error.
    Failed,
    /// Cancelled by the user.
    Cancelled,
    /// Waiting for a time: the requested one, or that of the next retry.
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

    /// Returns the name, which is also the serialised form.
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

    /// Returns whether the transfer has ended, and can only be retried.
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

/// The direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TransferKind {
    /// A file from a server.
    #[default]
    Get,
    /// A file to a server.
    Put,
    /// A directory with everything below it, in either direction.
    Tree,
    /// A worker of a plan, whose units any number of transfers execute together.
    Plan,
}

impl TransferKind {
    /// Returns the name, which is also the serialised form.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::Tree => "tree",
            Self::Plan => "plan",
        }
    }
}

/// The failure of a transfer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TransferFailure {
    /// The operation, the address or path, and a remedy.
    pub message: String,
    /// The exit code of an equivalent `longhaul get`, after sysexits(3).
    pub exit_code: u8,
    /// Whether a file of the name exists, and the request permits neither another name nor its
    /// replacement.
    #[serde(default)]
    pub file_exists: bool,
}

/// The units of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanUnits {
    /// The units that this worker has done.
    pub done: u32,
    /// All units of the plan.
    pub total: u32,
}

/// The measurements of the last or current run; unknown values are null.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct RunFacts {
    /// The current rate of a running transfer, else the mean of the last run, in bits per second.
    pub goodput_bps: u64,
    /// The duration of all runs together, in seconds.
    pub seconds: f64,
    /// The number of connections.
    pub streams: usize,
    /// Retransmitted segments; for a download, segments received out of order.
    pub retransmits: u64,
    /// The smoothed RTT in seconds.
    pub rtt: Option<f64>,
    /// The limit of the transfer, such as `receive-window`.
    pub limited_by: Option<String>,
    /// Evidence and remedy, one sentence each.
    pub advice: Vec<String>,
    /// The limit of the transfer as a sentence.
    pub explanation: String,
    /// The file's digest, such as `sha256:..`.
    pub digest: Option<String>,
    /// The units, of a worker of a plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub units: Option<PlanUnits>,
}

/// The place of a transfer in the queue: higher priorities first, among equal ones lower positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueuePlace {
    /// The position among transfers of equal priority; lower ones run sooner.
    pub position: i64,
    /// Transfers of higher priority run sooner.
    pub priority: i64,
}

/// The ends of a transfer, as shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ShownEnds {
    /// The URLs, without logins and queries.
    pub urls: Vec<String>,
    /// The local file or directory, if known; that of a plan.
    pub path: String,
    /// The displayed name.
    pub name: String,
}

/// How far a transfer is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FileProgress {
    /// The size in bytes; of a plan, that of all units.
    pub size: Option<u64>,
    /// The bytes present; of a plan, those that this worker has received in its last or current
    /// run.
    pub bytes: u64,
    /// The measurements of the last or current run.
    #[serde(flatten)]
    pub run: RunFacts,
    /// The estimated remaining time in seconds.
    pub eta: Option<f64>,
}

/// The times of a transfer, in seconds since 1970.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TransferTimes {
    /// The time of addition, in seconds since 1970.
    pub added: i64,
    /// The time of the first run, in seconds since 1970.
    pub started: Option<i64>,
    /// The end time, in seconds since 1970.
    pub ended: Option<i64>,
}

/// The conditions of the next or current run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunConditions {
    /// The scheduled time, in seconds since 1970.
    pub at: Option<i64>,
    /// The page that contains the link.
    pub page_url: Option<String>,
    /// The rate limit of the transfer, in bits per second.
    pub limit_bps: Option<u64>,
    /// The host of a farm that runs the transfer, or has run it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// A transfer: in JSON one flat object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Transfer {
    /// The number, unique for ever.
    pub id: i64,
    /// The identifier for aria2's clients: 16 hexadecimal digits.
    #[serde(default)]
    pub gid: String,
    /// The direction of the transfer.
    pub kind: TransferKind,
    /// The state.
    pub state: TransferState,
    /// The place in the queue.
    #[serde(flatten)]
    pub place: QueuePlace,
    /// The URLs and the file.
    #[serde(flatten)]
    pub ends: ShownEnds,
    /// The bytes and measurements.
    #[serde(flatten)]
    pub progress: FileProgress,
    /// The last failure.
    pub error: Option<TransferFailure>,
    /// The times of addition, start and end.
    #[serde(flatten)]
    pub times: TransferTimes,
    /// When, how fast and where it runs.
    #[serde(flatten)]
    pub conditions: RunConditions,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfer_is_one_flat_object() {
        let json = concat!(
            r#"{"id":7,"gid":"0000000000000007","kind":"put","state":"waiting-link","position":1,"priority":2,"urls":["u"],"#,
            r#""path":"/p","name":"n","size":9,"bytes":8,"goodput_bps":3,"seconds":1.5,"streams":4,"retransmits":5,"rtt":0.25,"#,
            r#""limited_by":"disk","advice":["a"],"explanation":"e","digest":null,"eta":2.5,"#,
            r#""error":{"message":"m","exit_code":69,"file_exists":false},"added":1,"started":2,"ended":null,"at":3,"#,
            r#""page_url":null,"limit_bps":8,"host":"h"}"#,
        );
        let transfer: Transfer = serde_json::from_str(json).unwrap();
        assert_eq!(crate::json(&transfer), json);
        // An agent of an earlier version sends fewer fields.
        let early: Transfer =
            serde_json::from_str(&json.replace(r#","host":"h""#, "").replace(r#""rtt":0.25,"#, "")).unwrap();
        assert_eq!((early.conditions.host, early.progress.run.rtt), (None, None));
    }
}
