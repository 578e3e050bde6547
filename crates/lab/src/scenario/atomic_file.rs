//! Replaces and removes files of results.

use std::fs;
use std::io;
use std::path::Path;

use longhaul_sys::atomic_file;

use crate::error::LabError;

/// Replaces a file's content atomically; the old content survives an error or a crash.
pub(super) fn replace(path: &Path, content: &[u8]) -> Result<(), LabError> {
    atomic_file::replace(path, content, 0o666).map_err(LabError::write(path))
}

/// Removes temporary files of interrupted replacements.
pub(super) fn remove_unfinished(path: &Path) -> Result<(), LabError> {
    atomic_file::remove_unfinished(path).map_err(LabError::write(path))
}

/// Removes a file, if it exists.
pub(super) fn remove(path: &Path) -> Result<(), LabError> {
    match fs::remove_file(path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(LabError::write(path)(cause)),
        _ => Ok(()),
    }
}
