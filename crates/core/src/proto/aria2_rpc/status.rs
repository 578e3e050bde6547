//! The status of transfers, with numbers as strings, as in aria2's manual.

use serde::Serialize;
use serde_json::{Value, json};

use super::Gid;
use crate::units::{Bytes, Rate};

/// A transfer's state, with aria2's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Running.
    Active,
    /// In the queue.
    Waiting,
    /// Paused.
    Paused,
    /// Ended by an error.
    Error,
    /// Complete.
    Complete,
    /// Cancelled.
    Removed,
}

/// The requested keys; all if empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keys(Vec<String>);

impl Keys {
    /// Creates the set from a client's list.
    pub fn of(keys: Vec<String>) -> Self {
        Self(keys)
    }

    fn filter(&self, mut status: Value) -> Value {
        if let Some(fields) = status.as_object_mut().filter(|_| !self.0.is_empty()) {
            fields.retain(|key, _| self.0.contains(key));
        }
        status
    }
}

/// The status reported by `aria2.tellStatus`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferStatus {
    /// The identifier of the transfer.
    pub gid: Gid,
    /// The state of the transfer.
    pub state: State,
    /// Whether the transfer is an upload.
    pub is_upload: bool,
    /// The current rate.
    pub speed: Rate,
    /// Open connections.
    pub connections: usize,
    /// The error of a failed transfer: aria2's exit status, and the message.
    pub error: Option<(u8, String)>,
    /// The directory of the file.
    pub dir: String,
    /// The file.
    pub file: FileStatus,
}

/// The one file of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStatus {
    /// The path; empty if not yet determined.
    pub path: String,
    /// The size; zero if unknown.
    pub total: Bytes,
    /// The bytes present.
    pub completed: Bytes,
    /// The URLs, without secrets.
    pub uris: Vec<String>,
}

/// The reported piece length: aria2's default (`--piece-length=1M`). Longhaul's ranges have no
/// fixed length.
const PIECE_LENGTH: u64 = 1 << 20;

impl TransferStatus {
    /// Returns the status object, limited to `keys`.
    pub fn to_json(&self, keys: &Keys) -> Value {
        let speed = self.speed.as_bytes_per_sec();
        let ((down, up), uploaded) =
            if self.is_upload { ((0, speed), self.file.completed) } else { ((speed, 0), Bytes::ZERO) };
        let mut status = json!({
            "gid": self.gid.to_string(),
            "status": self.state,
            "totalLength": self.file.total.get().to_string(),
            "completedLength": self.file.completed.get().to_string(),
            "uploadLength": uploaded.get().to_string(),
            "downloadSpeed": down.to_string(),
            "uploadSpeed": up.to_string(),
            "connections": self.connections.to_string(),
            "pieceLength": PIECE_LENGTH.to_string(),
            "numPieces": self.file.total.get().div_ceil(PIECE_LENGTH).to_string(),
            "dir": self.dir,
            "files": self.files(),
        });
        match &self.error {
            Some((code, message)) => {
                status["errorCode"] = json!(code.to_string());
                status["errorMessage"] = json!(message);
            }
            None if self.state == State::Complete => status["errorCode"] = json!("0"),
            None => {}
        }
        keys.filter(status)
    }

    /// Returns the result of `aria2.getFiles`: an array of one file.
    pub fn files(&self) -> Value {
        json!([{
            "index": "1",
            "path": self.file.path,
            "length": self.file.total.get().to_string(),
            "completedLength": self.file.completed.get().to_string(),
            "selected": "true",
            "uris": uris(&self.file.uris),
        }])
    }

    /// Returns the result of `aria2.getServers`: of a running transfer, each URL as a server of the
    /// one file.
    pub fn servers(&self) -> Value {
        let speed = self.speed.as_bytes_per_sec().to_string();
        let server = |uri: &String| json!({"uri": uri, "currentUri": uri, "downloadSpeed": speed});
        json!([{"index": "1", "servers": self.file.uris.iter().map(server).collect::<Vec<_>>()}])
    }
}

/// Returns the result of `aria2.getUris`.
pub fn uris(uris: &[String]) -> Value {
    uris.iter().map(|uri| json!({"uri": uri, "status": "used"})).collect()
}

/// The totals reported by `aria2.getGlobalStat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GlobalStat {
    /// The total rate of downloads.
    pub download: Rate,
    /// The total rate of uploads.
    pub upload: Rate,
    /// Running transfers.
    pub active: usize,
    /// Waiting and paused transfers.
    pub waiting: usize,
    /// Ended transfers.
    pub stopped: usize,
}

impl GlobalStat {
    /// Returns the object of totals.
    pub fn to_json(self) -> Value {
        json!({
            "downloadSpeed": self.download.as_bytes_per_sec().to_string(),
            "uploadSpeed": self.upload.as_bytes_per_sec().to_string(),
            "numActive": self.active.to_string(),
            "numWaiting": self.waiting.to_string(),
            "numStopped": self.stopped.to_string(),
            "numStoppedTotal": self.stopped.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(state: State) -> TransferStatus {
        TransferStatus {
            gid: Gid::new(3),
            state,
            is_upload: false,
            speed: Rate::bytes_per_sec(500),
            connections: 2,
            error: None,
            dir: "/d".to_owned(),
            file: FileStatus {
                path: "/d/f".to_owned(),
                total: Bytes::mib(3),
                completed: Bytes::mib(1),
                uris: vec!["http://a/f".to_owned()],
            },
        }
    }

    #[test]
    fn status_is_reported_as_strings_or_in_part() {
        let reported = status(State::Active).to_json(&Keys::default());
        let expected = json!({ "gid": "0000000000000003", "status": "active", "totalLength": "3145728",
            "completedLength": "1048576", "downloadSpeed": "500", "uploadSpeed": "0", "connections": "2",
            "numPieces": "3", "dir": "/d" });
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(&reported[key], value, "{key}");
        }
        assert_eq!(reported["files"][0]["uris"][0]["uri"], "http://a/f");
        assert_eq!(reported.get("errorCode"), None);
        assert_eq!(status(State::Active).servers()[0]["servers"][0]["downloadSpeed"], "500");
        let keys = Keys::of(vec!["gid".to_owned(), "status".to_owned(), "bittorrent".to_owned()]);
        let reported = status(State::Paused).to_json(&keys);
        assert_eq!(reported, json!({"gid": "0000000000000003", "status": "paused"}));
    }

    #[test]
    fn ended_transfers_have_a_code_and_uploads_their_rate() {
        assert_eq!(status(State::Complete).to_json(&Keys::default())["errorCode"], "0");
        let failed = TransferStatus { error: Some((13, "why".to_owned())), ..status(State::Error) };
        let reported = failed.to_json(&Keys::default());
        assert_eq!((&reported["errorCode"], &reported["errorMessage"]), (&json!("13"), &json!("why")));
        let sent = TransferStatus { is_upload: true, ..status(State::Active) }.to_json(&Keys::default());
        let fields = ["downloadSpeed", "uploadSpeed", "uploadLength"].map(|key| &sent[key]);
        assert_eq!(fields, ["0", "500", "1048576"]);
    }
}
