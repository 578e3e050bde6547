//! The names of partial files and their journals, which lie beside the target file.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The suffix of a partial file.
pub(super) const PART: &str = ".longhaul-part";
/// The suffix of a journal.
pub(super) const JOURNAL: &str = ".longhaul-journal";
/// The suffix of an incompletely written journal.
pub(super) const JOURNAL_FRESH: &str = ".longhaul-journal~";

/// Returns whether `name` is one of a partial file or its journal. A server that could choose such a name could make
/// another transfer resume from the server's content.
pub fn is_partial(name: impl AsRef<[u8]>) -> bool {
    [PART, JOURNAL, JOURNAL_FRESH].iter().any(|suffix| name.as_ref().ends_with(suffix.as_bytes()))
}

/// Returns whether `name` is one of a partial file, which occupies the space of a whole file.
pub fn is_part(name: &[u8]) -> bool {
    name.ends_with(PART.as_bytes())
}

/// Returns the name without the suffix of a partial file: the target's name, or a shortened form with an equal partial
/// file.
pub fn target_of(part: &[u8]) -> Option<&[u8]> {
    part.strip_suffix(PART.as_bytes()).filter(|target| !target.is_empty())
}

/// Returns the partial file of the file at `target`.
pub fn part_of(target: &Path) -> PathBuf {
    target.with_file_name(beside(target.file_name().unwrap_or_default(), PART))
}

/// Returns the partial file and the journal of the file at `target`.
pub fn files_beside(target: &Path) -> [PathBuf; 2] {
    [PART, JOURNAL]
        .map(|suffix| target.with_file_name(beside(target.file_name().unwrap_or_default(), suffix)))
}

/// Returns the journals that a killed run may have left beside a complete file.
pub fn journals_of(target: &Path) -> [PathBuf; 2] {
    let name = beside(target.file_name().unwrap_or_default(), JOURNAL);
    let mut fresh = name.clone();
    fresh.push("~");
    [target.with_file_name(name), target.with_file_name(fresh)]
}

/// Returns `target` with `suffix`; a name near the limit of 255 bytes is shortened to a hash.
pub(super) fn beside(target: &OsStr, suffix: &str) -> OsString {
    const LONGEST: usize = 255;
    let name = target.as_bytes();
    // One more byte for the temporary name of the journal.
    if name.len() + suffix.len() < LONGEST {
        let mut name = target.to_owned();
        name.push(suffix);
        return name;
    }
    let hash = blake3::hash(name).to_hex();
    let mut short = name[..100].to_vec();
    short.extend_from_slice(&hash.as_bytes()[..16]);
    short.extend_from_slice(suffix.as_bytes());
    OsString::from_vec(short)
}
