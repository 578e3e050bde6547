//! Reads the files of a plan's target: digests, and what differs from the plan.

use std::io;
use std::path::Path;

use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::digest::{self, WantedDigests};
use longhaul_engine::input_file;

use crate::error::FarmError;
use crate::target::Target;
use crate::unit::PlannedFile;

/// Returns the digest of a file of the target; `None` if cancelled.
///
/// # Errors
/// The file cannot be read.
pub fn digest(
    target: &Target,
    file: &PlannedFile,
    algorithm: Algorithm,
    cancel: &Cancel,
) -> Result<Option<Checksum>, FarmError> {
    digest_at(&target.path_of(file), algorithm, cancel)
}

fn digest_at(path: &Path, algorithm: Algorithm, cancel: &Cancel) -> Result<Option<Checksum>, FarmError> {
    let read = || -> io::Result<Option<Checksum>> {
        // A pipe without a writer must not block.
        let input = input_file::open(path)?;
        if !input.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
        }
        let wanted = WantedDigests { whole: Some(algorithm), pieces: None };
        Ok(digest::of_file(input, wanted, cancel)?.and_then(|digests| digests.whole))
    };
    read().map_err(FarmError::io("read", path))
}

/// Compares a file of the target with its plan; returns what is wrong with it. Reads the file only if the plan has a digest.
pub fn fault(target: &Target, file: &PlannedFile, cancel: &Cancel) -> Option<String> {
    fault_at(&target.path_of(file), file, cancel)
}

/// Compares the file at a path with the plan of it.
pub(crate) fn fault_at(path: &Path, file: &PlannedFile, cancel: &Cancel) -> Option<String> {
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => found,
        Ok(_) => return Some("is not a file".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Some("is missing".to_owned()),
        Err(error) => return Some(format!("cannot be read: {error}")),
    };
    let length = Bytes::new(found.len());
    if let Some(size) = file.size.filter(|size| *size != length) {
        return Some(format!("has {} bytes instead of {}", length.get(), size.get()));
    }
    let wanted = file.checksum.as_ref()?;
    match digest_at(path, wanted.algorithm, cancel) {
        Ok(Some(found)) if found != *wanted => Some(format!("has the digest {found} instead of {wanted}")),
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    }
}
