//! Reads a directory's entries and sorts them for its page.

use std::collections::BinaryHeap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_core::units::Bytes;
use longhaul_engine::sink::part_names::is_partial;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, StatxFlags, openat2, statx};
use rustix::io::Errno;

use crate::paths::beneath_root::Root;

/// A file or directory in a listing.
pub(crate) struct DirectoryEntry {
    pub(crate) name: Vec<u8>,
    pub(crate) is_directory: bool,
    pub(crate) size: Bytes,
    pub(crate) modified: SystemTime,
    /// The device and the inode.
    pub(crate) identity: (u64, u64),
}

/// The column by which entries are sorted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SortKey {
    Name,
    Size,
    Modified,
}

/// The order of entries; directories are always first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SortOrder {
    pub(crate) key: SortKey,
    pub(crate) descending: bool,
}

impl SortOrder {
    /// Parses `sort=name|size|modified` and `order=asc|desc` from a query; the default is ascending
    /// by name.
    pub(crate) fn from_query(query: Option<&str>) -> Self {
        let mut order = Self { key: SortKey::Name, descending: false };
        for word in query.unwrap_or_default().split('&') {
            match word {
                "sort=size" => order.key = SortKey::Size,
                "sort=modified" => order.key = SortKey::Modified,
                "order=desc" => order.descending = true,
                _ => {}
            }
        }
        order
    }
}

/// A directory to be listed.
#[derive(Clone, Copy)]
pub(crate) struct ListedDirectory<'a> {
    pub(crate) root: &'a Root,
    pub(crate) directory: &'a File,
    /// Its path below the root.
    pub(crate) names: &'a [Vec<u8>],
    /// Follows links to other file systems too, which may hang; else the listing ends in ELOOP at
    /// the first one.
    pub(crate) follow: bool,
}

/// What of a directory is listed, and in which order.
#[derive(Clone, Copy)]
pub(crate) struct ListingOptions {
    /// Includes names that begin with a dot.
    pub(crate) hidden: bool,
    pub(crate) max_entries: usize,
    pub(crate) order: SortOrder,
}

/// A directory's entries.
pub(crate) struct DirectoryListing {
    pub(crate) entries: Vec<DirectoryEntry>,
    /// The number of names beyond the limit.
    pub(crate) more: usize,
    pub(crate) order: SortOrder,
}

impl DirectoryListing {
    /// Reads the regular files and directories of a directory.
    ///
    /// Keeps the first `options.max_entries` of the order, so that a huge directory costs bounded
    /// memory; further entries are counted only.
    pub(crate) fn read(source: ListedDirectory<'_>, options: ListingOptions) -> io::Result<Self> {
        let (mut entries, mut found, most) = (Vec::new(), 0, options.max_entries);
        for item in Dir::read_from(source.directory)? {
            let item = item?;
            let name = item.file_name();
            if !is_shown(name.to_bytes(), options.hidden) {
                continue;
            }
            let Some(entry) = source.entry(name)? else { continue };
            found += 1;
            entries.push(entry);
            if entries.len() > most.saturating_mul(2) {
                sort(&mut entries, options.order);
                entries.truncate(most);
            }
        }
        sort(&mut entries, options.order);
        entries.truncate(most);
        let more = found - entries.len();
        Ok(Self { entries, more, order: options.order })
    }
}

/// A page of a directory's entries, in the order of the bytes of their names.
pub(crate) struct ListingPage {
    pub(crate) entries: Vec<DirectoryEntry>,
    /// The name after which the next page begins; `None` on the last one.
    pub(crate) next_after: Option<Vec<u8>>,
}

impl ListingPage {
    /// Reads the `most` first names after `after` of the regular files and directories of a
    /// directory.
    ///
    /// Each page reads all names of the directory, and keeps only those of the page.
    pub(crate) fn read(
        source: ListedDirectory<'_>,
        hidden: bool,
        (after, most): (&[u8], usize),
    ) -> io::Result<Self> {
        let (mut first, mut more) = (BinaryHeap::new(), false);
        for item in Dir::read_from(source.directory)? {
            let item = item?;
            let name = item.file_name();
            if !is_shown(name.to_bytes(), hidden) || name.to_bytes() <= after {
                continue;
            }
            if first.len() == most {
                more = true;
                if first.peek().is_some_and(|last: &CString| name >= last.as_c_str()) {
                    continue;
                }
                first.pop();
            }
            first.push(name.to_owned());
        }
        let first = first.into_sorted_vec();
        let next_after = first.last().filter(|_| more).map(|last| last.to_bytes().to_vec());
        let entries = first.iter().filter_map(|name| source.entry(name).transpose());
        Ok(Self { entries: entries.collect::<io::Result<_>>()?, next_after })
    }
}

fn is_shown(name: &[u8], hidden: bool) -> bool {
    !matches!(name, b"." | b"..") && (hidden || name.first() != Some(&b'.')) && !is_partial(name)
}

impl ListedDirectory<'_> {
    /// Reads one entry; `None` where it cannot be served, or no longer exists.
    fn entry(self, name: &CStr) -> io::Result<Option<DirectoryEntry>> {
        // A mount point whose file system hangs must not be waited for: what the kernel knows is
        // enough.
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
        let Ok(stat) = statx(self.directory, name, flags, StatxFlags::BASIC_STATS) else { return Ok(None) };
        let entry = |kind: FileType, size: u64, seconds: i64, identity: (u64, u64)| {
            matches!(kind, FileType::RegularFile | FileType::Directory).then(|| DirectoryEntry {
                name: name.to_bytes().to_vec(),
                is_directory: kind == FileType::Directory,
                // The size of a directory is not that of its content.
                size: if kind == FileType::Directory { Bytes::ZERO } else { Bytes::new(size) },
                modified: date(seconds),
                identity,
            })
        };
        match FileType::from_raw_mode(u32::from(stat.stx_mode)) {
            FileType::Symlink if !self.follow && self.leaves_file_system(name) => Err(Errno::LOOP.into()),
            FileType::Symlink => {
                let path: Vec<_> = self.names.iter().cloned().chain([name.to_bytes().to_vec()]).collect();
                let target = self.root.look(&path).and_then(|file| file.metadata());
                Ok(target.ok().and_then(|target| {
                    let identity = (target.dev(), target.ino());
                    entry(FileType::from_raw_mode(target.mode()), target.size(), target.mtime(), identity)
                }))
            }
            kind => {
                let device = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
                Ok(entry(kind, stat.stx_size, stat.stx_mtime.tv_sec, (device, stat.stx_ino)))
            }
        }
    }

    /// Returns whether a link leads to another file system; touches none of that.
    fn leaves_file_system(self, name: &CStr) -> bool {
        let (flags, resolve) =
            (OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS);
        matches!(openat2(self.directory, name, flags, Mode::empty(), resolve), Err(Errno::XDEV))
    }
}

/// Clamps a time to the years 1970 to 9999: an HTTP date has a year of four digits (RFC 9110,
/// section 5.6.7).
fn date(seconds: i64) -> SystemTime {
    const MAX_FOUR_DIGIT_YEAR: u64 = 253_402_300_799;
    UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0).min(MAX_FOUR_DIGIT_YEAR))
}

fn sort(entries: &mut [DirectoryEntry], order: SortOrder) {
    let fold = |entry: &DirectoryEntry| String::from_utf8_lossy(&entry.name).to_lowercase();
    entries.sort_by_cached_key(|entry| (fold(entry), entry.name.clone()));
    match order.key {
        SortKey::Name => {}
        SortKey::Size => entries.sort_by_key(|entry| entry.size),
        SortKey::Modified => entries.sort_by_key(|entry| entry.modified),
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
    fn times_outside_the_range_of_http_dates_are_clamped() {
        for (seconds, text) in
            [(i64::MIN, "Thu, 01 Jan 1970 00:00:00 GMT"), (i64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT")]
        {
            assert_eq!(httpdate::fmt_http_date(date(seconds)), text);
        }
    }
}
