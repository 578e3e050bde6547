//! The name of the temporary file on the server, by which later runs of the same upload find the
//! file.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use url::{Position, Url};

use crate::send::SourceFile;

/// The suffix of a temporary file's name, and the claim that no other run on this host uses it.
pub(super) struct TemporaryName {
    pub(super) suffix: String,
    /// Held while the upload runs; the kernel releases it when the process ends. `None` if another
    /// run holds the name: then the name is random, and no later run finds it.
    claim: Option<UnixListener>,
}

impl TemporaryName {
    /// Derives the name from the state of `source` and from `url`, and claims it.
    pub(super) fn claim(source: &SourceFile, url: &Url) -> Self {
        let derived = derived(source, url);
        // An abstract socket belongs to this host's network namespace, and leaves no file behind.
        let address = SocketAddr::from_abstract_name(format!("longhaul-put-{derived}"));
        let claim = address.and_then(|address| UnixListener::bind_addr(&address));
        match claim {
            Ok(claim) => Self { suffix: format!(".longhaul-{derived}"), claim: Some(claim) },
            Err(error) => {
                tracing::debug!("another upload of the same file runs, or no socket can be bound: {error}");
                Self { suffix: format!(".longhaul-{:032x}", fastrand::u128(..)), claim: None }
            }
        }
    }

    /// Returns whether a later run finds the name.
    pub(super) fn is_lasting(&self) -> bool {
        self.claim.is_some()
    }
}

/// Hashes the identity of a file's state on this host, and the destination.
fn derived(source: &SourceFile, url: &Url) -> String {
    let path = source.path().canonicalize().unwrap_or_else(|_| source.path().clone());
    let metadata = source.metadata();
    let mut hasher = blake3::Hasher::new();
    // Paths, host names and URLs contain no NUL.
    hasher.update(path.as_os_str().as_bytes()).update(&[0]);
    hasher.update(rustix::system::uname().nodename().to_bytes()).update(&[0]);
    hasher.update(url[Position::BeforeHost..].as_bytes()).update(&[0]);
    for number in [metadata.len(), metadata.dev(), metadata.ino()] {
        hasher.update(&number.to_le_bytes());
    }
    hasher.update(&metadata.mtime().to_le_bytes()).update(&metadata.mtime_nsec().to_le_bytes());
    hasher.finalize().to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::path::Path;

    use super::*;

    fn open(path: &Path) -> SourceFile {
        SourceFile::new(File::open(path).unwrap(), path.to_owned()).unwrap()
    }

    #[test]
    fn name_is_stable_per_upload_and_differs_between_uploads_and_concurrent_runs() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        fs::write(&a, "same").unwrap();
        fs::write(&b, "same").unwrap();
        let time = fs::metadata(&a).unwrap().modified().unwrap();
        File::options().write(true).open(&b).unwrap().set_modified(time).unwrap();
        let url: Url = "ftp://ann:secret@h/f".parse().unwrap();
        let name = |path: &Path| derived(&open(path), &url);
        assert_eq!(name(&a), name(&a));
        assert_ne!(name(&a), name(&b));
        assert_eq!(name(&a), derived(&open(&a), &"ftp://bob@h/f".parse().unwrap()));
        assert_ne!(name(&a), derived(&open(&a), &"ftp://h/g".parse().unwrap()));
        let before = name(&a);
        fs::write(&a, "longer").unwrap();
        assert_ne!(name(&a), before);
        let [first, second] = [(); 2].map(|()| TemporaryName::claim(&open(&a), &url));
        assert!(first.is_lasting() && !second.is_lasting() && first.suffix != second.suffix);
        drop(first);
        assert!(TemporaryName::claim(&open(&a), &url).is_lasting());
    }
}
