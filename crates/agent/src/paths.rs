//! The paths of the agent's files.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use longhaul_engine::user_state;
use longhaul_sys::atomic_file;
use rustix::process::geteuid;

/// The directories of one agent.
#[derive(Debug, Clone)]
pub struct Paths {
    /// Persistent files: the queue, the key, records.
    pub state: PathBuf,
    /// Files that do not survive a reboot: the socket.
    pub runtime: PathBuf,
}

impl Paths {
    /// Returns the paths of the user's agent; `None` if the environment defines no home.
    pub fn of_user() -> Option<Self> {
        let state = user_state::directory()?.join("agent");
        let runtime =
            std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
        let runtime = match runtime {
            Some(directory) => directory.join("longhaul"),
            None => PathBuf::from(format!("/tmp/longhaul-{}", geteuid().as_raw())),
        };
        Some(Self { state, runtime })
    }

    /// Creates the directories with access for this user only.
    ///
    /// # Errors
    /// The kernel's error; `PermissionDenied` if a directory belongs to another user, or is accessible to others.
    pub fn make(&self) -> io::Result<()> {
        private_directory(&self.state)?;
        private_directory(&self.records())?;
        private_directory(&self.runtime)
    }

    /// Returns the path of the socket.
    pub fn socket(&self) -> PathBuf {
        self.runtime.join("agent.sock")
    }

    /// Returns the path of the lock file that the running agent holds.
    pub fn lock(&self) -> PathBuf {
        self.state.join("agent.lock")
    }

    /// Returns the path of the queue's database.
    pub fn database(&self) -> PathBuf {
        self.state.join("queue.db")
    }

    /// Returns the path of the key for sealing requests.
    pub fn key(&self) -> PathBuf {
        self.state.join("agent.key")
    }

    /// Returns the path of the dashboard's token.
    pub fn token(&self) -> PathBuf {
        self.state.join("agent.token")
    }

    /// Returns the path of the log of an agent started on demand.
    pub fn log(&self) -> PathBuf {
        self.state.join("agent.log")
    }

    /// Returns the directory of records.
    pub fn records(&self) -> PathBuf {
        self.state.join("records")
    }

    /// Returns the path of a transfer's record.
    pub fn record(&self, id: i64) -> PathBuf {
        self.records().join(format!("{id}.jsonl"))
    }
}

/// Creates a directory accessible to this user only, or checks an existing one.
fn private_directory(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let there = std::fs::symlink_metadata(path)?;
    if !there.is_dir() || there.uid() != geteuid().as_raw() {
        let why = format!("{} is not a directory of this user: remove it", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    if there.mode() & 0o077 != 0 {
        std::fs::set_permissions(path, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Reads a small secret, or creates it by `fresh` and stores it durably; readable by this user only.
///
/// # Errors
/// The kernel's error.
pub(crate) fn kept_secret(path: &Path, fresh: impl FnOnce() -> Vec<u8>) -> io::Result<Vec<u8>> {
    /// The maximum size of a stored secret in bytes.
    const LONGEST: u64 = 1024;
    match OpenOptions::new().read(true).open(path) {
        Ok(file) => {
            if file.metadata()?.mode() & 0o077 != 0 {
                file.set_permissions(Permissions::from_mode(0o600))?;
            }
            let mut secret = Vec::new();
            file.take(LONGEST).read_to_end(&mut secret)?;
            return Ok(secret);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let secret = fresh();
    atomic_file::replace(path, &secret, 0o600)?;
    if let Some(directory) = path.parent() {
        File::open(directory)?.sync_all()?;
    }
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_and_secrets_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths { state: dir.path().join("a/state"), runtime: dir.path().join("run") };
        std::fs::create_dir_all(&paths.runtime).unwrap();
        std::fs::set_permissions(&paths.runtime, Permissions::from_mode(0o755)).unwrap();
        paths.make().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&paths.state), mode(&paths.runtime), mode(&paths.records())), (0o700, 0o700, 0o700));
        let first = kept_secret(&paths.key(), || vec![1, 2, 3]).unwrap();
        std::fs::set_permissions(paths.key(), Permissions::from_mode(0o644)).unwrap();
        let second = kept_secret(&paths.key(), || vec![4]).unwrap();
        assert_eq!((first, mode(&paths.key())), (second, 0o600));
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(private_directory(&file).is_err());
    }
}
