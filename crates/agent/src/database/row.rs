//! A transfer in the database.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rusqlite::types::Value;
use serde::de::{DeserializeOwned, IntoDeserializer};

use super::column::clamped;
use super::lease::host_of;
use super::{ResultRow, StoreError};
use crate::json;
use crate::request::TransferRequest;
use crate::transfer::{
    FileProgress, QueuePlace, RunConditions, ShownEnds, Transfer, TransferFailure, TransferState,
    TransferTimes,
};

/// A transfer to add.
#[derive(Debug, Clone)]
pub(crate) struct NewTransfer {
    pub(crate) key: Option<String>,
    /// The identifier that an aria2 client has chosen; by default the transfer's number.
    pub(crate) gid: Option<u64>,
    pub(crate) state: TransferState,
    pub(crate) request: TransferRequest,
    pub(crate) sealed: Vec<u8>,
    /// Whether a browser offers it: it must be accepted to survive this process.
    pub(crate) offered: bool,
}

/// The identity of the file that a run writes, and its final path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartIdentity {
    pub(crate) target: PathBuf,
    pub(crate) device: i64,
    pub(crate) inode: i64,
    /// The creation time in nanoseconds since 1970, if the file system stores it: an inode number
    /// may be reused.
    pub(crate) born: Option<i64>,
}

impl PartIdentity {
    /// Reads the identity of the file at `path`, whose final path is `target`.
    pub(crate) fn of(path: &Path, target: &Path) -> std::io::Result<Self> {
        let meta = std::fs::symlink_metadata(path)?;
        let born = meta.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Ok(Self {
            target: target.to_owned(),
            device: meta.dev().cast_signed(),
            inode: meta.ino().cast_signed(),
            born: born.and_then(|born| i64::try_from(born.as_nanos()).ok()),
        })
    }

    /// Returns whether the file has this name. The engine gives the final one only to a complete
    /// and verified file.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        Self::of(path, &self.target).is_ok_and(|there| there == *self)
    }

    /// Returns whether the file has this name, as another host of a shared file system may have
    /// seen it.
    fn is_at_on_any_host(&self, path: &Path) -> bool {
        Self::of(path, &self.target).is_ok_and(|there| self.may_be_on_another_host(&there))
    }

    /// Returns whether both may be one file of a shared file system: the hosts number the device
    /// differently, and one of them may not have its creation time.
    fn may_be_on_another_host(&self, there: &Self) -> bool {
        let is_as_old = self.born.zip(there.born).is_none_or(|(born, other)| born == other);
        self.target == there.target && self.inode == there.inode && is_as_old
    }
}

/// The result of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunEnd {
    pub(crate) progress: FileProgress,
    pub(crate) path: Option<String>,
    pub(crate) error: Option<TransferFailure>,
    pub(crate) retry_at: Option<i64>,
    /// The failures in a row.
    pub(crate) attempts: u32,
    /// The retries in a row because another run held the file.
    pub(crate) busy_retries: u32,
    /// The lease of the run: an end of an earlier one changes nothing.
    pub(crate) epoch: i64,
}

/// A stored transfer.
#[derive(Debug, Clone)]
pub(crate) struct TransferRow {
    pub(crate) transfer: Transfer,
    pub(crate) retry_at: Option<i64>,
    /// The failures in a row.
    pub(crate) attempts: u32,
    /// The retries in a row because another run held the file.
    pub(crate) busy_retries: u32,
    /// The number of the transfer's leases.
    pub(crate) epoch: i64,
    pub(crate) part: Option<PartIdentity>,
}

/// The columns that [`TransferRow::read`] reads.
pub(super) const COLUMNS: &str = "id, gid, kind, state, priority, position, urls, name, path, page_url, limit_bps, size, bytes, run, \
    error, at, retry_at, attempts, busy_retries, added, started, ended, owner, epoch, part_target, part_device, part_inode, part_born";

/// Reads a value stored as JSON.
fn of_json<T: DeserializeOwned>(row: &ResultRow<'_>, column: &str) -> Result<T, StoreError> {
    let text: Option<String> = row.get(column)?;
    serde_json::from_str(text.as_deref().unwrap_or("null"))
        .map_err(|error| StoreError::unreadable(column, error))
}

/// Reads a value stored as its name.
fn of_name<T: DeserializeOwned>(row: &ResultRow<'_>, column: &str) -> Result<T, StoreError> {
    T::deserialize(row.get::<String>(column)?.into_deserializer())
        .map_err(|error: serde::de::value::Error| StoreError::unreadable(column, error))
}

/// Reads a row unless another version of the program has written it.
pub(super) fn readable(row: &ResultRow<'_>) -> Option<TransferRow> {
    let row = TransferRow::read(row);
    row.inspect_err(|error| tracing::debug!("a transfer of another version is passed over: {error:?}")).ok()
}

impl NewTransfer {
    /// Returns the columns of the transfer at a position, with their names.
    pub(super) fn columns(&self, position: i64, now: i64) -> [(&'static str, Value); 15] {
        let request = &self.request;
        [
            ("key", self.key.clone().into()),
            ("gid", self.gid.map(u64::cast_signed).into()),
            ("kind", request.kind.name().to_owned().into()),
            ("state", self.state.name().to_owned().into()),
            ("priority", request.queue.priority.into()),
            ("position", position.into()),
            ("request", self.sealed.clone().into()),
            // In clear is stored only what is no secret.
            ("urls", json(&request.shown_urls()).into()),
            ("name", request.shown_name().into()),
            ("path", request.shown_path().into()),
            ("page_url", request.shown_page().into()),
            ("limit_bps", request.tuning.limit_bps.map(clamped).into()),
            ("at", request.queue.at.into()),
            ("offered", self.offered.into()),
            ("added", now.into()),
        ]
    }
}

impl TransferRow {
    /// Returns whether the file of the last run has this name. In a farm it may have been another
    /// host's run.
    pub(crate) fn has_file_at(&self, path: &Path) -> bool {
        let is_in_farm = self.epoch > 0;
        let is_at = |part: &PartIdentity| {
            if is_in_farm { part.is_at_on_any_host(path) } else { part.is_at(path) }
        };
        self.part.as_ref().is_some_and(is_at)
    }

    /// Reads the [`COLUMNS`].
    pub(super) fn read(row: &ResultRow<'_>) -> Result<Self, StoreError> {
        let (id, retry_at) = (row.get("id")?, row.get("retry_at")?);
        let transfer = Transfer {
            id,
            gid: format!("{:016x}", row.get::<Option<i64>>("gid")?.unwrap_or(id)),
            kind: of_name(row, "kind")?,
            state: of_name(row, "state")?,
            place: QueuePlace { priority: row.get("priority")?, position: row.get("position")? },
            ends: ShownEnds { urls: of_json(row, "urls")?, name: row.get("name")?, path: row.get("path")? },
            progress: FileProgress {
                size: row.get("size")?,
                bytes: row.get("bytes")?,
                run: of_json(row, "run")?,
                eta: None,
            },
            error: of_json(row, "error")?,
            times: TransferTimes {
                added: row.get("added")?,
                started: row.get("started")?,
                ended: row.get("ended")?,
            },
            conditions: RunConditions {
                at: row.get::<Option<i64>>("at")?.max(retry_at),
                page_url: row.get("page_url")?,
                limit_bps: row.get("limit_bps")?,
                host: row.get::<Option<String>>("owner")?.map(|owner| host_of(&owner).to_owned()),
            },
        };
        Ok(Self {
            transfer,
            retry_at,
            attempts: row.get("attempts")?,
            busy_retries: row.get("busy_retries")?,
            epoch: row.get("epoch")?,
            part: PartIdentity::read(row)?,
        })
    }
}

impl PartIdentity {
    fn read(row: &ResultRow<'_>) -> Result<Option<Self>, StoreError> {
        let Some(target) = row.get::<Option<Vec<u8>>>("part_target")? else { return Ok(None) };
        Ok(Some(Self {
            target: OsString::from_vec(target).into(),
            device: row.get("part_device")?,
            inode: row.get("part_inode")?,
            born: row.get("part_born")?,
        }))
    }

    pub(super) fn target_bytes(&self) -> &[u8] {
        self.target.as_os_str().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_of_another_host_is_known_by_its_inode_and_by_its_age_where_both_have_it() {
        let part = |device, inode, born| PartIdentity { target: "/s/f".into(), device, inode, born };
        for (here, there, is_one) in [
            ((1, 5, Some(7)), (2, 5, Some(7)), true),
            ((1, 5, Some(7)), (2, 5, None), true),
            ((1, 5, None), (2, 5, Some(7)), true),
            ((1, 5, Some(7)), (1, 5, Some(8)), false),
            ((1, 5, None), (1, 6, None), false),
        ] {
            let [here, there] = [here, there].map(|(device, inode, born)| part(device, inode, born));
            assert_eq!(here.may_be_on_another_host(&there), is_one, "{here:?} {there:?}");
        }
    }
}
