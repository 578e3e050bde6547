//! Checks whether an existing file of the final name is the file that the server describes.

use std::fs;
use std::path::Path;

use longhaul_core::units::Bytes;

use super::Job;
use crate::cancel::Cancel;
use crate::digest::{self, WantedDigests};
use crate::sink::origin_tag;
use crate::source::Description;

/// Returns whether the file at `path` is the file that the server describes; `None` if cancelled.
pub(super) fn is_complete(
    job: &Job,
    path: &Path,
    description: &Description,
    cancel: &Cancel,
) -> Option<bool> {
    let size = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file).map(|there| there.len());
    // A file of unknown size may be proved by its state alone.
    if size.is_none() || description.file.size.is_some_and(|stated| size.map(Bytes::new) != Some(stated)) {
        return Some(false);
    }
    let expected = &job.expected;
    let stated = description.published.digest.iter().filter(|_| expected.checksums.is_empty());
    let mut checksums = expected.checksums.iter().chain(stated).peekable();
    let is_refuted = checksums.peek().is_some();
    for checksum in checksums {
        let wanted = WantedDigests { whole: Some(checksum.algorithm), pieces: None };
        match fs::File::open(path).and_then(|file| digest::of_file(file, wanted, cancel)) {
            Ok(Some(found)) if found.whole.as_ref() == Some(checksum) => return Some(true),
            Ok(None) => return None,
            Ok(Some(_)) | Err(_) => {}
        }
    }
    if is_refuted {
        return Some(false);
    }
    // The server's digest, if required, is not known here.
    let is_provable = !expected.by_server && expected.pieces.is_none();
    Some(match (&description.file.state, job.urls.first()) {
        (Some(state), Some(url)) => is_provable && origin_tag::is_as_fetched(path, url, state),
        _ => false,
    })
}
