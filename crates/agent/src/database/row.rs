//! A transfer in the database.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rusqlite::types::{FromSqlError, Type};

use crate::transfer::{RunFacts, Transfer, TransferFailure, TransferKind, TransferState};

/// A transfer to add.
#[derive(Debug, Clone)]
pub(crate) struct NewTransfer {
    pub(crate) key: Option<String>,
    /// The identifier that an aria2 client has chosen; by default the transfer's number.
    pub(crate) gid: Option<u64>,
    pub(crate) kind: TransferKind,
    pub(crate) state: TransferState,
    pub(crate) priority: i64,
    /// The sealed request.
    pub(crate) request: Vec<u8>,
    pub(crate) urls: Vec<String>,
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) page_url: Option<String>,
    pub(crate) limit_bps: Option<u64>,
    pub(crate) at: Option<i64>,
    /// Whether a browser offers it: it must be accepted to survive this process.
    pub(crate) offered: bool,
}

/// The identity of the file that a run writes, and its final path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartIdentity {
    pub(crate) target: PathBuf,
    pub(crate) device: i64,
    pub(crate) inode: i64,
    /// The creation time in nanoseconds since 1970, if the file system stores it: an inode number may be reused.
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

    /// Returns whether the file has this name. The engine gives the final one only to a complete and verified file.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        Self::of(path, &self.target).is_ok_and(|there| there == *self)
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
    /// Whether the run has extended the file, so that earlier failures no longer count.
    pub(crate) advanced: bool,
}

/// A stored transfer.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) transfer: Transfer,
    pub(crate) retry_at: Option<i64>,
    pub(crate) attempts: u32,
    pub(crate) part: Option<PartIdentity>,
}

/// The columns of [`Row::read`], in order.
pub(super) const COLUMNS: &str = "id, kind, state, priority, position, urls, name, path, page_url, limit_bps, size, bytes, run, \
     error, at, retry_at, attempts, part_target, part_device, part_inode, part_born, added, started, ended, gid";

fn parsed<T: serde::de::DeserializeOwned>(index: usize, text: &str) -> rusqlite::Result<T> {
    serde_json::from_str(text)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(index, Type::Text, Box::new(error)))
}

impl Row {
    pub(super) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        let text = |index| row.get::<_, String>(index);
        let word = |index| text(index).map(|word| format!("\"{word}\""));
        let unsigned =
            |index| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(index)?.map(i64::cast_unsigned));
        let error: Option<String> = row.get(13)?;
        let (at, retry_at): (Option<i64>, Option<i64>) = (row.get(14)?, row.get(15)?);
        let target: Option<Vec<u8>> = row.get(17)?;
        let part = target.map(|target| {
            let part = PartIdentity {
                target: OsString::from_vec(target).into(),
                device: row.get(18)?,
                inode: row.get(19)?,
                born: row.get(20)?,
            };
            Ok::<_, rusqlite::Error>(part)
        });
        let (id, gid): (i64, Option<i64>) = (row.get(0)?, row.get(24)?);
        let transfer = Transfer {
            id,
            gid: format!("{:016x}", gid.unwrap_or(id)),
            kind: parsed(1, &word(1)?)?,
            state: parsed(2, &word(2)?)?,
            priority: row.get(3)?,
            position: row.get(4)?,
            urls: parsed(5, &text(5)?)?,
            name: row.get(6)?,
            path: row.get(7)?,
            page_url: row.get(8)?,
            limit_bps: unsigned(9)?,
            size: unsigned(10)?,
            bytes: unsigned(11)?.unwrap_or_default(),
            run: parsed(12, &text(12)?)?,
            eta: None,
            error: error.map(|error| parsed(13, &error)).transpose()?,
            at: at.max(retry_at),
            added: row.get(21)?,
            started: row.get(22)?,
            ended: row.get(23)?,
        };
        let attempts = row.get::<_, i64>(16)?;
        let attempts = u32::try_from(attempts).map_err(|_| FromSqlError::OutOfRange(attempts))?;
        Ok(Self { transfer, retry_at, attempts, part: part.transpose()? })
    }
}

impl PartIdentity {
    pub(super) fn target_bytes(&self) -> &[u8] {
        self.target.as_os_str().as_bytes()
    }
}
