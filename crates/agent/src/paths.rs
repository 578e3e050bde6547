//! The paths of the agent's files.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use longhaul_engine::user_state;
use longhaul_sys::atomic_file;
use longhaul_sys::if_exists::if_exists;
use rustix::process::geteuid;

/// Hexadecimal digits of the hash that tells state directories apart: enough for those of one user.
const STATE_DIGITS: usize = 12;

// The names in the state directory.

/// The lock file that the running agent holds.
pub(crate) const LOCK: &str = "agent.lock";
/// The queue's database.
pub(crate) const DATABASE: &str = "queue.db";
/// The key for sealing requests.
pub(crate) const KEY: &str = "agent.key";
/// The key of a farm, of which all of its agents have a copy.
pub(crate) const FARM_KEY: &str = "farm.key";
/// The dashboard's token.
pub(crate) const TOKEN: &str = "agent.token";
/// The token that permits downloads alone.
pub(crate) const DOWNLOAD_TOKEN: &str = "download.token";
/// The log of an agent started on demand.
pub const LOG: &str = "agent.log";
/// The directory of records.
pub(crate) const RECORDS: &str = "records";
/// The directory of records of a farm's transfers.
pub(crate) const FARM_RECORDS: &str = "farm-records";

/// The directories of one agent.
#[derive(Debug, Clone)]
pub struct AgentPaths {
    /// Persistent files: the queue, the key, records.
    pub state: PathBuf,
    /// Files that do not survive a reboot: the socket.
    pub runtime: PathBuf,
}

impl AgentPaths {
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
    /// The kernel's error; `PermissionDenied` if a directory belongs to another user, or is
    /// accessible to others.
    pub fn make(&self) -> io::Result<()> {
        private_directory(&self.state)?;
        private_directory(&self.state.join(RECORDS))?;
        private_directory(&self.state.join(FARM_RECORDS))?;
        private_directory(&self.runtime)
    }

    /// Returns the path of the socket. The agents of several state directories, as of several homes
    /// of one user, share the directory of sockets.
    pub fn socket(&self) -> PathBuf {
        let state = blake3::hash(resolved(&self.state).as_os_str().as_bytes()).to_hex();
        self.runtime.join(format!("agent-{}.sock", &state[..STATE_DIGITS]))
    }

    /// Returns the path of a link to the socket of the first of these agents, for other programs.
    pub fn socket_link(&self) -> PathBuf {
        self.runtime.join("agent.sock")
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

/// Creates a file, if missing, to which only this user has access.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let file = options.append(true).create(true).mode(0o600).open(path)?;
    if file.metadata()?.mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// Returns a path without symbolic links, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let resolve = |above: &Path| {
        let (real, rest) = (above.canonicalize().ok()?, path.strip_prefix(above).ok()?);
        Some(if rest.as_os_str().is_empty() { real } else { real.join(rest) })
    };
    path.ancestors().find_map(resolve).unwrap_or_else(|| path.to_owned())
}

/// Reads a small secret, or creates it by `fresh` and stores it durably; readable by this user
/// only.
///
/// # Errors
/// The kernel's error.
pub(crate) fn kept_secret(path: &Path, fresh: impl FnOnce() -> Vec<u8>) -> io::Result<Vec<u8>> {
    /// The maximum size of a stored secret in bytes.
    const MAX_SECRET: u64 = 1024;
    if let Some(file) = if_exists(File::open(path))? {
        if file.metadata()?.mode() & 0o077 != 0 {
            file.set_permissions(Permissions::from_mode(0o600))?;
        }
        let mut secret = Vec::new();
        file.take(MAX_SECRET).read_to_end(&mut secret)?;
        return Ok(secret);
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
        let paths = AgentPaths { state: dir.path().join("a/state"), runtime: dir.path().join("run") };
        std::fs::create_dir_all(&paths.runtime).unwrap();
        std::fs::set_permissions(&paths.runtime, Permissions::from_mode(0o755)).unwrap();
        paths.make().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(
            (mode(&paths.state), mode(&paths.runtime), mode(&paths.state.join(RECORDS))),
            (0o700, 0o700, 0o700)
        );
        let first = kept_secret(&paths.state.join(KEY), || vec![1, 2, 3]).unwrap();
        std::fs::set_permissions(paths.state.join(KEY), Permissions::from_mode(0o644)).unwrap();
        let second = kept_secret(&paths.state.join(KEY), || vec![4]).unwrap();
        assert_eq!((first, mode(&paths.state.join(KEY))), (second, 0o600));
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        let other = AgentPaths { state: dir.path().join("b/state"), ..paths.clone() };
        std::os::unix::fs::symlink("a", &link).unwrap();
        let same = AgentPaths { state: link.join("state"), ..paths.clone() };
        assert!(paths.socket() != other.socket() && paths.socket() == same.socket());
        std::fs::write(&file, "").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        make_private(&file).unwrap();
        assert_eq!(mode(&file), 0o600);
        assert!(private_directory(&file).is_err());
    }
}
