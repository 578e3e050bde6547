//! Claims: symbolic links `UNIT.EPOCH` that name the worker. Only units under way have one.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use crate::error::FarmError;
use crate::unit::UnitId;

/// The highest epoch of a claim or a log line that is heeded: far above what failures and losses of
/// one unit reach.
pub(crate) const MAX_EPOCH: u64 = 1_000_000;

/// The claims of a plan, as one worker makes them.
#[derive(Debug)]
pub(crate) struct Claims {
    directory: PathBuf,
    worker: String,
    units: u32,
}

impl Claims {
    pub(crate) fn new(directory: PathBuf, worker: &str, units: u32) -> Self {
        Self { directory, worker: worker.to_owned(), units }
    }

    pub(crate) fn worker(&self) -> &str {
        &self.worker
    }

    fn path(&self, unit: UnitId, epoch: u64) -> PathBuf {
        self.directory.join(format!("{unit}.{epoch}"))
    }

    /// Returns the highest epoch of each claimed unit. Names that this program does not make are
    /// ignored.
    pub(crate) fn all(&self) -> Result<HashMap<UnitId, u64>, FarmError> {
        let mut all: HashMap<UnitId, u64> = HashMap::new();
        let failed = |source| FarmError::Io { operation: "list", path: self.directory.clone(), source };
        for entry in fs::read_dir(&self.directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let Some((unit, epoch)) = name.to_str().and_then(|name| name.split_once('.')) else { continue };
            let (Ok(unit), Ok(epoch)) = (unit.parse(), epoch.parse()) else { continue };
            if unit >= self.units || epoch > MAX_EPOCH {
                continue;
            }
            let highest = all.entry(UnitId(unit)).or_insert(epoch);
            *highest = epoch.max(*highest);
        }
        Ok(all)
    }

    /// Creates a claim; returns whether this worker is the one that did.
    pub(crate) fn create(&self, unit: UnitId, epoch: u64) -> Result<bool, FarmError> {
        let path = self.path(unit, epoch);
        match symlink(&self.worker, &path) {
            Ok(()) => Ok(true),
            // NFS may have repeated a request whose answer was lost.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Ok(self.holder(unit, epoch)?.as_deref() == Some(&self.worker))
            }
            Err(source) => Err(FarmError::Io { operation: "create the claim", path, source }),
        }
    }

    /// Returns the worker of a claim; `None` if the claim was removed meanwhile.
    pub(crate) fn holder(&self, unit: UnitId, epoch: u64) -> Result<Option<String>, FarmError> {
        let path = self.path(unit, epoch);
        match fs::read_link(&path) {
            Ok(worker) => Ok(Some(worker.to_string_lossy().into_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            // Not a link: a copy of the plan. A worker without a name is one that is never seen,
            // and expires.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(Some(String::new())),
            Err(source) => Err(FarmError::Io { operation: "read the claim", path, source }),
        }
    }

    /// Removes a claim.
    pub(crate) fn remove(&self, unit: UnitId, epoch: u64) -> Result<(), FarmError> {
        let path = self.path(unit, epoch);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(FarmError::Io { operation: "remove the claim", path, source })
            }
            _ => Ok(()),
        }
    }

    /// Removes a claim and those that it has replaced, the highest one last: a lower one alone
    /// would look expired.
    pub(crate) fn remove_up_to(&self, unit: UnitId, epoch: u64) -> Result<(), FarmError> {
        (1..=epoch).try_for_each(|epoch| self.remove(unit, epoch))
    }
}
