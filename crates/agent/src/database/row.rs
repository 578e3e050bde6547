//! A transfer in the database.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::de::{DeserializeOwned, IntoDeserializer};

use super::lease::host_of;
use super::{Record, StoreError, Value};
use crate::json;
use crate::request::TransferRequest;
use crate::transfer::{
    FileProgress, QueuePlace, RunConditions, RunFacts, ShownEnds, Transfer, TransferFailure, TransferState,
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
    pub(crate) bytes: u64,
    pub(crate) size: Option<u64>,
    pub(crate) path: Option<String>,
    pub(crate) run: RunFacts,
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
pub(crate) struct Row {
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

/// The columns that [`Row::read`] takes, in their order.
pub(super) const COLUMNS: &str = "id, gid, kind, state, priority, position, urls, name, path, page_url, limit_bps, size, bytes, run, \
    error, at, retry_at, attempts, busy_retries, added, started, ended, owner, epoch, part_target, part_device, part_inode, part_born";

/// Reads a value stored as JSON.
fn of_json<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Unreadable(error.to_string()))
}

/// Reads a value stored as its name.
fn of_name<T: DeserializeOwned>(name: String) -> Result<T, StoreError> {
    T::deserialize(name.into_deserializer())
        .map_err(|error: serde::de::value::Error| StoreError::Unreadable(error.to_string()))
}

/// Reads a row unless another version of the program has written it.
pub(super) fn readable(record: &mut Record) -> Option<Row> {
    let row = Row::read(record);
    row.inspect_err(|error| tracing::debug!("a transfer of another version is passed over: {error:?}")).ok()
}

impl NewTransfer {
    /// The columns of the [`values`](Self::values), in their order.
    pub(super) const COLUMNS: &'static str = "key, gid, kind, state, priority, position, request, urls, name, path, page_url, limit_bps, at, offered, added";

    /// Returns the columns of the transfer at a position.
    pub(super) fn values(&self, position: i64, now: i64) -> [Value; 15] {
        let request = &self.request;
        [
            self.key.clone().into(),
            self.gid.map(u64::cast_signed).into(),
            request.kind.name().into(),
            self.state.name().into(),
            request.queue.priority.into(),
            position.into(),
            self.sealed.as_slice().into(),
            // In clear is stored only what is no secret.
            json(&request.shown_urls()).into(),
            request.shown_name().into(),
            request.shown_path().into(),
            request.shown_page().into(),
            request.tuning.limit_bps.into(),
            request.queue.at.into(),
            self.offered.into(),
            now.into(),
        ]
    }
}

impl Row {
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
    pub(super) fn read(record: &mut Record) -> Result<Self, StoreError> {
        let (id, gid): (i64, Option<i64>) = (record.take()?, record.take()?);
        let (kind, state) = (of_name(record.take()?)?, of_name(record.take()?)?);
        let place = QueuePlace { priority: record.take()?, position: record.take()? };
        let ends = ShownEnds {
            urls: of_json(&record.take::<String>()?)?,
            name: record.take()?,
            path: record.take()?,
        };
        let (page_url, limit_bps) = (record.take()?, record.take()?);
        let progress = FileProgress {
            size: record.take()?,
            bytes: record.take()?,
            run: of_json(&record.take::<String>()?)?,
            eta: None,
        };
        let error = record.take::<Option<String>>()?.map(|text| of_json(&text)).transpose()?;
        let (at, retry_at): (Option<i64>, Option<i64>) = (record.take()?, record.take()?);
        let mut count = || Ok::<_, StoreError>(u32::try_from(record.take::<i64>()?).unwrap_or(u32::MAX));
        let (attempts, busy_retries) = (count()?, count()?);
        let times = TransferTimes { added: record.take()?, started: record.take()?, ended: record.take()? };
        let host = record.take::<Option<String>>()?.map(|owner| host_of(&owner).to_owned());
        let transfer = Transfer {
            id,
            gid: format!("{:016x}", gid.unwrap_or(id)),
            kind,
            state,
            place,
            ends,
            progress,
            error,
            times,
            conditions: RunConditions { at: at.max(retry_at), page_url, limit_bps, host },
        };
        let epoch = record.take()?;
        Ok(Self { transfer, retry_at, attempts, busy_retries, epoch, part: PartIdentity::read(record)? })
    }
}

impl PartIdentity {
    fn read(record: &mut Record) -> Result<Option<Self>, StoreError> {
        let target: Option<Vec<u8>> = record.take()?;
        let (device, inode, born): (Option<i64>, Option<i64>, _) =
            (record.take()?, record.take()?, record.take()?);
        Ok(target.zip(device).zip(inode).map(|((target, device), inode)| Self {
            target: OsString::from_vec(target).into(),
            device,
            inode,
            born,
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
