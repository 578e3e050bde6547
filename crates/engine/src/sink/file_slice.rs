//! A range of a file that several transfers, also of several hosts, write at the same time: each
//! another range.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::identity::Identity;
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;

use super::directory::Directory;
use super::output_error::OutputError;
use super::part_file::PartFile;

/// The suffix of the symbolic link that holds the identity of the source.
const IDENTITY: &str = ".identity";
/// The infix of symbolic links that hold what is kept of a range, before its first byte.
const KEPT: &str = ".range-";
/// The longest text of a link; a longer identity is replaced by its digest. XFS takes 1,024 bytes,
/// others 4,095.
const MAX_LINK_TEXT: usize = 1000;
/// What is kept of a range begins and ends at multiples of this: each writer accepts them.
const KEPT_ALIGNMENT: u64 = 64 << 10;

/// A range of a file of known size. The transfer ends with the range synced; the file keeps its
/// name, whichever ranges of it are there.
///
/// The first transfer into the file fixes the identity of its source, by a symbolic link beside the
/// file. Ones of another identity fail before they write, so that two writers of a range write
/// equal bytes. A transfer that ends within the range records what it has synced of it for the next
/// one, in another link.
#[derive(Debug, Clone)]
pub struct FileSlice {
    /// The directory that the path cannot leave.
    pub root: Arc<Directory>,
    /// The path of the file below `root`.
    pub path: PathBuf,
    /// The size of the file.
    pub size: Bytes,
    /// The range, which is not empty; other transfers share no page with it.
    pub range: ByteRange,
    /// Whether the file is made if it is missing. Once a range of it is done, a missing file is an
    /// error: the range would be one of zeros.
    pub creates: bool,
}

impl FileSlice {
    fn directory(&self) -> io::Result<Directory> {
        self.root.beneath(self.path.parent().unwrap_or(Path::new("")))
    }

    pub(super) fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    fn identity_name(&self) -> OsString {
        let mut name = self.name().to_owned();
        name.push(IDENTITY);
        name
    }

    fn kept_name(&self) -> OsString {
        let mut name = self.name().to_owned();
        name.push(format!("{KEPT}{}", self.range.start()));
        name
    }

    fn shown_path(&self) -> PathBuf {
        self.root.path_of(self.path.as_os_str())
    }

    /// Opens the file; the first transfer makes it.
    pub(super) fn open(&self) -> Result<PartFile, OutputError> {
        let open = || {
            let directory = self.directory()?;
            let file = match directory.open_file(self.name()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    // The identity is fixed after the file was made.
                    if !self.creates || directory.look(&self.identity_name(), false).is_ok() {
                        let message = "ranges of it were written, and it is missing: make the plan anew";
                        return Err(io::Error::new(io::ErrorKind::NotFound, message));
                    }
                    directory.open_or_create(self.name())?
                }
                opened => opened?,
            };
            let found = file.metadata()?;
            if !found.is_file() {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let (mut kept, inode) = (RangeSet::new(), found.ino());
            if found.len() == 0 {
                file.set_len(self.size.get())?;
            } else if let Ok(text) = directory.read_link(&self.kept_name()) {
                kept = kept_in(&text.to_string_lossy(), inode, self.range);
            }
            Ok((file, KeptSlice { directory, name: self.kept_name(), inode, range: self.range, kept }))
        };
        let path = self.shown_path();
        let (file, kept) = open().map_err(|source| OutputError::Create { path: path.clone(), source })?;
        Ok(PartFile::of_slice(file, path, kept))
    }

    /// Fixes the identity of the source, unless another transfer has; returns that one if it
    /// differs. Then the names of the file and of its identity are durable, whichever transfer has
    /// made them.
    pub(crate) fn fix_identity(&self, identity: &Identity) -> Result<Option<String>, OutputError> {
        let fix = || {
            let (directory, name) = (self.directory()?, self.identity_name());
            let mut text = serde_json::to_string(identity)?;
            if text.len() > MAX_LINK_TEXT {
                text = blake3::hash(text.as_bytes()).to_hex().to_string();
            }
            match directory.make_link(&text, &name) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => directory.sync()?,
            }
            let fixed = directory.read_link(&name)?;
            let fixed = fixed.as_os_str().as_bytes();
            let shown = || {
                serde_json::from_slice(fixed)
                    .map_or_else(|_| "another one".to_owned(), |fixed: Identity| fixed.to_string())
            };
            Ok((fixed != text.as_bytes()).then(shown))
        };
        let path = || self.root.path_of(self.path.with_file_name(self.identity_name()).as_os_str());
        fix().map_err(|source| OutputError::Create { path: path(), source })
    }

    /// Returns what this transfer need not fetch: all ranges of the file but this one, and what is
    /// kept of it.
    pub(crate) fn committed(&self, kept: Option<&RangeSet>) -> RangeSet {
        let mut committed: RangeSet = std::iter::once(ByteRange::with_len(0, self.size)).collect();
        committed.remove(self.range);
        kept.into_iter().flat_map(RangeSet::iter).for_each(|range| committed.insert(range));
        committed
    }
}

/// What is kept of a range of a shared file: a symbolic link `FILE.range-START` that holds the
/// inode of the file, and the ranges that were synced before. A link that is missing or of another
/// file keeps nothing.
#[derive(Debug)]
pub(super) struct KeptSlice {
    directory: Directory,
    name: OsString,
    inode: u64,
    range: ByteRange,
    kept: RangeSet,
}

impl KeptSlice {
    /// Returns the range, of which a part may be kept.
    pub(super) fn range(&self) -> ByteRange {
        self.range
    }

    /// Returns what an earlier transfer has kept.
    pub(super) fn ranges(&self) -> &RangeSet {
        &self.kept
    }

    /// Syncs the file, and then records what was written of the range.
    pub(super) fn keep(&self, file: &File, written: &RangeSet) -> io::Result<()> {
        let text = kept_text(self.inode, self.range, written);
        if kept_in(&text, self.inode, self.range).total() <= self.kept.total() {
            return Ok(());
        }
        file.sync_data()?;
        // Without the link for a moment, the range would begin anew.
        match self.directory.remove(&self.name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => self.directory.make_link(&text, &self.name)?,
        }
        self.directory.sync()
    }
}

/// Writes what is kept of a range: `INODE START-END START-END...`, as much as a link can hold. The
/// last block of the range is left to the next transfer, which needs an answer of the source.
fn kept_text(inode: u64, range: ByteRange, written: &RangeSet) -> String {
    let mut text = inode.to_string();
    let last = (range.end() - 1) / KEPT_ALIGNMENT * KEPT_ALIGNMENT;
    for part in written.iter() {
        let start = part.start().max(range.start()).next_multiple_of(KEPT_ALIGNMENT);
        let end = part.end().min(last) / KEPT_ALIGNMENT * KEPT_ALIGNMENT;
        let length = text.len();
        if start < end {
            let _ = write!(text, " {start}-{end}");
        }
        if text.len() > MAX_LINK_TEXT {
            text.truncate(length);
            break;
        }
    }
    text
}

/// Reads what is kept of a range; nothing if the text is of another file, or damaged.
fn kept_in(text: &str, inode: u64, range: ByteRange) -> RangeSet {
    let mut words = text.split(' ');
    if words.next().and_then(|word| word.parse().ok()) != Some(inode) {
        return RangeSet::new();
    }
    let part = |word: &str| {
        let (start, end) = word.split_once('-')?;
        let (start, end) = (start.parse().ok()?, end.parse().ok()?);
        (range.start() <= start && start < end && end < range.end()).then(|| ByteRange::new(start, end))
    };
    words.map(part).collect::<Option<RangeSet>>().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use longhaul_core::proto::http::ETag;

    use super::*;

    fn slice_in(directory: &Path, creates: bool) -> FileSlice {
        let root = Arc::new(Directory::open(directory).unwrap());
        FileSlice { root, path: "f".into(), size: Bytes::new(9), range: ByteRange::new(0, 4), creates }
    }

    #[test]
    fn missing_file_is_made_only_before_ranges_of_it_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let missing = |creates| slice_in(dir.path(), creates).open().unwrap_err().to_string();
        assert!(missing(false).contains("make the plan anew"));
        assert!(!dir.path().join("f").exists());
        let slice = slice_in(dir.path(), true);
        assert!(slice.open().is_ok() && slice_in(dir.path(), false).open().is_ok());
        assert_eq!(fs::metadata(dir.path().join("f")).unwrap().len(), 9);
        assert_eq!(slice.fix_identity(&Identity::AssumedUnchanged).unwrap(), None);
        fs::remove_file(dir.path().join("f")).unwrap();
        assert!(missing(true).contains("make the plan anew"));
    }

    #[test]
    fn space_is_reserved_for_the_range_alone() {
        let dir = tempfile::tempdir().unwrap();
        // More than any disk of a test has, and less than the largest file of ext4.
        let size = Bytes::new(1 << 43);
        for (range, has_space) in
            [(ByteRange::with_len(1 << 42, Bytes::mib(1)), true), (ByteRange::with_len(0, size), false)]
        {
            let part = FileSlice { size, range, ..slice_in(dir.path(), true) }.open().unwrap();
            let before = part.file().metadata().unwrap().blocks();
            assert_eq!(part.reserve(size).is_ok(), has_space, "{range}");
            let now = part.file().metadata().unwrap();
            assert_eq!(
                (now.len(), now.blocks() > before),
                (size.get(), has_space),
                "nothing is taken in vain"
            );
        }
    }

    #[test]
    fn what_is_kept_of_a_range_is_what_was_synced_into_this_file() {
        const BLOCK: u64 = KEPT_ALIGNMENT;
        let blocks = |ranges: &[(u64, u64)]| -> RangeSet {
            ranges.iter().map(|(start, end)| ByteRange::new(start * BLOCK, end * BLOCK)).collect()
        };
        let dir = tempfile::tempdir().unwrap();
        let (size, range) = (Bytes::new(48 * BLOCK), ByteRange::new(16 * BLOCK, 32 * BLOCK));
        let slice = FileSlice { size, range, ..slice_in(dir.path(), true) };
        let kept = || slice.open().unwrap().kept_of_slice().unwrap().clone();
        let mut half = blocks(&[(0, 18)]);
        half.insert(ByteRange::new(20 * BLOCK + 1, 23 * BLOCK + 1));
        // Other ranges are committed; blocks are whole; less than before changes nothing; the last
        // block is always fetched.
        for (written, expected) in [
            (blocks(&[(0, 16), (32, 48)]), blocks(&[])),
            (half, blocks(&[(16, 18), (21, 23)])),
            (blocks(&[(0, 17)]), blocks(&[(16, 18), (21, 23)])),
            (blocks(&[(0, 48)]), blocks(&[(16, 31)])),
        ] {
            slice.open().unwrap().keep_slice(&written).unwrap();
            assert_eq!(kept(), expected);
        }
        assert_eq!(slice.committed(Some(&kept())), blocks(&[(0, 31), (32, 48)]));
        let many: RangeSet = (0..999).map(|n| ByteRange::new(2 * n * BLOCK, (2 * n + 1) * BLOCK)).collect();
        let text = kept_text(7, ByteRange::new(0, 4000 * BLOCK), &many);
        assert!(text.len() <= MAX_LINK_TEXT && text.len() > MAX_LINK_TEXT - 50, "{text}");
        for (text, is_read) in [
            ("7 1048576-1114112", true),
            ("8 1048576-1114112", false),
            ("7 0-65536", false),
            ("7 x", false),
            ("", false),
        ] {
            assert_eq!(kept_in(text, 7, range).total() > Bytes::ZERO, is_read, "{text}");
        }
        // A file that was made anew has nothing.
        fs::remove_file(dir.path().join("f")).unwrap();
        assert_eq!(kept(), RangeSet::new());
    }

    #[test]
    fn identity_is_fixed_once_however_long_it_is() {
        let tag = |text: &str| Identity::ETag(ETag::parse(&format!("\"{text}\"")).unwrap());
        for (first, other, shown) in [
            (tag("v1"), tag("v2"), "\"v1\""),
            (tag(&"1".repeat(9000)), tag(&"2".repeat(9000)), "another one"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let slice = slice_in(dir.path(), true);
            assert_eq!(slice.fix_identity(&first).unwrap(), None);
            assert_eq!(slice.fix_identity(&first).unwrap(), None);
            assert_eq!(slice.fix_identity(&other).unwrap().as_deref(), Some(shown));
        }
    }
}
