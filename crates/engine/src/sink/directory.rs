//! An open directory: entries are accessed relative to it, independent of later renames of its
//! path.

mod ownership;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, MemfdFlags, Mode, OFlags, PROC_SUPER_MAGIC, RenameFlags, Stat};
use rustix::io::Errno;

use ownership::CREATED_MODE;
pub(super) use ownership::is_of_others;

/// The flags for opening a directory: for looking up names, which requires no read permission.
const OPEN: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// An open directory. Each `name` is that of an entry, without a slash.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Directory {
    /// Opens a directory, which need not be readable; an empty path is the working directory.
    ///
    /// # Errors
    /// The kernel's error on the path.
    pub fn open(path: &Path) -> io::Result<Self> {
        let fd = rustix::fs::openat(CWD, or_here(path), OPEN, Mode::empty())?;
        Ok(Self { fd, path: path.to_owned() })
    }

    /// Opens the directory at `path` relative to this one; an absolute path starts at the root.
    ///
    /// # Errors
    /// The kernel's error on the path.
    pub fn subdirectory(&self, path: &Path) -> io::Result<Self> {
        let fd = rustix::fs::openat(&self.fd, or_here(path), OPEN, Mode::empty())?;
        Ok(Self { fd, path: self.path.join(path) })
    }

    /// Opens a directory below this one without following symbolic links; an empty path is this
    /// directory.
    ///
    /// # Errors
    /// `NotADirectory` for a link or a file in the path, `InvalidInput` for a path that leads
    /// elsewhere, else the kernel's error.
    pub fn beneath(&self, path: &Path) -> io::Result<Self> {
        let mut directory = self.try_clone()?;
        for component in path.components() {
            let Component::Normal(name) = component else { return Err(io::ErrorKind::InvalidInput.into()) };
            let opened = rustix::fs::openat(&directory.fd, name, OPEN | OFlags::NOFOLLOW, Mode::empty());
            let fd = opened.map_err(|error| match error {
                Errno::NOTDIR | Errno::LOOP => {
                    let what = directory.in_the_way(name);
                    io::Error::new(
                        io::ErrorKind::NotADirectory,
                        format!("{what} stands in the place of a directory"),
                    )
                }
                error => error.into(),
            })?;
            directory = Self { fd, path: directory.path.join(name) };
        }
        Ok(directory)
    }

    fn in_the_way(&self, name: &OsStr) -> &'static str {
        match self.look(name, false).map(|there| FileType::from_raw_mode(there.st_mode)) {
            Ok(FileType::Symlink) => "a symbolic link",
            _ => "a file",
        }
    }

    /// Creates a directory below this one if missing; all but the last name of `path` must exist.
    ///
    /// # Errors
    /// See [`beneath`](Self::beneath).
    pub fn make_beneath(&self, path: &Path) -> io::Result<()> {
        self.make_beneath_with(path, 0o777)
    }

    /// Creates a directory as [`make_beneath`](Self::make_beneath) does, with at most these
    /// permissions.
    ///
    /// # Errors
    /// See [`beneath`](Self::beneath).
    pub fn make_beneath_with(&self, path: &Path, mode: u32) -> io::Result<()> {
        let Some(name) = path.file_name() else { return Ok(()) };
        let above = self.beneath(path.parent().unwrap_or(Path::new("")))?;
        match rustix::fs::mkdirat(&above.fd, name, Mode::from_raw_mode(mode & 0o777)) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => above.beneath(Path::new(name)).map(drop),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens an unnamed file, which is deleted on close; in memory if the file system supports
    /// none.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn temporary(&self) -> io::Result<File> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.fd, ".", flags, Mode::from_raw_mode(0o600)) {
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => {
                Ok(rustix::fs::memfd_create("longhaul", MemfdFlags::CLOEXEC)?.into())
            }
            opened => Ok(opened?.into()),
        }
    }

    /// Wraps an open directory; `path` is for messages.
    pub fn from_fd(fd: OwnedFd, path: PathBuf) -> Self {
        Self { fd, path }
    }

    /// Duplicates the descriptor.
    ///
    /// # Errors
    /// The kernel's error if no descriptor is free.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()?, path: self.path.clone() })
    }

    /// Returns the device and inode.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let found = rustix::fs::fstat(&self.fd)?;
        Ok((found.st_dev, found.st_ino))
    }

    /// Returns the path of an entry, for messages.
    pub fn path_of(&self, name: &OsStr) -> PathBuf {
        self.path.join(name)
    }

    /// Reads the metadata of an entry; `through` follows a symbolic link.
    ///
    /// # Errors
    /// ENOENT or another error of the kernel.
    pub fn look(&self, name: &OsStr, through: bool) -> io::Result<Stat> {
        let flags = if through { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        Ok(rustix::fs::statat(&self.fd, name, flags)?)
    }

    /// Returns whether an entry is a directory, or a link to one.
    pub fn is_directory(&self, name: &OsStr) -> bool {
        self.look(name, true).is_ok_and(|there| FileType::from_raw_mode(there.st_mode).is_dir())
    }

    /// Returns whether the directory is part of /proc, where names do not refer to files.
    pub fn is_of_processes(&self) -> bool {
        rustix::fs::fstatfs(&self.fd).is_ok_and(|fs| fs.f_type == PROC_SUPER_MAGIC)
    }

    /// Reads the target of a symbolic link.
    ///
    /// # Errors
    /// EINVAL if the entry is not a link, or another error of the kernel.
    pub fn read_link(&self, name: &OsStr) -> io::Result<PathBuf> {
        let to = rustix::fs::readlinkat(&self.fd, name, Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(to.into_bytes())))
    }

    /// Opens an existing file for reading and writing without following a symbolic link, because
    /// the name may be predictable.
    ///
    /// # Errors
    /// The kernel's error; for a link, what to do about it.
    pub fn open_file(&self, name: &OsStr) -> io::Result<File> {
        self.open_entry(name, OFlags::RDWR, 0)
    }

    /// Opens a file for reading without following a symbolic link, nor blocking on the other end of
    /// a pipe.
    ///
    /// # Errors
    /// The kernel's error; for a link, what to do about it.
    pub fn open_to_read(&self, name: &OsStr) -> io::Result<File> {
        self.open_entry(name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, 0)
    }

    /// Opens a file for reading and writing, or creates it with the permissions of new files; does
    /// not follow a symbolic link.
    pub(super) fn open_or_create(&self, name: &OsStr) -> io::Result<File> {
        self.open_entry(name, OFlags::CREATE | OFlags::RDWR, 0o666)
    }

    fn open_entry(&self, name: &OsStr, flags: OFlags, mode: u32) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(mode)) {
            Err(Errno::LOOP) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a symbolic link has this name, and is not followed; remove the link",
            )),
            opened => Ok(opened?.into()),
        }
    }

    /// Creates a symbolic link, which exists with its text or not at all.
    ///
    /// # Errors
    /// `AlreadyExists`, or another error of the kernel.
    pub fn make_link(&self, text: &str, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(text, &self.fd, name)?)
    }

    /// Creates a file that only its owner may write to, whatever the umask permits.
    ///
    /// # Errors
    /// `AlreadyExists`, or another error of the kernel.
    pub fn create_file(&self, name: &OsStr) -> io::Result<File> {
        self.create(name, CREATED_MODE)
    }

    fn create(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        self.open_entry(name, OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, mode)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())?)
    }

    /// Renames an entry, replacing an existing one.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.fd, from, &self.fd, to)?)
    }

    /// Renames without replacing: atomically if the file system supports it, else by a link and
    /// removal of the old name.
    ///
    /// # Errors
    /// `AlreadyExists`; `Unsupported` if the file system supports neither; else the kernel's error.
    pub fn rename_new(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        match rustix::fs::renameat_with(&self.fd, from, &self.fd, to, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => self.link_new(from, to),
            done => Ok(done?),
        }
    }

    fn link_new(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        match rustix::fs::linkat(&self.fd, from, &self.fd, to, AtFlags::empty()) {
            Err(Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP | Errno::MLINK) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "its file system can neither rename without replacing nor link; choose the name with -o",
            )),
            linked => {
                linked?;
                // The file has its name. The next run recognises a remaining old name as a second
                // link.
                let _ = self.remove(from);
                Ok(())
            }
        }
    }

    /// Makes renames durable if possible, which requires a readable directory, and a file system
    /// that syncs directories.
    ///
    /// # Errors
    /// An error of the device.
    pub fn sync(&self) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let synced = rustix::fs::openat(&self.fd, ".", flags, Mode::empty()).and_then(rustix::fs::fsync);
        match synced {
            Err(Errno::ACCESS | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(()),
            synced => Ok(synced?),
        }
    }
}

/// Returns `.` for an empty path.
fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use longhaul_core::units::Bytes;

    use super::*;

    #[test]
    fn names_stay_in_a_renamed_directory_and_no_rename_overwrites() {
        let above = tempfile::tempdir().unwrap();
        let (here, there) = (above.path().join("here"), above.path().join("there"));
        fs::create_dir(&here).unwrap();
        let directory = Directory::open(&here).unwrap();
        fs::rename(&here, &there).unwrap();
        drop(directory.create_file(OsStr::new("a")).unwrap());
        directory.rename_new(OsStr::new("a"), OsStr::new("b")).unwrap();
        directory.sync().unwrap();
        assert!(there.join("b").exists());
        assert!(directory.read_own(OsStr::new("b"), Bytes::ZERO).unwrap().is_empty());
        drop(directory.create_file(OsStr::new("a")).unwrap());
        let taken = directory.rename_new(OsStr::new("a"), OsStr::new("b")).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        let dir = tempfile::tempdir().unwrap();
        let (part, file) = (dir.path().join("part"), dir.path().join("file"));
        let directory = Directory::open(dir.path()).unwrap();
        let link = || directory.link_new(OsStr::new("part"), OsStr::new("file"));
        fs::write(&part, "new").unwrap();
        fs::write(&file, "made meanwhile").unwrap();
        assert_eq!(link().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&file).unwrap(), b"made meanwhile");
        fs::remove_file(&file).unwrap();
        link().unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert!(!part.exists());
    }

    #[test]
    fn nothing_is_opened_or_created_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        assert!(directory.beneath(Path::new("a/b")).is_ok() && directory.beneath(Path::new("")).is_ok());
        for path in ["link/b", "link", "file", "a/../a", "/a", ".."] {
            assert!(directory.beneath(Path::new(path)).is_err(), "{path}");
        }
        for path in ["link/new", "link", "file", "file/new", "missing/new"] {
            assert!(directory.make_beneath(Path::new(path)).is_err(), "{path}");
        }
        directory.make_beneath(Path::new("a/c")).unwrap();
        directory.make_beneath(Path::new("a/c")).unwrap();
        assert!(dir.path().join("a/c").is_dir() && !dir.path().join("a/new").exists());
        std::os::unix::fs::symlink("elsewhere", dir.path().join("lost")).unwrap();
        assert!(directory.create_file(OsStr::new("lost")).is_err());
        assert!(!dir.path().join("elsewhere").exists());
    }
}
