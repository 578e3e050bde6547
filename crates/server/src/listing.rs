//! What a directory holds, read and sorted for its page.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_core::units::Bytes;
use longhaul_engine::sink::part_names::is_partial;
use rustix::fs::{AtFlags, Dir, FileType};

use crate::site::Site;

/// One file or directory.
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) is_directory: bool,
    pub(crate) size: Bytes,
    pub(crate) modified: SystemTime,
}

/// What the entries are sorted by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Name,
    Size,
    Modified,
}

/// How the entries are sorted; directories always come first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) key: Key,
    pub(crate) descending: bool,
}

impl Order {
    /// Reads `sort=name|size|modified` and `order=asc|desc` from a query; by name where it says nothing.
    pub(crate) fn from_query(query: Option<&str>) -> Self {
        let mut order = Self { key: Key::Name, descending: false };
        for word in query.unwrap_or_default().split('&') {
            match word {
                "sort=size" => order.key = Key::Size,
                "sort=modified" => order.key = Key::Modified,
                "order=desc" => order.descending = true,
                _ => {}
            }
        }
        order
    }
}

/// A directory's entries.
pub(crate) struct Listing {
    pub(crate) entries: Vec<Entry>,
    /// How many further names there are.
    pub(crate) more: usize,
    pub(crate) order: Order,
}

impl Listing {
    /// Reads what can be served: regular files and directories, hidden ones only if the site serves them.
    ///
    /// At most as many entries are kept as the site allows, so a huge directory costs bounded memory;
    /// the names beyond are counted and not looked at.
    pub(crate) fn read(site: &Site, directory: &File, names: &[Vec<u8>], order: Order) -> io::Result<Self> {
        let mut entries = Vec::new();
        let mut more = 0;
        for item in Dir::read_from(directory)? {
            let item = item?;
            let name = item.file_name();
            let hidden = name.to_bytes().first() == Some(&b'.');
            let partial = is_partial(name.to_bytes());
            if matches!(name.to_bytes(), b"." | b"..") || (hidden && !site.hidden) || partial {
                continue;
            }
            if entries.len() == site.listing {
                more += 1;
                continue;
            }
            entries.extend(entry(site, directory, names, name));
        }
        sort(&mut entries, order);
        Ok(Self { entries, more, order })
    }
}

/// Looks at one name; `None` where it leads to nothing that can be served, or has just vanished.
fn entry(site: &Site, directory: &File, names: &[Vec<u8>], name: &CStr) -> Option<Entry> {
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let name = name.to_bytes().to_vec();
    let entry = |kind: FileType, size: u64, seconds: i64| {
        matches!(kind, FileType::RegularFile | FileType::Directory).then(|| Entry {
            name: name.clone(),
            is_directory: kind == FileType::Directory,
            // A directory's own size says nothing of what it holds.
            size: if kind == FileType::Directory { Bytes::ZERO } else { Bytes::new(size) },
            modified: date(seconds),
        })
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => {
            let path: Vec<Vec<u8>> = names.iter().cloned().chain([name.clone()]).collect();
            let target = site.root.look(&path).and_then(|file| file.metadata()).ok()?;
            entry(FileType::from_raw_mode(target.mode()), target.size(), target.mtime())
        }
        kind => entry(kind, u64::try_from(stat.st_size).unwrap_or(0), stat.st_mtime),
    }
}

/// Makes a date that can be written: from 1970 to 9999, for years have four digits there (RFC 9110, section 5.6.7).
fn date(seconds: i64) -> SystemTime {
    const LAST: u64 = 253_402_300_799;
    UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0).min(LAST))
}

fn sort(entries: &mut [Entry], order: Order) {
    let fold = |entry: &Entry| String::from_utf8_lossy(&entry.name).to_lowercase();
    entries.sort_by_cached_key(|entry| (fold(entry), entry.name.clone()));
    match order.key {
        Key::Name => {}
        Key::Size => entries.sort_by_key(|entry| entry.size),
        Key::Modified => entries.sort_by_key(|entry| entry.modified),
    }
    if order.descending {
        entries.reverse();
    }
    entries.sort_by_key(|entry| !entry.is_directory);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_date_can_be_written() {
        for (seconds, text) in
            [(i64::MIN, "Thu, 01 Jan 1970 00:00:00 GMT"), (i64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT")]
        {
            assert_eq!(httpdate::fmt_http_date(date(seconds)), text);
        }
    }
}
