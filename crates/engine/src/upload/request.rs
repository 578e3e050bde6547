//! The request of an upload.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::failure::{Failure, FailureKind};
use percent_encoding::percent_encode;
use url::Url;

use super::error::UploadError;
use crate::send::ReaderChoice;
use crate::source::gridftp::FtpSessions;
use crate::source::listing::ESCAPED;
use crate::transfer::TransferOptions;
use crate::verify::Verify;

/// A file to send.
#[derive(Debug, Clone)]
pub struct PutRequest {
    /// The file.
    pub path: PathBuf,
    /// The file's URL; see [`destination`].
    pub url: Url,
    /// The method of reading the file.
    pub reader: ReaderChoice,
    /// The server's verification of the file before completion; `None` without verification.
    pub verify: Option<Verify>,
    /// The congestion control; `None` is the kernel's default.
    pub congestion: Option<String>,
    /// The settings that downloads have, too.
    pub transfer: TransferOptions,
    /// The sessions of earlier uploads.
    pub sessions: Arc<FtpSessions>,
}

/// Returns the URL for the file at `path`: `url`, with the file's name appended if `url` ends in
/// `/`.
///
/// # Errors
/// That of a path without a name, as `/` or `..`.
pub fn destination(url: &Url, path: &Path) -> Result<Url, UploadError> {
    let mut url = url.clone();
    if url.path().ends_with('/') {
        let name = path.file_name().ok_or_else(|| {
            let message = format!("{} has no name to put it under: end the URL in one", path.display());
            Failure::new(FailureKind::Usage, message)
        })?;
        let within = format!("{}{}", url.path(), percent_encode(name.as_encoded_bytes(), ESCAPED));
        url.set_path(&within);
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn to(url: &str, path: &[u8]) -> String {
        destination(&url.parse().unwrap(), Path::new(OsStr::from_bytes(path))).unwrap().into()
    }

    #[test]
    fn file_name_is_appended_to_a_directory() {
        assert_eq!(to("http://h/d/", b"/a/b c%?#.tar"), "http://h/d/b%20c%25%3F%23.tar");
        assert_eq!(to("http://h", b"\xff"), "http://h/%FF");
        assert_eq!(to("http://h/?k=1", b"f"), "http://h/f?k=1");
        assert_eq!(to("http://h/d", b"f"), "http://h/d");
        assert!(destination(&"http://h/".parse().unwrap(), Path::new("/")).is_err());
    }
}
