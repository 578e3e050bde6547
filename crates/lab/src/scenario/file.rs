//! Files of the results: written so that a reader sees the old one or the new one, never half of one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::LabError;

/// Replaces a file's content at once; what was there stays where that fails, or the machine does.
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

/// Returns where the new content stands until it is complete.
pub(super) fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

/// Removes a file that may not be there.
pub(super) fn remove(path: &Path) -> Result<(), LabError> {
    match fs::remove_file(path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
            Err(LabError::Write { path: path.to_owned(), cause })
        }
        _ => Ok(()),
    }
}
