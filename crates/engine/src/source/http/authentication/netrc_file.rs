//! The .netrc file.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::proto::netrc::netrc_login;
use longhaul_core::units::Bytes;

use crate::cancel::Cancel;
use crate::input_file;
use crate::source::http::authentication::credentials::Credentials;
use crate::source::http::error::HttpError;

/// The maximum size of a .netrc file.
const MAX_NETRC: Bytes = Bytes::mib(16);

/// A file of logins, read at each lookup; a pipe is read once. `Debug` hides the content.
#[derive(Clone, PartialEq, Eq)]
pub struct NetrcFile {
    path: PathBuf,
    /// The content of a pipe.
    content: Option<Arc<[u8]>>,
}

impl fmt::Debug for NetrcFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NetrcFile").field(&self.path).finish()
    }
}

impl NetrcFile {
    /// Sets the path; the file may be missing.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), content: None }
    }

    /// Returns the default file: $NETRC, else ~/.netrc.
    pub(crate) fn usual(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let home = || variable("HOME").map(|home| Path::new(&home).join(".netrc"));
        variable("NETRC").map(PathBuf::from).or_else(home).map(Self::at)
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a pipe, which can be read only once.
    ///
    /// # Errors
    /// See [`input_file::read`].
    pub fn with_pipe_read(self, cancel: &Cancel) -> io::Result<Self> {
        if !input_file::is_pipe(&self.path) {
            return Ok(self);
        }
        let content = input_file::read(&self.path, MAX_NETRC, cancel)?;
        Ok(Self { content: Some(content.into()), ..self })
    }

    /// Returns the login for `host`, or with `takes_default` the file's `default`; a missing file
    /// has no logins.
    ///
    /// Bytes that are not UTF-8 are replaced, so that a comment in another encoding does not
    /// prevent parsing.
    pub(crate) fn login(&self, host: &str, takes_default: bool) -> Result<Option<Credentials>, HttpError> {
        let fail = |why: String| {
            let path = self.path.display();
            let message = format!("cannot read logins from {path}: {why}; correct the file or set NETRC");
            Failure::new(FailureKind::NotFound, message)
        };
        let read = match &self.content {
            Some(content) => Ok(content.to_vec()),
            None => input_file::read_again(&self.path, MAX_NETRC),
        };
        let text = match read {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(fail(error.to_string()).into()),
        };
        let login = netrc_login(&text, host, takes_default).map_err(|error| fail(error.to_string()))?;
        Ok(login.map(Credentials::Basic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comment_in_latin_1_does_not_hide_logins() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("netrc");
        let netrc = NetrcFile::at(&path);
        assert_eq!(netrc.login("h", true).unwrap(), None);
        std::fs::write(&path, b"# f\xfcr h\nmachine h login ann password x\n").unwrap();
        assert_eq!(netrc.login("h", true).unwrap(), Some(Credentials::from_login("ann:x")));
    }
}
