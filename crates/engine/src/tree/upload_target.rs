//! A directory of a server that receives files.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::units::Bytes;
use url::Url;

use super::local_walk::seconds;
use super::upload_walk::UploadFile;
use crate::cancel::Cancel;
use crate::engine::Engine;
use crate::job::TransferOptions;
use crate::sink::directory::Directory;
use crate::source::http::SafeUrl;
use crate::source::listing::{RemoteDirectories, child_url};

/// A directory of a server that receives files. Supports calls from several threads.
pub struct UploadTarget {
    remote: Arc<dyn RemoteDirectories>,
    /// Ends in a slash.
    url: Url,
    /// Whether the server sets an uploaded file's modification time; requested once.
    keeps_times: OnceLock<bool>,
}

impl Engine {
    /// Prepares uploads into the directory at `url`. Sends no request.
    ///
    /// # Errors
    /// [`Failure`] if the URL or the client's settings are invalid.
    pub fn upload_target(&self, url: &Url, options: &TransferOptions) -> Result<UploadTarget, Failure> {
        let spool = std::env::temp_dir();
        let spool = Directory::open(&spool).map_err(|error| {
            let message = format!("cannot open the directory {}: {error}", spool.display());
            Failure::new(FailureKind::Host, message)
        })?;
        let remote = self.remote_directories(url, options, Arc::new(spool))?;
        let mut url = url.clone();
        if !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        Ok(UploadTarget { remote, url, keeps_times: OnceLock::new() })
    }
}

impl UploadTarget {
    /// Returns the URL of a file below the directory, whatever bytes its names have.
    pub fn url_of(&self, below: &Path) -> Url {
        self.child(below, false)
    }

    fn child(&self, below: &Path, is_directory: bool) -> Url {
        let mut names = below.iter().peekable();
        let mut url = self.url.clone();
        while let Some(name) = names.next() {
            url = child_url(&url, name.as_encoded_bytes(), is_directory || names.peek().is_some());
        }
        url
    }

    /// Makes the directory at a path below this one, and those above it; an empty path is this one.
    /// Returns whether it is new.
    ///
    /// # Errors
    /// [`Failure`] after the user's number of retries.
    pub fn make(&self, below: &Path, cancel: &Cancel) -> Result<bool, Failure> {
        let url = self.child(below, true);
        if url.path() == "/" {
            return Ok(false);
        }
        self.remote.make(&url, cancel).map_err(|failure| {
            let shown = SafeUrl::of(&url);
            let message = format!("cannot make the directory {shown} on the server: {failure}");
            Failure::new(failure.kind, message)
        })
    }

    /// Returns the size of a file of the server, if the server states one.
    ///
    /// # Errors
    /// [`Failure`] after the user's number of retries.
    pub fn size_of(&self, url: &Url, cancel: &Cancel) -> Result<Option<Bytes>, Failure> {
        self.remote.look(url, cancel).map(|facts| facts.size)
    }

    /// Returns whether the server already has a file of this size and time.
    ///
    /// If the server sets the time of upload instead, its file must not be older.
    pub fn is_unchanged(&self, file: &UploadFile, cancel: &Cancel) -> bool {
        let Some(modified) = file.modified.filter(|_| !file.is_new) else { return false };
        let Ok(there) = self.remote.look(&file.url, cancel) else { return false };
        let Some(time) = there.modified.and_then(seconds) else { return false };
        // Apache states no length for an empty file.
        let size = there.size.unwrap_or_default();
        let keeps_times = || *self.keeps_times.get_or_init(|| self.remote.keeps_times(&self.url, cancel));
        let same_time = time == modified || (time > modified && !keeps_times());
        size == file.size && same_time
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use crate::sink::memory_budget::AppBuffer;

    #[test]
    fn names_of_any_bytes_stay_below_the_directory() {
        let engine = Engine::new(AppBuffer::Auto);
        for (url, below, expected) in [
            ("http://h/d", &b"f"[..], "http://h/d/f"),
            ("http://h/d/", b"a b/\xff?%", "http://h/d/a%20b/%FF%3F%25"),
            ("ftp://h/", b"", "ftp://h/"),
        ] {
            let target = engine.upload_target(&url.parse().unwrap(), &TransferOptions::default()).unwrap();
            assert_eq!(target.url_of(Path::new(OsStr::from_bytes(below))).as_str(), expected);
        }
    }
}
