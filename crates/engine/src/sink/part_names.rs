//! The names of partial files and their journals, which lie beside the target file.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The suffix of a partial file.
pub(super) const PART: &str = ".longhaul-part";
/// The suffix of a journal.
pub(super) const JOURNAL: &str = ".longhaul-journal";
/// The suffix of an incompletely written journal.
pub(super) const JOURNAL_FRESH: &str = ".longhaul-journal~";

/// The longest name that Linux takes (NAME_MAX), in bytes.
const LONGEST_NAME: usize = 255;
/// The highest number of a name.
const MAX_NUMBER: u32 = 9_999;

/// Returns whether `name` is one of a partial file or its journal. A server that could choose such
/// a name could make another transfer resume from the server's content.
///
/// Upper case counts as lower case, as on file systems such as FAT.
pub fn is_partial(name: impl AsRef<[u8]>) -> bool {
    let name = name.as_ref();
    [PART, JOURNAL, JOURNAL_FRESH].iter().any(|suffix| {
        let end = name.len().checked_sub(suffix.len()).map(|start| &name[start..]);
        end.is_some_and(|end| end.eq_ignore_ascii_case(suffix.as_bytes()))
    })
}

/// Returns whether `name` is one of a partial file, which occupies the space of a whole file.
pub fn is_part(name: &[u8]) -> bool {
    name.ends_with(PART.as_bytes())
}

/// Returns the name without the suffix of a partial file: the target's name, or a shortened form
/// with an equal partial file.
pub fn target_of(part: &[u8]) -> Option<&[u8]> {
    part.strip_suffix(PART.as_bytes()).filter(|target| !target.is_empty())
}

/// Returns `target` with `suffix`; a name near the limit of 255 bytes is shortened to a hash.
pub(super) fn beside(target: &OsStr, suffix: &str) -> OsString {
    let name = target.as_bytes();
    // One more byte for the temporary name of the journal.
    if name.len() + suffix.len() < LONGEST_NAME {
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

/// Returns `name`, and then the name with numbers before its extension, as browsers do: `set
/// (1).tar`.
pub(super) fn numbered(name: &OsStr) -> impl Iterator<Item = OsString> {
    let bytes = name.as_bytes();
    let dot = bytes.iter().rposition(|byte| *byte == b'.').filter(|dot| *dot > 0).unwrap_or(bytes.len());
    let (stem, extension) = bytes.split_at(dot);
    let with_number = move |number: u32| {
        let end = [format!(" ({number})").as_bytes(), extension].concat();
        let mut length = stem.len().min(LONGEST_NAME.saturating_sub(end.len()));
        // A character of UTF-8 is not cut.
        while length < stem.len() && length > 0 && stem[length] & 0xc0 == 0x80 {
            length -= 1;
        }
        OsString::from_vec([&stem[..length], &end].concat())
    };
    std::iter::once(name.to_owned()).chain((1..=MAX_NUMBER).map(with_number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_names_are_recognised_in_any_case() {
        for name in ["a.longhaul-part", "a.LONGHAUL-Part", ".longhaul-journal", "é.Longhaul-Journal~"] {
            assert!(is_partial(name), "{name}");
        }
        for name in ["", "longhaul-part", "a.longhaul-part.bin", "é"] {
            assert!(!is_partial(name), "{name}");
        }
    }
}
