//! The file under its temporary name: locked, its space reserved, then renamed at once.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use longhaul_core::ranges::RangeSet;
use longhaul_core::units::Bytes;
use rustix::fs::{FallocateFlags, FileType, FlockOperation, OFlags, fallocate, flock, fstatvfs};
use rustix::io::Errno;
use thiserror::Error;

use super::directory::Directory;
use super::journal::Journal;

/// Why the output could not be made.
#[derive(Debug, Error)]
pub enum OutputError {
    /// The directory is missing, read-only, or refuses the file.
    #[error("cannot create {path}: {source}")]
    Create {
        /// The temporary file or its directory.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// The target's name is taken by a directory.
    #[error(
        "cannot write {0}: it is a directory; give a file name, or end the path with / to put the file into it"
    )]
    IsDirectory(PathBuf),
    /// The target is a device, a pipe or a socket.
    #[error(
        "cannot write {0}: it is not a regular file, and longhaul writes nothing else; give another name"
    )]
    NotAFile(PathBuf),
    /// A name that came from the server or the URL is taken.
    #[error("{0} exists; pass -o {0} to replace it")]
    Exists(PathBuf),
    /// Another transfer is writing this file.
    #[error("{0} is being written by another longhaul; wait for it, or give another name with -o")]
    Busy(PathBuf),
    /// The file does not fit.
    #[error("cannot reserve {size} ({bytes} bytes) for {path}: {source}; free some space or write elsewhere", bytes = size.get())]
    Reserve {
        /// The temporary file.
        path: PathBuf,
        /// Its size.
        size: Bytes,
        /// What the kernel says.
        source: io::Error,
    },
    /// The chosen writer cannot write here.
    #[error("cannot write {path} with --writer {writer}: {source}")]
    Writer {
        /// The temporary file.
        path: PathBuf,
        /// The writer's name.
        writer: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A write, a sync or the final rename failed.
    #[error("cannot {operation} {path}: {source}")]
    Write {
        /// What was being done.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
}

const PART: &str = ".longhaul-part";
const JOURNAL: &str = ".longhaul-journal";
/// A journal that is not yet whole.
const JOURNAL_FRESH: &str = ".longhaul-journal~";

/// Returns whether `name` is one of a partial file or its journal: a server that could choose such a
/// name could make another transfer go on from content of its own.
pub fn is_partial(name: impl AsRef<[u8]>) -> bool {
    [PART, JOURNAL, JOURNAL_FRESH].iter().any(|suffix| name.as_ref().ends_with(suffix.as_bytes()))
}

/// Returns whether `name` is one of a partial file, which takes the space of a whole one.
pub fn is_part(name: &[u8]) -> bool {
    name.ends_with(PART.as_bytes())
}

/// The partial file of a transfer. Kept when dropped, so that the next run resumes, unless discarded.
#[derive(Debug)]
pub struct PartFile {
    directory: Directory,
    /// Names within the directory.
    target: OsString,
    part: OsString,
    journal: OsString,
    /// The same two as paths, for messages.
    target_path: PathBuf,
    part_path: PathBuf,
    file: File,
}

impl PartFile {
    /// Opens the partial file of `target`, or makes it, and locks it against other transfers.
    ///
    /// # Errors
    /// [`OutputError`]: the target is a directory, the part cannot be made, or somebody else writes it.
    pub fn open(target: &Path) -> Result<Self, OutputError> {
        if target.is_dir() {
            return Err(OutputError::IsDirectory(target.to_owned()));
        }
        let parent = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = target.file_name().unwrap_or_default();
        let failed = |source| OutputError::Create { path: parent.join(beside(name, PART)), source };
        let mut part = Self::open_in(Directory::open(parent).map_err(failed)?, name)?;
        // As the user wrote it.
        part.target_path = target.to_owned();
        Ok(part)
    }

    /// Does the same for a name in an open directory.
    ///
    /// # Errors
    /// As of [`PartFile::open`].
    pub fn open_in(directory: Directory, target: &OsStr) -> Result<Self, OutputError> {
        let (part, journal) = (beside(target, PART), beside(target, JOURNAL));
        let (target_path, part_path) = (directory.path_of(target), directory.path_of(&part));
        if directory.look(target, true).is_ok_and(|there| FileType::from_raw_mode(there.st_mode).is_dir()) {
            return Err(OutputError::IsDirectory(target_path));
        }
        let failed = |source| OutputError::Create { path: part_path.clone(), source };
        loop {
            let file = directory.open_file(&part, OFlags::CREATE).map_err(failed)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                // Some cluster file systems have no locks; two transfers to one name are then the user's to avoid.
                Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => {}
                Err(Errno::WOULDBLOCK) => return Err(OutputError::Busy(target_path)),
                Err(error) => return Err(failed(error.into())),
            }
            // Another run may have renamed this very file to its final name before we held the lock.
            let ours = identity(&file).map_err(failed)?;
            if directory.look(&part, false).is_ok_and(|there| (there.st_dev, there.st_ino) == ours) {
                let target = target.to_owned();
                return Ok(Self { directory, target, part, journal, target_path, part_path, file });
            }
        }
    }

    /// Returns the open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Opens the file once more: another open file description hears of write-back errors by itself, and
    /// has a position of its own.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn reopen(&self) -> io::Result<File> {
        File::options().read(true).write(true).open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// Returns the device and the inode, which tell it from every other file that is there.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        identity(&self.file)
    }

    /// Returns the final name.
    pub fn target(&self) -> &Path {
        &self.target_path
    }

    /// Returns the temporary name.
    pub fn path(&self) -> &Path {
        &self.part_path
    }

    /// Returns where the journal stands.
    pub fn journal_path(&self) -> PathBuf {
        self.directory.path_of(&self.journal)
    }

    /// Returns the journal of an earlier run, where it is sound and its partial file is there.
    pub fn journal(&self) -> Option<Journal> {
        sound_journal(&self.directory, &self.journal, self.file.metadata().ok()?.len())
    }

    /// Writes the journal with these committed ranges, replacing the last one atomically.
    ///
    /// # Errors
    /// What the kernel says of the directory.
    pub fn store(&self, journal: &Journal, committed: &RangeSet) -> io::Result<()> {
        let fresh = self.fresh_journal();
        let write = || {
            let mut file = self.directory.open_file(&fresh, OFlags::CREATE | OFlags::TRUNC)?;
            file.write_all(&journal.encode(committed)?)?;
            file.sync_data()?;
            self.directory.rename(&fresh, &self.journal)
        };
        write().inspect_err(|_| self.remove(&fresh))
    }

    /// Forgets the journal, for good: what is in the file is of no use any more.
    ///
    /// # Errors
    /// [`OutputError::Create`].
    pub fn start_over(&self) -> Result<(), OutputError> {
        self.remove(&self.fresh_journal());
        let removed = self.directory.remove(&self.journal).and_then(|()| self.directory.sync());
        match removed {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(OutputError::Create { path: self.journal_path(), source })
            }
            _ => Ok(()),
        }
    }

    /// Drops the content, where none is reserved.
    ///
    /// # Errors
    /// [`OutputError::Create`].
    pub fn empty(&self) -> Result<(), OutputError> {
        let emptied = self.file.set_len(0);
        emptied.map_err(|source| OutputError::Create { path: self.part_path.clone(), source })
    }

    /// Reserves the file's space on disk, so that a full disk is found out before the first byte.
    ///
    /// # Errors
    /// [`OutputError::Reserve`] where it does not fit; the file and its journal are then as they were.
    pub fn reserve(&self, size: Bytes) -> Result<(), OutputError> {
        let failed = |source: io::Error| OutputError::Reserve { path: self.part_path.clone(), size, source };
        let before = self.file.metadata().map_err(failed)?;
        if size > Bytes::ZERO {
            match fallocate(&self.file, FallocateFlags::empty(), 0, size.get()) {
                Ok(()) => {}
                // Some file systems cannot reserve; then at least the room must be there now.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    let fs = fstatvfs(&self.file).map_err(|e| failed(e.into()))?;
                    // An earlier run's part has some of it already; blocks are counted in 512 bytes.
                    let held = before.blocks() * 512;
                    if fs.f_bavail.saturating_mul(fs.f_frsize).saturating_add(held) < size.get() {
                        return Err(failed(io::ErrorKind::StorageFull.into()));
                    }
                }
                Err(error) => {
                    // Gives back what was reserved before the disk was full.
                    let _ = self.file.set_len(before.len());
                    return Err(failed(error.into()));
                }
            }
        }
        self.file.set_len(size.get()).map_err(failed)
    }

    /// Makes the content durable and gives the file its final name, atomically; returns that.
    ///
    /// # Errors
    /// [`OutputError::Write`]; the partial file then stays.
    pub fn finish(&self, replace: bool) -> Result<PathBuf, OutputError> {
        let target = &self.target_path;
        let failed = |operation, source| OutputError::Write { operation, path: target.clone(), source };
        self.file.sync_all().map_err(|e| failed("sync", e))?;
        if replace {
            let renamed = self.directory.rename(&self.part, &self.target);
            renamed.map_err(|e| failed("give the final name to", e))?;
        } else {
            self.directory.rename_new(&self.part, &self.target).map_err(|e| match e.kind() {
                io::ErrorKind::AlreadyExists => OutputError::Exists(target.clone()),
                _ => failed("give the final name to", e),
            })?;
        }
        // At once: the temporary name is free now, and another transfer may begin under it.
        self.remove(&self.journal);
        self.remove(&self.fresh_journal());
        self.sync_names().map_err(|e| failed("sync the directory of", e))?;
        Ok(target.clone())
    }

    /// Makes durable what names the directory holds: the partial file's, and its journal's.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn sync_names(&self) -> io::Result<()> {
        self.directory.sync()
    }

    /// Removes the partial file and its journal: nothing of it can be used.
    ///
    /// Does nothing where it has lost its name, for what has that now is another transfer's.
    pub fn discard(&self) {
        let named = self.directory.look(&self.part, false);
        if named.is_ok_and(|there| self.identity().is_ok_and(|ours| (there.st_dev, there.st_ino) == ours)) {
            // The lock goes with the file's name, hence the last.
            for name in [&self.fresh_journal(), &self.journal, &self.part] {
                self.remove(name);
            }
        }
    }

    /// Removes it unless it has a journal, with which somebody can go on.
    pub fn abandon(&self) {
        if self.journal().is_none() {
            self.discard();
        }
    }

    /// Returns the name of a journal that is not yet whole.
    fn fresh_journal(&self) -> OsString {
        let mut name = self.journal.clone();
        name.push("~");
        name
    }

    /// Removes what may not be there.
    fn remove(&self, name: &OsStr) {
        let _ = self.directory.remove(name);
    }
}

/// Returns a file's device and inode.
fn identity(file: &File) -> io::Result<(u64, u64)> {
    let meta = file.metadata()?;
    Ok((meta.dev(), meta.ino()))
}

/// Returns the journal of what is there of `target`, whoever may be writing it.
pub fn journal_of(directory: &Directory, target: &OsStr) -> Option<Journal> {
    let part = directory.look(&beside(target, PART), false).ok()?;
    sound_journal(directory, &beside(target, JOURNAL), u64::try_from(part.st_size).ok()?)
}

/// Reads a journal; `None` where it is not sound, or not of a partial file of this length.
fn sound_journal(directory: &Directory, name: &OsStr, length: u64) -> Option<Journal> {
    Journal::decode(&directory.read(name).ok()?).filter(|journal| journal.size == length)
}

/// Returns `target` with `suffix`; a name near the limit of 255 bytes is shortened by its hash.
fn beside(target: &OsStr, suffix: &str) -> OsString {
    const LONGEST: usize = 255;
    let name = target.as_bytes();
    // One more byte for the journal's own temporary name.
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

#[cfg(test)]
mod tests {
    use std::fs;

    use longhaul_core::proto::http::Validator;
    use longhaul_core::ranges::ByteRange;

    use super::*;

    #[test]
    fn becomes_the_target_at_once_and_leaves_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("file");
        fs::write(&target, "old").unwrap();
        let part = PartFile::open(&target).unwrap();
        part.reserve(Bytes::new(3)).unwrap();
        fs::write(part.path(), "new").unwrap();
        let journal = Journal::new("u", "u".into(), Bytes::new(3), &Validator::parse("\"a\"").unwrap());
        part.store(&journal, &RangeSet::new()).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"old");
        assert_eq!(part.finish(true).unwrap(), target);
        assert_eq!(fs::read(&target).unwrap(), b"new");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_name_of_the_servers_replaces_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("file");
        let part = PartFile::open(&target).unwrap();
        fs::write(&target, "precious").unwrap();
        assert!(matches!(part.finish(false), Err(OutputError::Exists(_))));
        assert_eq!(fs::read(&target).unwrap(), b"precious");
    }

    #[test]
    fn one_writer_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("file");
        let first = PartFile::open(&target).unwrap();
        assert!(matches!(PartFile::open(&target), Err(OutputError::Busy(_))));
        drop(first);
        assert!(PartFile::open(&target).is_ok());
    }

    #[test]
    fn what_does_not_fit_is_refused_before_the_first_byte() {
        let dir = tempfile::tempdir().unwrap();
        let part = PartFile::open(&dir.path().join("file")).unwrap();
        for size in [Bytes::new(1 << 50), Bytes::new(u64::MAX)] {
            assert!(matches!(part.reserve(size), Err(OutputError::Reserve { .. })), "{size}");
        }
        part.discard();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_does_not_fit_leaves_an_earlier_part_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let part = PartFile::open(&dir.path().join("file")).unwrap();
        part.reserve(Bytes::new(100)).unwrap();
        let journal = Journal::new("u", "u".into(), Bytes::new(100), &Validator::parse("\"a\"").unwrap());
        part.store(&journal, &[ByteRange::new(0, 10)].into_iter().collect()).unwrap();
        let before = part.journal();
        assert!(part.reserve(Bytes::new(1 << 50)).is_err());
        part.abandon();
        assert!(before.is_some() && part.journal() == before);
    }

    #[test]
    fn nothing_of_another_transfer_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let first = PartFile::open(&dir.path().join("file")).unwrap();
        first.finish(true).unwrap();
        let second = PartFile::open(&dir.path().join("file")).unwrap();
        first.discard();
        assert!(second.path().exists() && second.identity().unwrap() != first.identity().unwrap());
        second.discard();
        assert!(!second.path().exists());
    }

    #[test]
    fn half_a_journal_is_not_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let part = PartFile::open(&dir.path().join("file")).unwrap();
        let half = dir.path().join("file.longhaul-journal~");
        let journal = Journal::new("u", "u".into(), Bytes::ZERO, &Validator::parse("\"a\"").unwrap());
        // A directory in the way of the last step.
        fs::create_dir(part.journal_path()).unwrap();
        assert!(part.store(&journal, &RangeSet::new()).is_err() && !half.exists());
        fs::remove_dir(part.journal_path()).unwrap();
        fs::write(&half, "{").unwrap();
        part.start_over().unwrap();
        assert!(!half.exists());
        fs::write(&half, "{").unwrap();
        part.finish(true).unwrap();
        assert!(!half.exists());
    }

    #[test]
    fn the_journal_comes_back_as_stored_and_only_with_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let part = PartFile::open(&dir.path().join("file")).unwrap();
        let ranges: RangeSet = [ByteRange::new(0, 10), ByteRange::new(50, 100)].into_iter().collect();
        let journal = Journal::new("u", "u".into(), Bytes::new(100), &Validator::parse("\"a\"").unwrap());
        part.store(&journal, &ranges).unwrap();
        assert_eq!(part.journal(), None, "the part is shorter than its journal says");
        part.reserve(Bytes::new(100)).unwrap();
        assert_eq!(part.journal().unwrap().committed(), ranges);
        let directory = Directory::open(dir.path()).unwrap();
        assert_eq!(journal_of(&directory, OsStr::new("file")), part.journal());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        part.discard();
        assert_eq!(journal_of(&directory, OsStr::new("file")), None);
    }

    #[test]
    fn the_longest_names_fit() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = ("x".repeat(254) + "1", "x".repeat(254) + "2");
        let first = PartFile::open(&dir.path().join(&one)).unwrap();
        let second = PartFile::open(&dir.path().join(&other)).unwrap();
        assert_ne!(first.path(), second.path());
        assert_eq!(second.finish(true).unwrap(), dir.path().join(other));
    }

    #[test]
    fn a_directory_is_no_target() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(PartFile::open(dir.path()), Err(OutputError::IsDirectory(_))));
        assert!(matches!(PartFile::open(&dir.path().join("no/file")), Err(OutputError::Create { .. })));
    }
}
