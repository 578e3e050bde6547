//! Transfers in the format of aria2.

use std::path::Path;

use longhaul_core::failure::FailureKind;
use longhaul_core::proto::aria2_rpc::{FileStatus, Gid, State, TransferStatus};
use longhaul_core::units::{Bytes, Rate};

use crate::queue::{ExitCodes, Queue};
use crate::transfer::{Transfer, TransferFailure, TransferKind, TransferState};

/// Returns aria2's name of the state.
///
/// A transfer that waits for a new link is reported as an error, because aria2 has no such state
/// and clients must not wait for it.
pub(super) fn state(state: TransferState) -> State {
    match state {
        TransferState::Running => State::Active,
        TransferState::Queued | TransferState::Scheduled => State::Waiting,
        TransferState::Paused => State::Paused,
        TransferState::Done => State::Complete,
        TransferState::Failed | TransferState::WaitingLink => State::Error,
        TransferState::Cancelled => State::Removed,
    }
}

pub(super) fn gid(transfer: &Transfer) -> Gid {
    transfer.gid.parse().unwrap_or_else(|()| Gid::new(transfer.id.unsigned_abs()))
}

/// Returns aria2's exit status of a failure (aria2's manual, "EXIT STATUS"); 1 is an unknown error.
fn error_code(failure: &TransferFailure, exit_code: ExitCodes) -> u8 {
    match FailureKind::ALL.into_iter().find(|kind| exit_code(*kind) == failure.exit_code) {
        _ if failure.file_exists => 13,
        Some(FailureKind::Data) => 32,
        Some(FailureKind::NotFound) => 3,
        Some(FailureKind::NoHost) => 19,
        Some(FailureKind::Unavailable | FailureKind::Temporary) => 6,
        Some(FailureKind::CannotCreate) => 16,
        Some(FailureKind::Disk) => 17,
        Some(FailureKind::Protocol) => 22,
        Some(FailureKind::Denied) => 24,
        _ => 1,
    }
}

/// Returns the status.
pub(super) fn status(queue: &Queue, transfer: &Transfer) -> TransferStatus {
    let state = state(transfer.state);
    let is_running = state == State::Active;
    let (ends, progress) = (&transfer.ends, &transfer.progress);
    let path = Path::new(&ends.path);
    // Until the server names the file, the path is a directory.
    let (directory, file) = match ends.path.ends_with('/') {
        true => (path.to_owned(), path.join(&ends.name)),
        false => (path.parent().unwrap_or(path).to_owned(), path.to_owned()),
    };
    TransferStatus {
        gid: gid(transfer),
        state,
        is_upload: transfer.kind == TransferKind::Put,
        speed: Rate::bits_per_sec(if is_running { progress.run.goodput_bps } else { 0 }),
        connections: if is_running { progress.run.streams } else { 0 },
        error: (transfer.error.as_ref().filter(|_| state == State::Error))
            .map(|error| (error_code(error, queue.exit_code), error.message.clone())),
        dir: directory.display().to_string().trim_end_matches('/').to_owned(),
        file: FileStatus {
            path: file.display().to_string(),
            total: Bytes::new(progress.size.unwrap_or(0)),
            completed: Bytes::new(progress.bytes),
            uris: ends.urls.clone(),
        },
    }
}
