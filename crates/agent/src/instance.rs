//! Limits each user to one agent, by a lock file that contains the process id.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;

use crate::error::AgentError;
use crate::paths::{self, AgentPaths};

/// The lock held while the agent runs; released by the kernel at process exit.
#[derive(Debug)]
pub(crate) struct Instance {
    _lock: File,
}

impl Instance {
    /// Takes the lock.
    ///
    /// # Errors
    /// [`AgentError::Running`] if another agent holds the lock or answers on the socket;
    /// [`AgentError::File`].
    pub(crate) fn take(paths: &AgentPaths) -> Result<Self, AgentError> {
        let path = paths.state.join(paths::LOCK);
        let failed = |source| AgentError::file("lock", &path, source);
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(AgentError::Running { pid: pid(&mut file) }),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // The file of the lock may have been removed, while its agent runs.
        if UnixStream::connect(paths.socket()).is_ok() {
            return Err(AgentError::Running { pid: None });
        }
        let write = |file: &mut File| -> io::Result<()> {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        write(&mut file).map_err(failed)?;
        Ok(Self { _lock: file })
    }
}

/// Reads the id of the process that holds the lock.
fn pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
