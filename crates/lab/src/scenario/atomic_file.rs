//! Replaces and removes files of results.

use std::fs;
use std::io;
use std::path::Path;

use longhaul_sys::atomic_file;

use crate::error::LabError;

/// Replaces a file's content atomically; after an error or a crash the old content remains.
pub(super) fn replace(path: &Path, content: &[u8]) -> Result<(), LabError> {
    atomic_file::replace(path, content, 0o666)
        .map_err(|cause| LabError::Write { path: path.to_owned(), cause })
}

/// Removes what replacements of a file that were cut short have left.
pub(super) fn remove_unfinished(path: &Path) -> Result<(), LabError> {
    atomic_file::remove_unfinished(path).map_err(|cause| LabError::Write { path: path.to_owned(), cause })
}

/// Removes a file, if it exists.
pub(super) fn remove(path: &Path) -> Result<(), LabError> {
    match fs::remove_file(path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
            Err(LabError::Write { path: path.to_owned(), cause })
        }
        _ => Ok(()),
    }
}
