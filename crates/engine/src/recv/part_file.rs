//! The file under its temporary name: locked, its space reserved, then renamed at once.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use longhaul_core::units::Bytes;
use rustix::fs::{FallocateFlags, FlockOperation, OFlags, fallocate, flock, fstatvfs};
use thiserror::Error;

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

/// Returns whether `name` is one of a partial file or its journal: a server that could choose such a
/// name could make another transfer go on from content of its own.
pub fn is_partial(name: &str) -> bool {
    [PART, JOURNAL].iter().any(|suffix| name.ends_with(suffix))
}

/// The partial file of a transfer. Kept when dropped, so that the next run resumes, unless discarded.
#[derive(Debug)]
pub struct PartFile {
    target: PathBuf,
    part: PathBuf,
    journal: PathBuf,
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
        let (part, journal) = (beside(target, PART), beside(target, JOURNAL));
        let failed = |source| OutputError::Create { path: part.clone(), source };
        loop {
            let file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                // The name can be guessed: nobody shall lead us to another file by a link.
                .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
                .open(&part)
                .map_err(failed)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                // Some cluster file systems have no locks; two transfers to one name are then the user's to avoid.
                Err(rustix::io::Errno::NOSYS | rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOLCK) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(OutputError::Busy(target.to_owned())),
                Err(error) => return Err(failed(error.into())),
            }
            // Another run may have renamed this very file to its final name before we held the lock.
            let ours = file.metadata().map_err(failed)?;
            if fs::metadata(&part).is_ok_and(|there| there.ino() == ours.ino() && there.dev() == ours.dev()) {
                return Ok(Self { target: target.to_owned(), part, journal, file });
            }
        }
    }

    /// Returns the open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Opens the file once more: another open file description hears of write-back errors by itself.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn reopen(&self) -> io::Result<File> {
        File::options().read(true).write(true).open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// Returns the final name.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Returns the temporary name.
    pub fn path(&self) -> &Path {
        &self.part
    }

    /// Returns where the journal stands.
    pub fn journal_path(&self) -> &Path {
        &self.journal
    }

    /// Returns the journal of an earlier run, where it is sound and its partial file is there.
    pub fn journal(&self) -> Option<Journal> {
        let journal = Journal::load(&self.journal)?;
        self.file.metadata().is_ok_and(|meta| meta.len() == journal.size).then_some(journal)
    }

    /// Empties the file and forgets its journal.
    ///
    /// # Errors
    /// [`OutputError::Create`].
    pub fn start_over(&self) -> Result<(), OutputError> {
        let failed = |path: &Path, source| OutputError::Create { path: path.to_owned(), source };
        match fs::remove_file(&self.journal) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&self.journal, error)),
            // Gone before the data is: a journal of a file without it would be believed.
            _ => self.file.set_len(0).map_err(|error| failed(&self.part, error)),
        }
    }

    /// Reserves the file's space on disk, so that a full disk is found out before the first byte.
    ///
    /// # Errors
    /// [`OutputError::Reserve`] where it does not fit; a fresh partial file is removed again by the caller.
    pub fn reserve(&self, size: Bytes) -> Result<(), OutputError> {
        let failed = |source: io::Error| OutputError::Reserve { path: self.part.clone(), size, source };
        if size > Bytes::ZERO {
            match fallocate(&self.file, FallocateFlags::empty(), 0, size.get()) {
                Ok(()) => {}
                // Some file systems cannot reserve; then at least the room must be there now.
                Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                    let fs = fstatvfs(&self.file).map_err(|e| failed(e.into()))?;
                    // An earlier run's part has some of it already; blocks are counted in 512 bytes.
                    let held = self.file.metadata().map_err(failed)?.blocks() * 512;
                    if fs.f_bavail.saturating_mul(fs.f_frsize).saturating_add(held) < size.get() {
                        return Err(failed(io::ErrorKind::StorageFull.into()));
                    }
                }
                Err(error) => return Err(failed(error.into())),
            }
        }
        self.file.set_len(size.get()).map_err(failed)
    }

    /// Makes the content durable and gives the file its final name, atomically.
    ///
    /// # Errors
    /// [`OutputError::Write`]; the partial file then stays.
    pub fn finish(self, replace: bool) -> Result<PathBuf, OutputError> {
        let failed = |operation, source| OutputError::Write { operation, path: self.target.clone(), source };
        self.file.sync_all().map_err(|e| failed("sync", e))?;
        if replace {
            fs::rename(&self.part, &self.target).map_err(|e| failed("give the final name to", e))?;
        } else {
            rename_new(&self.part, &self.target).map_err(|e| match e.kind() {
                io::ErrorKind::AlreadyExists => OutputError::Exists(self.target.clone()),
                _ => failed("give the final name to", e),
            })?;
        }
        let directory = self.target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory).and_then(|d| d.sync_all()).map_err(|e| failed("sync the directory of", e))?;
        let _ = fs::remove_file(&self.journal);
        Ok(self.target)
    }

    /// Removes the partial file and its journal: nothing of it can be used.
    pub fn discard(self) {
        let _ = fs::remove_file(&self.journal);
        let _ = fs::remove_file(&self.part);
    }
}

/// Renames without replacing, where the file system can; else checks first.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) if !to.exists() => fs::rename(from, to),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => Err(io::ErrorKind::AlreadyExists.into()),
        done => done.map_err(io::Error::from),
    }
}

/// Returns `target` with `suffix`, in the same directory; a name near the limit of 255 bytes is shortened by its hash.
fn beside(target: &Path, suffix: &str) -> PathBuf {
    const LONGEST: usize = 255;
    let name = target.file_name().unwrap_or_default().as_bytes();
    // One more byte for the journal's own temporary name.
    if name.len() + suffix.len() < LONGEST {
        let mut path = target.as_os_str().to_owned();
        path.push(suffix);
        return path.into();
    }
    let hash = blake3::hash(name).to_hex();
    let mut short = name[..100].to_vec();
    short.extend_from_slice(&hash.as_bytes()[..16]);
    short.extend_from_slice(suffix.as_bytes());
    target.with_file_name(std::ffi::OsString::from_vec(short))
}

#[cfg(test)]
mod tests {
    use longhaul_core::proto::http::Validator;
    use longhaul_core::ranges::RangeSet;

    use super::*;

    #[test]
    fn becomes_the_target_at_once_and_leaves_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("file");
        fs::write(&target, "old").unwrap();
        let part = PartFile::open(&target).unwrap();
        part.reserve(Bytes::new(3)).unwrap();
        fs::write(part.path(), "new").unwrap();
        Journal::new("u", "u".into(), Bytes::new(3), &Validator::parse("\"a\"").unwrap())
            .store(part.journal_path(), &RangeSet::new())
            .unwrap();
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
