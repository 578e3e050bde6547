//! Replaces files of results atomically: a reader sees the old or the new content, never a part.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::LabError;

/// Replaces a file's content atomically; after an error or a crash the old content remains.
pub(super) fn replace(path: &Path, content: &[u8]) -> Result<(), LabError> {
    let unfinished = unfinished(path);
    let write = || -> io::Result<()> {
        let mut file = File::create(&unfinished)?;
        file.write_all(content)?;
        file.sync_data()?;
        fs::rename(&unfinished, path)
    };
    write().map_err(|cause| LabError::Write { path: path.to_owned(), cause })
}

/// Returns the path of the new content until it is complete.
pub(super) fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
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
