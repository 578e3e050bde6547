//! The identity of a file on its server, stored with the file as extended attributes.
//!
//! The entity tag shows whether the server's file has changed if the server states no modification
//! time. The origin shows whether a file was fetched by an earlier run.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use longhaul_core::proto::http::ETag;
use rustix::fs::{XattrFlags, fsetxattr, getxattr};
use url::Url;

const NAME: &str = "user.longhaul.etag";
const ORIGIN: &str = "user.longhaul.origin";
/// A longer tag is not stored.
const LONGEST: usize = 1024;

/// Reads the tag of the file at `path`; `None` if there is none, or the file system does not
/// support attributes.
pub fn read(path: &Path) -> Option<ETag> {
    ETag::parse(&attribute(path, NAME)?)
}

fn attribute(path: &Path, name: &str) -> Option<String> {
    let mut value = [0; LONGEST];
    let length = getxattr(path, name, &mut value[..]).ok()?;
    Some(std::str::from_utf8(value.get(..length)?).ok()?.to_owned())
}

/// Stores the tag of an open file.
///
/// # Errors
/// The kernel's error; `EOPNOTSUPP` from file systems without extended attributes.
pub(crate) fn write(file: &File, tag: &ETag) -> io::Result<()> {
    keep(file, NAME, &tag.to_string())
}

/// Stores the origin of an open file, once it is complete and has its time.
///
/// # Errors
/// See [`write`].
pub(crate) fn write_origin(file: &File, url: &Url, state: &str) -> io::Result<()> {
    keep(file, ORIGIN, &origin(&file.metadata()?, url, state))
}

/// Returns whether the file at `path` is unchanged since it was fetched from `url`, where it had
/// this state.
pub(crate) fn is_as_fetched(path: &Path, url: &Url, state: &str) -> bool {
    let there = path.symlink_metadata();
    there.is_ok_and(|there| attribute(path, ORIGIN) == Some(origin(&there, url, state)))
}

/// Returns the file's size and time, a digest of the URL, which may contain a secret, and the
/// server's tag or time of the file.
fn origin(there: &Metadata, url: &Url, state: &str) -> String {
    let (seconds, nanoseconds) = (there.mtime(), there.mtime_nsec());
    let url = blake3::hash(url.as_str().as_bytes());
    format!("{} {seconds}.{nanoseconds:09} {url} {state}", there.len())
}

fn keep(file: &File, name: &str, text: &str) -> io::Result<()> {
    if text.len() > LONGEST {
        return Ok(());
    }
    Ok(fsetxattr(file, name, text.as_bytes(), XattrFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_as_fetched_until_it_changes() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "bytes").unwrap();
        let (url, tag, other) = (Url::parse("http://h/f").unwrap(), "\"1\"", "\"2\"");
        assert!(!is_as_fetched(&path, &url, tag));
        let file = File::options().write(true).open(&path).unwrap();
        write_origin(&file, &url, tag).unwrap();
        assert!(is_as_fetched(&path, &url, tag));
        assert!(!is_as_fetched(&path, &Url::parse("http://other/f").unwrap(), tag));
        assert!(!is_as_fetched(&path, &url, other));
        std::fs::write(&path, "other").unwrap();
        assert!(!is_as_fetched(&path, &url, tag), "a change that keeps the size");
    }
}
