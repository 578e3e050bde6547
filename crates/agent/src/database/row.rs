//! A transfer in the database.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};
use rusqlite::{Connection, named_params};
use serde::de::{DeserializeOwned, IntoDeserializer};

use crate::json;
use crate::request::ShownRequest;
use crate::transfer::{RunFacts, Transfer, TransferFailure, TransferState};

/// A transfer to add.
#[derive(Debug, Clone)]
pub(crate) struct NewTransfer {
    pub(crate) key: Option<String>,
    /// The identifier that an aria2 client has chosen; by default the transfer's number.
    pub(crate) gid: Option<u64>,
    pub(crate) state: TransferState,
    /// The sealed request.
    pub(crate) request: Vec<u8>,
    pub(crate) shown: ShownRequest,
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

/// A value stored as JSON.
struct Json<T>(T);

impl<T: DeserializeOwned> FromSql for Json<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        serde_json::from_str(value.as_str()?).map(Self).map_err(FromSqlError::other)
    }
}

/// A value stored as its name.
struct Named<T>(T);

impl<T: DeserializeOwned> FromSql for Named<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let name = value.as_str()?.into_deserializer();
        T::deserialize(name).map(Self).map_err(FromSqlError::other::<serde::de::value::Error>)
    }
}

impl NewTransfer {
    /// Adds the transfer at a position.
    pub(super) fn insert(&self, into: &Connection, position: i64, now: i64) -> rusqlite::Result<()> {
        let shown = &self.shown;
        let values = named_params! {
            ":key": self.key,
            ":gid": self.gid.map(u64::cast_signed),
            ":kind": shown.kind.name(),
            ":state": self.state.name(),
            ":priority": shown.priority,
            ":position": position,
            ":request": self.request,
            ":urls": json(&shown.urls),
            ":name": shown.name,
            ":path": shown.path,
            ":page_url": shown.page_url,
            ":limit_bps": shown.limit_bps.map(u64::cast_signed),
            ":at": shown.at,
            ":offered": self.offered,
            ":added": now,
        };
        let names = values.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let columns = names.replace(':', "");
        let insert = format!("INSERT INTO transfers ({columns}) VALUES ({names})");
        into.prepare_cached(&insert)?.execute(values).map(drop)
    }
}

impl Row {
    /// Reads a row with all columns.
    pub(super) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        let unsigned =
            |name: &str| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(name)?.map(i64::cast_unsigned));
        let (Named(kind), Named(state)) = (row.get("kind")?, row.get("state")?);
        let (Json(urls), Json(run)) = (row.get("urls")?, row.get("run")?);
        let (at, retry_at): (Option<i64>, Option<i64>) = (row.get("at")?, row.get("retry_at")?);
        let (id, gid): (i64, Option<i64>) = (row.get("id")?, row.get("gid")?);
        let transfer = Transfer {
            id,
            gid: format!("{:016x}", gid.unwrap_or(id)),
            kind,
            state,
            priority: row.get("priority")?,
            position: row.get("position")?,
            urls,
            name: row.get("name")?,
            path: row.get("path")?,
            page_url: row.get("page_url")?,
            limit_bps: unsigned("limit_bps")?,
            size: unsigned("size")?,
            bytes: unsigned("bytes")?.unwrap_or_default(),
            run,
            eta: None,
            error: row.get::<_, Option<Json<_>>>("error")?.map(|Json(error)| error),
            at: at.max(retry_at),
            added: row.get("added")?,
            started: row.get("started")?,
            ended: row.get("ended")?,
        };
        Ok(Self { transfer, retry_at, attempts: row.get("attempts")?, part: PartIdentity::read(row)? })
    }
}

impl PartIdentity {
    fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<Self>> {
        let Some(target) = row.get::<_, Option<Vec<u8>>>("part_target")? else { return Ok(None) };
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
